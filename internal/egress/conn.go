package egress

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// metered is a connection to a host: it counts, and ends when there was too much or too little.
type metered struct {
	net.Conn
	proxy *Proxy
	bytes atomic.Int64
	close sync.Once

	mu      sync.Mutex
	attempt Attempt // guarded by mu
}

var (
	errBytes = errors.New("this run has used up its bytes")
	errIdle  = errors.New("nothing moved for too long")
)

func (p *Proxy) meter(conn net.Conn, a Attempt) *metered {
	a.Verdict = Allowed
	m := &metered{Conn: conn, proxy: p, attempt: a}
	m.touch()
	return m
}

// touch puts the end of idleness off, in both directions.
func (m *metered) touch() { _ = m.SetDeadline(time.Now().Add(m.proxy.opts.Idle)) }

func (m *metered) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	return n, m.moved(n, err)
}

func (m *metered) Write(b []byte) (int, error) {
	n, err := m.Conn.Write(b)
	return n, m.moved(n, err)
}

// moved counts what a call has moved. The last call of a run that may move n bytes too many still
// does: what is read is at most one buffer.
func (m *metered) moved(n int, err error) error {
	m.bytes.Add(int64(n))
	total := m.proxy.bytes.Add(int64(n))
	switch {
	case total > m.proxy.opts.Bytes:
		return m.cut(CutBytes, errBytes)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return m.cut(CutIdle, errIdle)
	case err == nil && n > 0:
		m.touch()
	}
	return err
}

func (m *metered) cut(verdict string, err error) error {
	m.mu.Lock()
	if m.attempt.Verdict == Allowed {
		m.attempt.Verdict = verdict
	}
	m.mu.Unlock()
	_ = m.SetDeadline(time.Unix(1, 0)) // the other direction, too
	return err
}

// CloseWrite says that nothing more is sent.
func (m *metered) CloseWrite() error { return closeWrite(m.Conn) }

func (m *metered) Close() error {
	m.close.Do(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.attempt.Bytes = m.bytes.Load()
		m.proxy.ledger.add(m.attempt)
	})
	return m.Conn.Close()
}

func closeWrite(conn net.Conn) error {
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return conn.Close()
}

// watched is a connection of the program. It remembers how its reading went.
type watched struct {
	net.Conn
	began, late atomic.Bool
}

func (c *watched) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.began.Store(true)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.late.Store(true)
	}
	return n, err
}

// CloseWrite says that nothing more is sent.
func (c *watched) CloseWrite() error { return closeWrite(c.Conn) }

// why there was no request.
func (c *watched) why() string {
	if c.late.Load() {
		return CutSlow
	}
	return BadRequest
}

// once is a listener of one connection.
type once struct {
	conn  net.Conn
	ended chan struct{}
	taken bool
}

func (l *once) Accept() (net.Conn, error) {
	if !l.taken {
		l.taken = true
		return l.conn, nil
	}
	<-l.ended
	return nil, io.EOF
}

func (l *once) Close() error   { return nil }
func (l *once) Addr() net.Addr { return l.conn.LocalAddr() }
