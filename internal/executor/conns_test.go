package executor

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/executor/runner"
)

// peer is the runner's end of the connections. It records the messages that the host sends.
type peer struct {
	conns    *conns
	accepted chan net.Conn
	mu       sync.Mutex
	sent     []runner.ConnMessage
	body     []byte
}

func newPeer() *peer {
	p := &peer{accepted: make(chan net.Conn, runner.MaxConns)}
	p.conns = newConns(func(header any, body []byte) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sent = append(p.sent, header.(runner.ConnMessage))
		p.body = append(p.body, body...)
		return nil
	}, func(c net.Conn) { p.accepted <- c })
	return p
}

// handle sends frames to the host. It fails the test if one is rejected.
func (p *peer) handle(t *testing.T, frames ...runner.Frame) {
	t.Helper()
	for _, f := range frames {
		if err := p.conns.handle(f); err != nil {
			t.Fatalf("handle(%+v) = %v, want nil", f, err)
		}
	}
}

func (p *peer) received() []runner.ConnMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	received := p.sent
	p.sent = nil
	return received
}

func data(id uint64, n int) runner.Frame {
	return runner.Frame{Type: "data", ID: id, Body: bytes.Repeat([]byte("x"), n)}
}

func TestConnCarriesBytes(t *testing.T) {
	p := newPeer()
	p.handle(t, runner.Frame{Type: "open", ID: 1}, data(1, 3))
	c := <-p.accepted
	got := make([]byte, 10)
	if n, err := c.Read(got); n != 3 || err != nil {
		t.Errorf("Read() = %d, %v, want 3", n, err)
	}
	if n, err := c.Write([]byte("output")); n != 6 || err != nil || string(p.body) != "output" {
		t.Errorf("Write() = %d, %v; sent %q, want all of \"output\" sent", n, err, p.body)
	}
	p.handle(t, runner.Frame{Type: "eof", ID: 1})
	if n, err := c.Read(got); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("Read() after the end = %d, %v; want EOF", n, err)
	}
	p.received()
	if err := errors.Join(c.(*conn).CloseWrite(), c.Close(), c.Close()); err != nil {
		t.Errorf("CloseWrite and two calls of Close = %v, want nil", err)
	}
	if d := cmp.Diff([]runner.ConnMessage{{Type: "eof", ID: 1}}, p.received()); d != "" {
		t.Errorf("received (-want +got):\n%s", d)
	}
	if n := len(p.conns.open); n != 0 {
		t.Errorf("%d connections are open after both ends closed, want 0", n)
	}
	p.handle(t, data(1, 1)) // sent before the runner read our eof
}

// TestConnWindow checks that a writer stops when the window is used up; a reader acknowledges what it has read.
func TestConnWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		p.handle(t, runner.Frame{Type: "open", ID: 1})
		c := <-p.accepted
		written := make(chan int)
		go func() {
			n, _ := c.Write(make([]byte, runner.Window+10))
			written <- n
		}()
		synctest.Wait()
		if len(p.body) != runner.Window {
			t.Errorf("%d bytes sent without an acknowledgement, want %d", len(p.body), runner.Window)
		}
		p.handle(t, runner.Frame{Type: "ack", ID: 1, Bytes: 10})
		if n := <-written; n != runner.Window+10 {
			t.Errorf("Write() = %d, want %d", n, runner.Window+10)
		}
		p.received()
		for range runner.Window / runner.MaxData {
			p.handle(t, data(1, runner.MaxData))
		}
		if err := p.conns.handle(data(1, 1)); err == nil {
			t.Error("handle of a byte beyond the window = nil, want an error")
		}
		if _, err := io.ReadFull(c, make([]byte, runner.Window)); err != nil {
			t.Errorf("read of a whole window = %v, want nil", err)
		}
		acked := 0
		for _, m := range p.received() {
			acked += m.Bytes
		}
		if acked != runner.Window {
			t.Errorf("acknowledged %d bytes, want %d", acked, runner.Window)
		}
		p.handle(t, data(1, runner.MaxData))
	})
}

func TestConnDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		p.handle(t, runner.Frame{Type: "open", ID: 1})
		c := <-p.accepted
		start := time.Now()
		if err := c.SetDeadline(start.Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		_, err := c.Read(make([]byte, 1))
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("Read() = %v after %v, want %v after 1s", err, time.Since(start), os.ErrDeadlineExceeded)
		}
		if n, err := c.Write(make([]byte, 2*runner.Window)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write() after the deadline = %d, %v, want 0, %v", n, err, os.ErrDeadlineExceeded)
		}
		if err := c.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		var ended sync.WaitGroup
		ended.Go(func() {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, errReset) {
				t.Errorf("Read() = %v, want %v", err, errReset)
			}
		})
		synctest.Wait()
		p.handle(t, runner.Frame{Type: "reset", ID: 1})
		ended.Wait()
	})
}

// TestConnEndsWithTheExecution checks that reads and writes return when the program has ended, and the runner gets no
// more messages.
func TestConnEndsWithTheExecution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		p.handle(t, runner.Frame{Type: "open", ID: 1})
		c := <-p.accepted
		var ended sync.WaitGroup
		ended.Go(func() { _, _ = c.Read(make([]byte, 1)) })
		ended.Go(func() { _, _ = c.Write(make([]byte, 2*runner.Window)) })
		synctest.Wait()
		p.conns.close()
		ended.Wait()
		p.received()
		_ = c.Close()
		if got := p.received(); len(got) > 0 {
			t.Errorf("the runner got %+v after its program had ended, want nothing", got)
		}
	})
}

func TestConnsRejectBadFrames(t *testing.T) {
	open := func(n int) (frames []runner.Frame) {
		for i := range n {
			frames = append(frames, runner.Frame{Type: "open", ID: uint64(i + 1)})
		}
		return frames
	}
	for name, frames := range map[string][]runner.Frame{
		"an id twice":          append(open(1), runner.Frame{Type: "open", ID: 1}),
		"a skipped id":         append(open(1), runner.Frame{Type: "open", ID: 3}),
		"too many":             open(runner.MaxConns + 1),
		"data before open":     {data(1, 1)},
		"data after the end":   append(open(1), runner.Frame{Type: "eof", ID: 1}, data(1, 1)),
		"an ack of nothing":    append(open(1), runner.Frame{Type: "ack", ID: 1, Bytes: 1}),
		"another frame":        append(open(1), runner.Frame{Type: "checked", ID: 1}),
		"eof before open":      {runner.Frame{Type: "eof", ID: 7}},
		"more than the window": append(open(1), data(1, runner.Window+1)),
	} {
		p := newPeer()
		last := len(frames) - 1
		p.handle(t, frames[:last]...)
		if err := p.conns.handle(frames[last]); err == nil {
			t.Errorf("%s: handle(%+v) = nil, want an error", name, frames[last])
		}
	}
}

// FuzzConns checks that no sequence of frames blocks, panics, or makes the host buffer more than the windows.
func FuzzConns(f *testing.F) {
	// Three bytes are a frame: its type, its connection, and its size.
	f.Add([]byte{0, 1, 0, 1, 1, 255, 1, 1, 255, 2, 1, 0, 3, 1, 0, 4, 1, 0})
	f.Add(append([]byte{0, 1, 0, 0, 2, 0}, bytes.Repeat([]byte{1, 1, 255, 1, 2, 255}, 20)...))
	types := []string{"open", "data", "ack", "eof", "reset", "done"}
	f.Fuzz(func(t *testing.T, script []byte) {
		p := newPeer()
		p.conns.accept = func(c net.Conn) {}
		for ; len(script) >= 3; script = script[3:] {
			frame := runner.Frame{
				Type: types[int(script[0])%len(types)], ID: uint64(script[1]), Bytes: int(script[2]) << 10,
			}
			if frame.Type == "data" {
				frame.Body = make([]byte, int(script[2])<<8)
			}
			if p.conns.handle(frame) != nil {
				break
			}
		}
		buffered := 0
		for _, c := range p.conns.open {
			buffered += c.in.Len()
		}
		if len(p.conns.open) > runner.MaxConns || buffered > len(p.conns.open)*runner.Window {
			t.Errorf("%d connections buffer %d bytes; the limits are %d connections, and %d bytes for each",
				len(p.conns.open), buffered, runner.MaxConns, runner.Window)
		}
		p.conns.close()
	})
}
