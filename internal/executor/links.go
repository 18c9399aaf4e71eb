package executor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	wire "github.com/codefleet/codefleet/internal/executor/runner"
)

// links are the connections that a program made to the proxy in its box, carried by the frames of its
// runner. take is called by the goroutine that reads those, and never waits: what comes is bounded by
// wire.Window for each connection, and a runner that sends more breaks the protocol.
type links struct {
	send   func(header any, body []byte) error // waits for the runner to read
	answer func(net.Conn)                      // starts to answer one

	mu   sync.Mutex
	open map[uint64]*link
	last uint64 // id ever opened
}

func newLinks(send func(header any, body []byte) error, answer func(net.Conn)) *links {
	return &links{send: send, answer: answer, open: map[uint64]*link{}}
}

// take handles a frame about a connection. An error means that the runner does not keep to the
// protocol.
func (s *links) take(f wire.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Type == "open" {
		return s.accept(f.ID)
	}
	l := s.open[f.ID]
	switch {
	case f.ID > s.last:
		return fmt.Errorf("%q of a connection %d that is not open", f.Type, f.ID)
	case l == nil:
		return nil // it has not heard that we ended it
	}
	over, err := l.take(f)
	if over {
		delete(s.open, f.ID)
	}
	return err
}

func (s *links) accept(id uint64) error {
	if id != s.last+1 || len(s.open) >= wire.Connections {
		return fmt.Errorf("connection %d after %d, with %d open", id, s.last, len(s.open))
	}
	s.last = id
	l := &link{links: s, id: id, room: wire.Window, credit: wire.Window}
	l.changed.L = &l.mu
	s.open[id] = l
	s.answer(l)
	return nil
}

func (s *links) forget(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
}

// close ends all connections, without a word to the runner, which has ended them itself.
func (s *links) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, l := range s.open {
		l.fail(net.ErrClosed)
		delete(s.open, id)
	}
}

// link is one connection, as net.Conn has it. CloseWrite ends one direction. A read after the program
// has reset the connection, and any write then, is an error.
type link struct {
	links   *links
	id      uint64
	writing sync.Mutex // held for a whole Write

	mu        sync.Mutex
	changed   sync.Cond
	in        bytes.Buffer // from the program
	room      int          // bytes that the program may still send
	owed      int          // bytes read that the runner does not know of
	ended     bool         // the program sends no more
	credit    int          // bytes that we may still send
	shut      bool         // we send no more
	err       error        // nothing goes either way any more
	readBy    deadline
	writtenBy deadline
}

var errReset = errors.New("the program ended the connection")

// take handles a frame; over means that no other may follow, in either direction.
func (l *link) take(f wire.Frame) (over bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.changed.Broadcast()
	switch f.Type {
	case "data":
		if l.ended || len(f.Body) > l.room {
			return false, fmt.Errorf("connection %d: %d bytes that nobody asked for", l.id, len(f.Body))
		}
		l.room -= len(f.Body)
		l.in.Write(f.Body)
	case "ack":
		if l.credit += f.Bytes; l.credit > wire.Window {
			return false, fmt.Errorf("connection %d: more was acknowledged than sent", l.id)
		}
	case "eof":
		l.ended = true
		return l.shut, nil
	case "reset":
		l.err = errReset
		return true, nil
	default:
		return false, fmt.Errorf("unexpected frame %q", f.Type)
	}
	return false, nil
}

// Read implements net.Conn.
func (l *link) Read(b []byte) (int, error) {
	l.mu.Lock()
	for l.in.Len() == 0 && !l.ended && l.err == nil && !l.readBy.over() {
		l.changed.Wait()
	}
	switch {
	case l.err != nil:
		defer l.mu.Unlock()
		return 0, l.err
	case l.readBy.over():
		defer l.mu.Unlock()
		return 0, os.ErrDeadlineExceeded
	case l.in.Len() == 0:
		defer l.mu.Unlock()
		return 0, io.EOF
	}
	n, _ := l.in.Read(b)
	l.owed += n
	ask := 0
	if l.owed >= wire.Ask && !l.ended {
		ask, l.owed = l.owed, 0
		l.room += ask
	}
	l.mu.Unlock()
	if ask > 0 {
		l.tell("ack", ask)
	}
	return n, nil
}

// Write implements net.Conn.
func (l *link) Write(b []byte) (sent int, err error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	for len(b) > 0 {
		n, err := l.reserve(min(len(b), wire.MaxData))
		if err != nil {
			return sent, err
		}
		if err := l.links.send(wire.Link{Type: "data", ID: l.id}, b[:n]); err != nil {
			return sent, err
		}
		b, sent = b[n:], sent+n
	}
	return sent, nil
}

// reserve waits until some of the bytes may be sent.
func (l *link) reserve(most int) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.credit == 0 && !l.shut && l.err == nil && !l.writtenBy.over() {
		l.changed.Wait()
	}
	switch {
	case l.err != nil:
		return 0, l.err
	case l.shut:
		return 0, net.ErrClosed
	case l.writtenBy.over():
		return 0, os.ErrDeadlineExceeded
	}
	n := min(most, l.credit)
	l.credit -= n
	return n, nil
}

// tell sends a message that is no data. Where it cannot be sent, the box is gone.
func (l *link) tell(what string, n int) {
	_ = l.links.send(wire.Link{Type: what, ID: l.id, Bytes: n}, nil)
}

// CloseWrite says that nothing more is sent.
func (l *link) CloseWrite() error {
	l.mu.Lock()
	shut, err, over := l.shut, l.err, l.ended
	l.shut = true
	l.changed.Broadcast()
	l.mu.Unlock()
	if shut || err != nil {
		return err
	}
	if over {
		l.links.forget(l.id)
	}
	l.writing.Lock() // after the data that are on their way
	defer l.writing.Unlock()
	l.tell("eof", 0)
	return nil
}

// Close implements net.Conn. What was written still reaches the program.
func (l *link) Close() error {
	l.mu.Lock()
	gone := l.err != nil || l.shut && l.ended
	l.err = net.ErrClosed
	l.stop()
	l.mu.Unlock()
	if gone {
		return nil
	}
	l.links.forget(l.id)
	l.writing.Lock()
	defer l.writing.Unlock()
	l.tell("reset", 0)
	return nil
}

// fail ends the connection without a word.
func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
	l.stop()
}

// stop wakes those who wait; l.mu is held.
func (l *link) stop() {
	l.readBy.set(l, time.Time{})
	l.writtenBy.set(l, time.Time{})
	l.changed.Broadcast()
}

// A deadline wakes those who wait for a connection when its time has come. The connection's mutex is
// held in its methods.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) over() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) set(l *link, at time.Time) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = at
	if !at.IsZero() {
		d.timer = time.AfterFunc(time.Until(at), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.changed.Broadcast()
		})
	}
}

// SetDeadline implements net.Conn.
func (l *link) SetDeadline(t time.Time) error {
	return errors.Join(l.SetReadDeadline(t), l.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (l *link) SetReadDeadline(t time.Time) error { return l.setDeadline(&l.readBy, t) }

// SetWriteDeadline implements net.Conn.
func (l *link) SetWriteDeadline(t time.Time) error { return l.setDeadline(&l.writtenBy, t) }

func (l *link) setDeadline(d *deadline, t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	d.set(l, t)
	l.changed.Broadcast()
	return nil
}

// LocalAddr implements net.Conn.
func (l *link) LocalAddr() net.Addr { return boxAddr{} }

// RemoteAddr implements net.Conn.
func (l *link) RemoteAddr() net.Addr { return boxAddr{} }

type boxAddr struct{}

func (boxAddr) Network() string { return "box" }
func (boxAddr) String() string  { return "box" }
