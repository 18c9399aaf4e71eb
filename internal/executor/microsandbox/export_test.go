package microsandbox

import "io"

// KillMachine kills a sandbox behind the driver's back.
func (d *Driver) KillMachine(name string) { d.killMachine(name) }

var ParsePython = parsePython

func Shown(name string) string { return shown(name) }

func Prepared(out string) (closed string, err error) { return new(image).prepared("/python", out) }

func (d *Driver) CallsAtOnce() int { return cap(d.calls) }

// For the other side of the protocol, which a test plays.

type Field = field

func NewField(name string, value any) Field { return field{name, value} }

func EncodeFrame(id uint32, flags byte, kind string, fields ...Field) ([]byte, error) {
	return encodeFrame(id, flags, kind, fields...)
}

func ReadFrame(r io.Reader) (id uint32, kind string, fields map[string]any, err error) {
	m, err := readFrame(r)
	if err != nil {
		return 0, "", nil, err
	}
	fields, err = m.fields()
	return m.id, m.kind, fields, err
}
