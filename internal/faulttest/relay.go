package faulttest

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/clock"
)

// Relay is a TCP server that forwards connections to another server, and injects faults into them. It is safe for
// concurrent use.
type Relay struct {
	tb       testing.TB
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	mode    Mode
	match   string        // a request with this text switches the mode to next; if empty, none does
	next    Mode          // the mode after the match
	matched chan struct{} // closed when a request has matched
	change  chan struct{} // closed when the mode changes
	conns   map[net.Conn]bool
}

// Mode is what a Relay does with connections.
type Mode int

// The modes of a Relay.
const (
	Forward Mode = iota
	Hang         // accepts connections and requests, but forwards nothing and never responds
	Slow         // forwards a small piece five times a second
	Refuse       // closes all connections
)

// StartRelay starts a relay to target, a host:port, until the test ends.
func StartRelay(tb testing.TB, target string) *Relay {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	r := &Relay{
		tb: tb, target: target, listener: l, conns: map[net.Conn]bool{}, matched: make(chan struct{}),
		change: make(chan struct{}),
	}
	r.running.Go(r.accept)
	tb.Cleanup(func() {
		l.Close()
		r.Set(Refuse)
		r.running.Wait()
	})
	return r
}

// Addr returns the relay's host:port.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Target returns the host:port of the server.
func (r *Relay) Target() string { return r.target }

// Through replaces the target's host:port in an address, such as a URL, with the relay's.
func (r *Relay) Through(address string) string {
	return strings.Replace(address, r.target, r.Addr(), 1)
}

// Set changes the mode.
func (r *Relay) Set(mode Mode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set(mode)
}

// set changes the mode; r.mu is held.
func (r *Relay) set(mode Mode) {
	r.mode = mode
	close(r.change)
	r.change = make(chan struct{})
	if mode == Refuse {
		for c := range r.conns {
			c.Close()
		}
	}
}

// SetOn changes the mode when a client sends match. The returned channel is then closed. The relay must receive match
// in one read.
func (r *Relay) SetOn(match string, mode Mode) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.match, r.next, r.matched = match, mode, make(chan struct{})
	return r.matched
}

func (r *Relay) accept() {
	for {
		in, err := r.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			r.tb.Errorf("relay to %s: %v", r.target, err)
			return
		}
		if !r.add(in) {
			continue
		}
		r.running.Go(func() { r.serve(in) })
	}
}

// add records a connection, or closes it if the relay refuses connections.
func (r *Relay) add(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mode == Refuse {
		c.Close()
		return false
	}
	r.conns[c] = true
	return true
}

func (r *Relay) remove(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
	c.Close()
}

// serve connects a client to the target, and forwards what they send until one of them closes.
func (r *Relay) serve(in net.Conn) {
	defer r.remove(in)
	out, err := (&net.Dialer{}).DialContext(r.tb.Context(), "tcp", r.target)
	if err != nil || !r.add(out) {
		return
	}
	defer r.remove(out)
	var responses sync.WaitGroup
	responses.Go(func() { r.copy(in, out, false) })
	r.copy(out, in, true)
	responses.Wait()
}

// copy forwards pieces from src to dst until one side closes. requests says whether src is a client.
func (r *Relay) copy(dst, src net.Conn, requests bool) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if err != nil {
			return
		}
		if !r.pass(dst, buf[:n], requests) {
			return
		}
	}
}

// pass forwards a piece, as the mode specifies. It returns false if the connection has ended.
func (r *Relay) pass(dst net.Conn, piece []byte, request bool) bool {
	for len(piece) > 0 {
		mode, changed := r.modeFor(piece, request)
		n := len(piece)
		switch mode {
		case Forward:
		case Hang:
			select {
			case <-changed:
			case <-r.tb.Context().Done():
				return false
			}
			continue
		case Slow:
			const pieceBytes, delay = 64, 200 * time.Millisecond
			if clock.Sleep(r.tb.Context(), delay) != nil {
				return false
			}
			n = min(n, pieceBytes)
		case Refuse:
			return false
		}
		if _, err := dst.Write(piece[:n]); err != nil {
			return false
		}
		piece = piece[n:]
	}
	return true
}

// modeFor returns the mode for a piece, and a channel that is closed when the mode changes. If the piece is the request
// for which SetOn waits, modeFor changes the mode first.
func (r *Relay) modeFor(piece []byte, request bool) (Mode, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if request && r.match != "" && bytes.Contains(piece, []byte(r.match)) {
		r.match = ""
		r.set(r.next)
		close(r.matched)
	}
	return r.mode, r.change
}
