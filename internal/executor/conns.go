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

	"github.com/codefleet/codefleet/internal/executor/runner"
)

// conns are the connections that a program opened to the proxy in its box. They are multiplexed over the
// runner's frames. handle never blocks: each connection buffers at most runner.Window bytes, and a runner
// that sends more violates the protocol.
type conns struct {
	send   func(header any, body []byte) error // blocks until the runner reads
	accept func(net.Conn)                      // must not block

	mu     sync.Mutex
	open   map[uint64]*conn
	lastID uint64 // the id of the connection opened last
}

func newConns(send func(header any, body []byte) error, accept func(net.Conn)) *conns {
	return &conns{send: send, accept: accept, open: map[uint64]*conn{}}
}

// handle handles a frame about a connection. An error means that the runner violates the protocol.
func (s *conns) handle(f runner.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Type == "open" {
		return s.add(f.ID)
	}
	c := s.open[f.ID]
	switch {
	case f.ID > s.lastID:
		return fmt.Errorf("%q for connection %d, which is not open", f.Type, f.ID)
	case c == nil:
		return nil // we have reset the connection; the runner sent the frame before it read the reset
	}
	ended, err := c.handle(f)
	if ended {
		delete(s.open, f.ID)
	}
	return err
}

// add opens a connection with the next id, and passes it to accept.
func (s *conns) add(id uint64) error {
	if id != s.lastID+1 || len(s.open) >= runner.MaxConns {
		return fmt.Errorf("open connection %d: the last one was %d, and %d are open", id, s.lastID, len(s.open))
	}
	s.lastID = id
	c := &conn{conns: s, id: id, recvWindow: runner.Window, sendWindow: runner.Window}
	c.changed.L = &c.mu
	s.open[id] = c
	s.accept(c)
	return nil
}

func (s *conns) remove(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
}

// close ends all connections. It sends nothing, because the runner closes its side when the program ends.
func (s *conns) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, c := range s.open {
		c.fail(net.ErrClosed)
		delete(s.open, id)
	}
}

// conn is one connection; it implements net.Conn and CloseWrite. After the program has reset the
// connection, every read and write returns errReset.
type conn struct {
	conns   *conns
	id      uint64
	writing sync.Mutex // held for a whole Write

	mu            sync.Mutex
	changed       sync.Cond
	in            bytes.Buffer // received from the program and not yet read
	recvWindow    int          // bytes that the program may still send
	unacked       int          // bytes that were read and not yet acknowledged
	peerClosed    bool         // the program sends no more
	sendWindow    int          // bytes that we may still send
	closedWrite   bool         // we send no more
	err           error        // the connection has ended
	readDeadline  deadline
	writeDeadline deadline
}

var errReset = errors.New("the program reset the connection")

// handle handles a frame. It reports whether both directions have ended.
func (c *conn) handle(f runner.Frame) (ended bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.changed.Broadcast()
	switch f.Type {
	case "data":
		if c.peerClosed || len(f.Body) > c.recvWindow {
			return false, fmt.Errorf("connection %d: %d bytes exceed the window", c.id, len(f.Body))
		}
		c.recvWindow -= len(f.Body)
		c.in.Write(f.Body)
	case "ack":
		if c.sendWindow += f.Bytes; c.sendWindow > runner.Window {
			return false, fmt.Errorf("connection %d: more was acknowledged than sent", c.id)
		}
	case "eof":
		c.peerClosed = true
		return c.closedWrite, nil
	case "reset":
		c.err = errReset
		return true, nil
	default:
		return false, fmt.Errorf("unexpected frame %q", f.Type)
	}
	return false, nil
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	for c.in.Len() == 0 && !c.peerClosed && c.err == nil && !c.readDeadline.passed() {
		c.changed.Wait()
	}
	switch {
	case c.err != nil:
		defer c.mu.Unlock()
		return 0, c.err
	case c.readDeadline.passed():
		defer c.mu.Unlock()
		return 0, os.ErrDeadlineExceeded
	case c.in.Len() == 0:
		defer c.mu.Unlock()
		return 0, io.EOF
	}
	n, _ := c.in.Read(b)
	c.unacked += n
	ack := 0
	if c.unacked >= runner.AckThreshold && !c.peerClosed {
		ack, c.unacked = c.unacked, 0
		c.recvWindow += ack
	}
	c.mu.Unlock()
	if ack > 0 {
		c.notify("ack", ack)
	}
	return n, nil
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (sent int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	for len(b) > 0 {
		n, err := c.reserve(min(len(b), runner.MaxData))
		if err != nil {
			return sent, err
		}
		if err := c.conns.send(runner.ConnMessage{Type: "data", ID: c.id}, b[:n]); err != nil {
			return sent, err
		}
		b, sent = b[n:], sent+n
	}
	return sent, nil
}

// reserve waits until up to limit bytes may be sent, and returns how many.
func (c *conn) reserve(limit int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.sendWindow == 0 && !c.closedWrite && c.err == nil && !c.writeDeadline.passed() {
		c.changed.Wait()
	}
	switch {
	case c.err != nil:
		return 0, c.err
	case c.closedWrite:
		return 0, net.ErrClosed
	case c.writeDeadline.passed():
		return 0, os.ErrDeadlineExceeded
	}
	n := min(limit, c.sendWindow)
	c.sendWindow -= n
	return n, nil
}

// notify sends a message without data. It ignores the error: sending fails only if the box has ended.
func (c *conn) notify(kind string, n int) {
	_ = c.conns.send(runner.ConnMessage{Type: kind, ID: c.id, Bytes: n}, nil)
}

// CloseWrite tells the program that no more data follows.
func (c *conn) CloseWrite() error {
	c.mu.Lock()
	closed, err, peerClosed := c.closedWrite, c.err, c.peerClosed
	c.closedWrite = true
	c.changed.Broadcast()
	c.mu.Unlock()
	if closed || err != nil {
		return err
	}
	if peerClosed {
		c.conns.remove(c.id)
	}
	c.writing.Lock() // after a Write in progress
	defer c.writing.Unlock()
	c.notify("eof", 0)
	return nil
}

// Close implements net.Conn. Bytes that have been written still reach the program.
func (c *conn) Close() error {
	c.mu.Lock()
	ended := c.err != nil || c.closedWrite && c.peerClosed
	c.err = net.ErrClosed
	c.wakeAll()
	c.mu.Unlock()
	if ended {
		return nil
	}
	c.conns.remove(c.id)
	c.writing.Lock()
	defer c.writing.Unlock()
	c.notify("reset", 0)
	return nil
}

// fail ends the connection on this side only.
func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.wakeAll()
}

// wakeAll clears the deadlines and wakes all waiting calls; c.mu is held.
func (c *conn) wakeAll() {
	c.readDeadline.set(c, time.Time{})
	c.writeDeadline.set(c, time.Time{})
	c.changed.Broadcast()
}

// A deadline wakes the calls that wait on a connection when it expires. Its methods need conn.mu.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) set(c *conn, at time.Time) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = at
	if !at.IsZero() {
		d.timer = time.AfterFunc(time.Until(at), func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.changed.Broadcast()
		})
	}
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.readDeadline, t) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.writeDeadline, t) }

func (c *conn) setDeadline(d *deadline, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	d.set(c, t)
	c.changed.Broadcast()
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return boxAddr{} }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return boxAddr{} }

type boxAddr struct{}

func (boxAddr) Network() string { return "box" }
func (boxAddr) String() string  { return "box" }
