// Package sse reads a text/event-stream (WHATWG HTML, section 9.2.6), the wire of progress and of models' answers. It
// is not a client: who connects again, and from where, is its user's business.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"
)

// ErrTooLong is the error of an event that is longer than the limit.
var ErrTooLong = errors.New("an event of the stream is too long")

// Event is one event with data. Those without say nothing and are passed over.
type Event struct {
	ID   string // of this event; empty when it names none
	Type string // empty for the standard's "message"
	Data []byte
}

// Read yields the events of a stream until it ends; an error, the reader's own or ErrTooLong, comes last. limit is the
// most bytes of a line and of an event's data. What an unfinished event held is dropped, as the standard says. Lines
// end in LF or CRLF.
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

// field adds one line to the event. A line without a name is a comment.
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
