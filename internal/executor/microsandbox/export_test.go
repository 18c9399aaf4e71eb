package microsandbox

import "io"

// KillMachine kills a sandbox without telling msb or the driver.
func (d *Driver) KillMachine(name string) { d.killMachine(name) }

var ParsePython = parsePython

func Prepared(out string) (protected string, err error) {
	return new(image).parsePrepared("/python", out)
}

func (d *Driver) MaxCalls() int { return cap(d.calls) }

// These types are for the fake agent.
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
