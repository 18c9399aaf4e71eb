package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
)

// upstream is one configured server with its connections, by scope key.
type upstream struct {
	Server
	redactor redactor
	manager  *Manager
	slots    chan struct{}

	mu    sync.Mutex
	conns map[string]*conn
}

// conn is the place of one connection: now and then there is a live one in it.
type conn struct {
	up  *upstream
	key string

	// Guarded by up.mu.
	session    *mcpSession
	dialing    chan struct{} // closed when the attempt under way has ended
	cancelDial func()        // ends that attempt
	err        error         // of the last attempt, or why the last connection ended
	failures   int
	retryAt    time.Time
	inFlight   int
	idleTimer  *time.Timer
}

var errClosed = errors.New("the tool servers are being shut down")

func (u *upstream) scopeKey(tenant, session string) string {
	switch u.Scope {
	case PerTenant:
		return tenant + "\x00"
	case PerSession:
		return tenant + "\x00" + session
	case Shared:
	}
	return ""
}

// connection returns a live connection, making one when there is none. The caller releases it.
func (u *upstream) connection(ctx context.Context, tenant, session string) (*conn, *mcpSession, error) {
	key := u.scopeKey(tenant, session)
	u.mu.Lock()
	c := u.conns[key]
	if c == nil {
		c = &conn{up: u, key: key}
		u.conns[key] = c
	}
	c.inFlight++
	if c.idleTimer != nil {
		c.idleTimer.Stop()
	}
	u.mu.Unlock()
	s, err := c.connect(ctx)
	if err != nil {
		c.release()
		return nil, nil, err
	}
	return c, s, nil
}

// wait returns the live connection, after it has dialled or has waited for who does.
func (c *conn) connect(ctx context.Context) (*mcpSession, error) {
	for {
		c.up.mu.Lock()
		if c.session != nil {
			s := c.session
			c.up.mu.Unlock()
			return s, nil
		}
		if pause := time.Until(c.retryAt); pause > 0 && c.dialing == nil {
			err := c.err
			c.up.mu.Unlock()
			if err := c.waitForRetry(ctx, pause, err); err != nil {
				return nil, err
			}
			continue
		}
		attempt := c.dialing
		mine := attempt == nil
		if mine {
			attempt = make(chan struct{})
			c.dialing = attempt
			// The attempt outlives a caller who gives up: others wait for it.
			base, abandon := context.WithCancel(context.WithoutCancel(ctx))
			c.cancelDial = abandon
			if !c.up.manager.start(func() {
				defer abandon()
				c.dial(base, attempt)
			}) {
				abandon()
				c.dialing, c.cancelDial = nil, nil
				c.up.mu.Unlock()
				return nil, c.down(errClosed)
			}
		}
		c.up.mu.Unlock()
		select {
		case <-attempt:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		c.up.mu.Lock()
		s, err := c.session, c.err
		c.up.mu.Unlock()
		if s != nil {
			return s, nil
		}
		if err != nil {
			return nil, c.down(err)
		}
	}
}

// patience is how long a call waits for the next attempt rather than fail at once.
const maxRetryWait = time.Second

func (c *conn) waitForRetry(ctx context.Context, d time.Duration, last error) error {
	if d > maxRetryWait {
		return c.down(fmt.Errorf("not reachable, next attempt in %s: %w", d.Round(time.Second), last))
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *conn) down(err error) error {
	return &tools.UpstreamError{Server: c.up.Name, Reason: tools.Down, Err: err}
}

// dial makes one attempt, and then watches over what it has made until that ends.
func (c *conn) dial(ctx context.Context, attempt chan struct{}) {
	log := c.up.manager.log.With("server", c.up.Name)
	s, err := c.up.open(ctx, log)
	err = c.up.redactor.redactError(err)
	c.up.mu.Lock()
	c.session, c.err, c.dialing, c.cancelDial = s, err, nil, nil
	if err != nil {
		c.scheduleRetry()
	}
	gone := c.up.conns[c.key] != c // closed meanwhile
	c.up.mu.Unlock()
	close(attempt)
	if err != nil {
		log.WarnContext(ctx, "tool server not reached", "error", err)
		return
	}
	log.InfoContext(ctx, "tool server connected", "version", s.about.Version)
	if gone {
		s.close()
	}
	ended := c.up.redactor.redactError(s.client.Wait())
	s.close()
	c.up.mu.Lock()
	if c.session == s {
		c.session = nil
		c.err = ended
		if !s.used.Load() {
			c.scheduleRetry() // it came up and died before it was of use
		} else {
			c.retryAt = time.Time{}
		}
	}
	c.up.mu.Unlock()
	log.InfoContext(ctx, "tool server disconnected", "reason", s.endReason(ended))
}

// fail sets the time of the next attempt. up.mu is held.
func (c *conn) scheduleRetry() {
	pause := c.up.manager.backoff.Min << min(c.failures, 20)
	if pause > c.up.manager.backoff.Max || pause <= 0 {
		pause = c.up.manager.backoff.Max
	}
	c.failures++
	c.retryAt = time.Now().Add(pause)
	if c.err == nil {
		c.err = errors.New("the connection ended at once")
	}
}

// drop takes a connection out of use; the next call makes a new one.
func (c *conn) drop(s *mcpSession) {
	c.up.mu.Lock()
	if c.session == s {
		c.session = nil
	}
	c.up.mu.Unlock()
	if !c.up.manager.start(s.close) { // a process that hangs does not hold up the caller
		s.close()
	}
}

func (c *conn) markUsed(s *mcpSession) {
	if s.used.Swap(true) {
		return
	}
	c.up.mu.Lock()
	c.failures, c.err = 0, nil
	c.up.mu.Unlock()
}

// release says that a call no longer needs the connection.
func (c *conn) release() {
	c.up.mu.Lock()
	defer c.up.mu.Unlock()
	c.inFlight--
	if c.inFlight > 0 || c.up.Scope == Shared || c.up.conns[c.key] != c {
		return
	}
	if c.idleTimer == nil {
		c.idleTimer = time.AfterFunc(c.up.IdleTimeout, c.closeIdle)
	} else {
		c.idleTimer.Reset(c.up.IdleTimeout)
	}
}

func (c *conn) closeIdle() {
	c.up.mu.Lock()
	if c.inFlight > 0 || c.up.conns[c.key] != c {
		c.up.mu.Unlock()
		return
	}
	delete(c.up.conns, c.key)
	s := c.session
	c.up.mu.Unlock()
	if s != nil {
		s.close()
	}
}

func (u *upstream) forget(tenant, session string) {
	if u.Scope == Shared {
		return
	}
	var out []*mcpSession
	u.mu.Lock()
	for key, c := range u.conns {
		if key == tenant+"\x00"+session || (session == "" && strings.HasPrefix(key, tenant+"\x00")) {
			delete(u.conns, key)
			out = c.detach(out)
		}
	}
	u.mu.Unlock()
	for _, s := range out {
		s.close()
	}
}

// leave gives up what the conn is about to do, and adds to out what has to be closed. up.mu is held.
func (c *conn) detach(out []*mcpSession) []*mcpSession {
	if c.cancelDial != nil {
		c.cancelDial()
	}
	if c.idleTimer != nil {
		c.idleTimer.Stop()
	}
	if c.session != nil {
		out = append(out, c.session)
	}
	return out
}

func (u *upstream) closeAll() {
	u.mu.Lock()
	var out []*mcpSession
	for _, c := range u.conns {
		out = c.detach(out)
	}
	clear(u.conns)
	u.mu.Unlock()
	for _, s := range out {
		s.close()
	}
}

func (u *upstream) health() Health {
	u.mu.Lock()
	defer u.mu.Unlock()
	h := Health{Server: u.Name, State: "idle"}
	for _, c := range u.conns {
		h.InFlight += c.inFlight
		if c.session != nil {
			h.Connections++
			h.Version = c.session.about.Version
		}
		if c.failures >= h.Failures && c.failures > 0 {
			h.Failures, h.RetryAt = c.failures, c.retryAt
			if c.err != nil {
				h.LastError = text.Printable(c.err.Error())
			}
		}
	}
	switch {
	case h.Connections > 0:
		h.State = "up"
	case h.Failures > 0:
		h.State = "down"
	}
	return h
}
