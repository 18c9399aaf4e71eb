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

// hostConn is a connection to a host. It counts bytes, and ends when the execution has used up its bytes or the
// connection has been idle for too long.
type hostConn struct {
	net.Conn
	proxy *Proxy
	bytes atomic.Int64
	close sync.Once

	mu      sync.Mutex
	attempt Attempt // guarded by mu
}

var (
	errBytes = errors.New("the execution has used up its bytes")
	errIdle  = errors.New("idle for too long")
)

// newHostConn wraps a new connection to a host. Its Close adds the attempt to the ledger.
func (p *Proxy) newHostConn(conn net.Conn, a Attempt) *hostConn {
	a.Verdict = Allowed
	c := &hostConn{Conn: conn, proxy: p, attempt: a}
	c.touch()
	return c
}

// touch restarts the idle limit of both directions.
func (c *hostConn) touch() { _ = c.SetDeadline(time.Now().Add(c.proxy.opts.Idle)) }

func (c *hostConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, c.count(n, err)
}

func (c *hostConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.count(n, err)
}

// count counts the n bytes of a Read or Write, and returns the error for its caller. It cuts the connection if the
// execution has used up its bytes or the call timed out. The call that exceeds the limit has already transferred its
// bytes, at most one buffer.
func (c *hostConn) count(n int, err error) error {
	c.bytes.Add(int64(n))
	total := c.proxy.bytes.Add(int64(n))
	switch {
	case total > c.proxy.opts.Bytes:
		return c.cut(CutBytes, errBytes)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return c.cut(CutIdle, errIdle)
	case err == nil && n > 0:
		c.touch()
	}
	return err
}

// cut ends both directions and returns err. The first cut of a connection determines its verdict.
func (c *hostConn) cut(verdict string, err error) error {
	c.mu.Lock()
	if c.attempt.Verdict == Allowed {
		c.attempt.Verdict = verdict
	}
	c.mu.Unlock()
	_ = c.SetDeadline(time.Unix(1, 0)) // ends both directions
	return err
}

// CloseWrite ends the sending direction.
func (c *hostConn) CloseWrite() error { return closeWrite(c.Conn) }

// Close closes the connection. The first Close adds the attempt to the ledger.
func (c *hostConn) Close() error {
	c.close.Do(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.attempt.Bytes = c.bytes.Load()
		c.proxy.ledger.add(c.attempt)
	})
	return c.Conn.Close()
}

// closeWrite ends the sending direction of conn. It closes a conn that cannot end one direction alone.
func closeWrite(conn net.Conn) error {
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return conn.Close()
}

// clientConn is a connection of the program.
type clientConn struct {
	net.Conn
	began    atomic.Bool // a byte was read
	timedOut atomic.Bool // a read timed out
}

func (c *clientConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.began.Store(true)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.timedOut.Store(true)
	}
	return n, err
}

// CloseWrite ends the sending direction.
func (c *clientConn) CloseWrite() error { return closeWrite(c.Conn) }

// verdict returns why the connection sent no request.
func (c *clientConn) verdict() string {
	if c.timedOut.Load() {
		return CutSlow
	}
	return BadRequest
}

// singleListener is a listener that accepts one connection. The next Accept waits until ended is closed, and fails.
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
