package client

import (
	"bufio"
	"bytes"
	"io"
)

// maxLine bounds a line of an event stream: a record with its result and output fits.
const maxLine = 64 << 20

// message is one event of a text/event-stream.
type message struct {
	id, event string
	data      []byte
}

// readStream calls fn for each message of an event stream (WHATWG HTML, section 9.2.6) until the
// stream ends (io.EOF), breaks, or fn returns an error. What an unfinished message held is dropped,
// as the standard says.
func readStream(r io.Reader, fn func(message) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4096), maxLine)
	var m message
	for lines.Scan() {
		line := lines.Bytes()
		if len(line) == 0 {
			if m.data != nil {
				m.data = bytes.TrimSuffix(m.data, []byte("\n"))
				if err := fn(m); err != nil {
					return err
				}
			}
			m = message{}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "id":
			m.id = string(value)
		case "event":
			m.event = string(value)
		case "data":
			m.data = append(append(m.data, value...), '\n')
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.EOF
}
