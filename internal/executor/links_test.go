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

	wire "github.com/codefleet/codefleet/internal/executor/runner"
)

// peer is a runner's end of connections: it keeps what it is sent.
type peer struct {
	links *links
	conns chan net.Conn
	mu    sync.Mutex
	sent  []wire.Link
	body  []byte
}

func newPeer() *peer {
	p := &peer{conns: make(chan net.Conn, wire.Connections)}
	p.links = newLinks(func(header any, body []byte) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sent = append(p.sent, header.(wire.Link))
		p.body = append(p.body, body...)
		return nil
	}, func(c net.Conn) { p.conns <- c })
	return p
}

func (p *peer) must(t *testing.T, frames ...wire.Frame) {
	t.Helper()
	for _, f := range frames {
		if err := p.links.take(f); err != nil {
			t.Fatalf("take(%+v) = %v", f, err)
		}
	}
}

func (p *peer) told() []wire.Link {
	p.mu.Lock()
	defer p.mu.Unlock()
	told := p.sent
	p.sent = nil
	return told
}

func data(id uint64, n int) wire.Frame {
	return wire.Frame{Type: "data", ID: id, Body: bytes.Repeat([]byte("x"), n)}
}

func TestLinkCarriesBytes(t *testing.T) {
	p := newPeer()
	p.must(t, wire.Frame{Type: "open", ID: 1}, data(1, 3))
	conn := <-p.conns
	got := make([]byte, 10)
	if n, err := conn.Read(got); n != 3 || err != nil {
		t.Errorf("Read() = %d, %v, want 3", n, err)
	}
	if n, err := conn.Write([]byte("answer")); n != 6 || err != nil || string(p.body) != "answer" {
		t.Errorf("Write() = %d, %v; sent %q", n, err, p.body)
	}
	p.must(t, wire.Frame{Type: "eof", ID: 1})
	if n, err := conn.Read(got); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("Read() after the end = %d, %v", n, err)
	}
	p.told()
	if err := errors.Join(conn.(*link).CloseWrite(), conn.Close(), conn.Close()); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]wire.Link{{Type: "eof", ID: 1}}, p.told()); d != "" {
		t.Errorf("told (-want +got):\n%s", d)
	}
	if len(p.links.open) != 0 {
		t.Error("the connection is still there")
	}
	p.must(t, data(1, 1)) // it was on its way
}

// TestLinkWindow: a writer stops after a window, and a reader asks for more.
func TestLinkWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		p.must(t, wire.Frame{Type: "open", ID: 1})
		conn := <-p.conns
		written := make(chan int)
		go func() {
			n, _ := conn.Write(make([]byte, wire.Window+10))
			written <- n
		}()
		synctest.Wait()
		if len(p.body) != wire.Window {
			t.Errorf("%d bytes sent without an answer, want %d", len(p.body), wire.Window)
		}
		p.must(t, wire.Frame{Type: "ack", ID: 1, Bytes: 10})
		if n := <-written; n != wire.Window+10 {
			t.Errorf("Write() = %d", n)
		}
		p.told()
		for range wire.Window / wire.MaxData {
			p.must(t, data(1, wire.MaxData))
		}
		if err := p.links.take(data(1, 1)); err == nil {
			t.Error("more than a window was taken")
		}
		if _, err := io.ReadFull(conn, make([]byte, wire.Window)); err != nil {
			t.Error(err)
		}
		asked := 0
		for _, l := range p.told() {
			asked += l.Bytes
		}
		if asked != wire.Window {
			t.Errorf("asked for %d more, want %d", asked, wire.Window)
		}
		p.must(t, data(1, wire.MaxData))
	})
}

func TestLinkDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		p.must(t, wire.Frame{Type: "open", ID: 1})
		conn := <-p.conns
		start := time.Now()
		if err := conn.SetDeadline(start.Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("Read() = %v after %v", err, time.Since(start))
		}
		if n, err := conn.Write(make([]byte, 2*wire.Window)); n != 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write() = %d, %v", n, err)
		}
		if err := conn.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		var ended sync.WaitGroup
		ended.Go(func() {
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, errReset) {
				t.Errorf("Read() = %v, want %v", err, errReset)
			}
		})
		synctest.Wait()
		p.must(t, wire.Frame{Type: "reset", ID: 1})
		ended.Wait()
	})
}

// TestLinkEndsWithTheRun: nobody waits for a connection of a program that has ended.
func TestLinkEndsWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		p.must(t, wire.Frame{Type: "open", ID: 1})
		conn := <-p.conns
		var ended sync.WaitGroup
		ended.Go(func() { _, _ = conn.Read(make([]byte, 1)) })
		ended.Go(func() { _, _ = conn.Write(make([]byte, 2*wire.Window)) })
		synctest.Wait()
		p.links.close()
		ended.Wait()
		p.told()
		_ = conn.Close()
		if told := p.told(); len(told) > 0 {
			t.Errorf("the runner was told %+v after its program had ended", told)
		}
	})
}

func TestLinksRefuse(t *testing.T) {
	open := func(n int) (frames []wire.Frame) {
		for i := range n {
			frames = append(frames, wire.Frame{Type: "open", ID: uint64(i + 1)})
		}
		return frames
	}
	for name, frames := range map[string][]wire.Frame{
		"an id twice":           append(open(1), wire.Frame{Type: "open", ID: 1}),
		"an id left out":        append(open(1), wire.Frame{Type: "open", ID: 3}),
		"too many":              open(wire.Connections + 1),
		"data before open":      {data(1, 1)},
		"data after the end":    append(open(1), wire.Frame{Type: "eof", ID: 1}, data(1, 1)),
		"an ack of nothing":     append(open(1), wire.Frame{Type: "ack", ID: 1, Bytes: 1}),
		"something else":        append(open(1), wire.Frame{Type: "checked", ID: 1}),
		"the end of none":       {wire.Frame{Type: "eof", ID: 7}},
		"more than was granted": append(open(1), data(1, wire.Window+1)),
	} {
		p := newPeer()
		last := len(frames) - 1
		p.must(t, frames[:last]...)
		if err := p.links.take(frames[last]); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// FuzzLinks: no frames of a runner block, panic, or make more be kept than the windows hold.
func FuzzLinks(f *testing.F) {
	f.Add([]byte{0, 1, 1, 1, 2, 1, 3, 1, 4, 1})
	f.Add([]byte{0, 1, 0, 2, 1, 255, 1, 255, 4, 2, 1, 2})
	types := []string{"open", "data", "ack", "eof", "reset", "done"}
	f.Fuzz(func(t *testing.T, script []byte) {
		p := newPeer()
		p.links.answer = func(c net.Conn) {}
		for ; len(script) >= 3; script = script[3:] {
			frame := wire.Frame{Type: types[int(script[0])%len(types)], ID: uint64(script[1]), Bytes: int(script[2]) << 10}
			if frame.Type == "data" {
				frame.Body = make([]byte, int(script[2])<<8)
			}
			if p.links.take(frame) != nil {
				break
			}
		}
		kept := 0
		for _, l := range p.links.open {
			kept += l.in.Len()
		}
		if len(p.links.open) > wire.Connections || kept > len(p.links.open)*wire.Window {
			t.Errorf("%d connections keep %d bytes", len(p.links.open), kept)
		}
		p.links.close()
	})
}
