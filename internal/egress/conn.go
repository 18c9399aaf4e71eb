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

// hostConn is a connection to a host. It counts bytes, and ends when the run has used up its bytes or the connection
// has been idle for too long.
type hostConn struct {
	net.Conn
	proxy *Proxy
	bytes atomic.Int64
	close sync.Once

	mu      sync.Mutex
	attempt Attempt // guarded by mu
}

var (
	errBytes = errors.New("the run has used up its bytes")
	errIdle  = errors.New("idle for too long")
)

func (p *Proxy) newHostConn(conn net.Conn, a Attempt) *hostConn {
	a.Verdict = Allowed
	m := &hostConn{Conn: conn, proxy: p, attempt: a}
	m.touch()
	return m
}

// touch restarts the idle limit of both directions.
func (m *hostConn) touch() { _ = m.SetDeadline(time.Now().Add(m.proxy.opts.Idle)) }

func (m *hostConn) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	return n, m.count(n, err)
}

func (m *hostConn) Write(b []byte) (int, error) {
	n, err := m.Conn.Write(b)
	return n, m.count(n, err)
}

// count counts the bytes of a Read or Write. The call that exceeds the limit still transfers its bytes, at most one
// buffer.
func (m *hostConn) count(n int, err error) error {
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

func (m *hostConn) cut(verdict string, err error) error {
	m.mu.Lock()
	if m.attempt.Verdict == Allowed {
		m.attempt.Verdict = verdict
	}
	m.mu.Unlock()
	_ = m.SetDeadline(time.Unix(1, 0)) // ends both directions
	return err
}

// CloseWrite ends the sending direction.
func (m *hostConn) CloseWrite() error { return closeWrite(m.Conn) }

func (m *hostConn) Close() error {
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

// clientConn is a connection of the program.
type clientConn struct {
	net.Conn
	began atomic.Bool // a byte was read
	late  atomic.Bool // a read timed out
}

func (c *clientConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.began.Store(true)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.late.Store(true)
	}
	return n, err
}

// CloseWrite ends the sending direction.
func (c *clientConn) CloseWrite() error { return closeWrite(c.Conn) }

// verdict returns why the connection sent no request.
func (c *clientConn) verdict() string {
	if c.late.Load() {
		return CutSlow
	}
	return BadRequest
}

// singleListener is a listener that accepts one connection.
type singleListener struct {
	conn     net.Conn
	ended    chan struct{}
	accepted bool
}

func (l *singleListener) Accept() (net.Conn, error) {
	if !l.accepted {
		l.accepted = true
		return l.conn, nil
	}
	<-l.ended
	return nil, io.EOF
}

func (l *singleListener) Close() error   { return nil }
func (l *singleListener) Addr() net.Addr { return l.conn.LocalAddr() }
