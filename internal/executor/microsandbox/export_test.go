package microsandbox

import "io"

// KillMachine kills a sandbox behind the driver's back.
func (d *Driver) KillMachine(name string) { d.killMachine(name) }

var ParsePython = parsePython

func DisplayName(name string) string { return displayName(name) }

func Prepared(out string) (protected string, err error) {
	return new(image).parsePrepared("/python", out)
}

func (d *Driver) CallsAtOnce() int { return cap(d.calls) }

// For the fake agent.

type (
	ExecRequest = execRequest
	StreamData  = streamData
	StartError  = startError
	Exited      = exited
	Message     = message
)

func EncodeFrame(id uint32, flags byte, kind string, payload any) ([]byte, error) {
	return encodeFrame(id, flags, kind, payload)
}

func ReadFrame(r io.Reader) (id uint32, kind string, m Message, err error) {
	m, err = readFrame(r)
	return m.id, m.kind, m, err
}

// Decode decodes the payload of a message.
func (m message) Decode(into any) error { return m.decode(into) }
