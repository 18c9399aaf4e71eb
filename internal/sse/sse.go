// Package sse reads a text/event-stream (WHATWG HTML, section 9.2.6), the format of task progress and of streamed
// model responses. It is not a client: it does not reconnect.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"
)

// ErrTooLong is the error for a line, or the data of an event, that is longer than the limit.
var ErrTooLong = errors.New("an event of the stream is too long")

// Event is one event of a stream.
type Event struct {
	ID   string // empty if the event has no id
	Type string // empty means "message"
	Data []byte
}

// Read yields the events of a stream until it ends. If reading fails, it yields the reader's error or ErrTooLong last.
// limit is the maximum number of bytes in a line and in an event's data. As the standard requires, Read drops events
// without data, and an unfinished event at the end. Lines end in LF or CRLF.
func Read(r io.Reader, limit int) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(make([]byte, 0, 4096), limit)
		var e Event
		for lines.Scan() {
			line := lines.Bytes()
			if len(line) == 0 {
				if e.Data != nil {
					e.Data = bytes.TrimSuffix(e.Data, []byte("\n"))
					if !yield(e, nil) {
						return
					}
				}
				e = Event{}
				continue
			}
			if e.field(line); len(e.Data) > limit+1 {
				yield(Event{}, ErrTooLong)
				return
			}
		}
		if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
			yield(Event{}, ErrTooLong)
		} else if err != nil {
			yield(Event{}, err)
		}
	}
}

// field adds a field, which is one line, to the event. It ignores unknown fields, and comments, which have no name.
func (e *Event) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "id":
		e.ID = string(value)
	case "event":
		e.Type = string(value)
	case "data":
		e.Data = append(append(e.Data, value...), '\n')
	}
}
