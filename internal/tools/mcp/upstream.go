package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
)

// upstream is one configured server with its connections.
type upstream struct {
	Server
	redactor     redactor // for errors and logs
	descriptions redactor // for definitions, and for the server's description of itself
	manager      *Manager
	slots        chan struct{}

	announcements announcements

	mu      sync.Mutex
	conns   map[string]*conn // by scope key
	retired bool             // no longer configured: each connection is closed when its last call ends
}

// conn is a connection that is established, or re-established, when a call needs it.
type conn struct {
	up  *upstream
	key string

	// Guarded by up.mu.
	session    *mcpSession   // nil while not connected
	dialing    chan struct{} // closed when the current attempt ends; nil if there is none
	cancelDial func()        // cancels the current attempt
	err        error         // why the last attempt failed or the last connection ended
	failures   int
	retryAt    time.Time
	inFlight   int
	idleTimer  *time.Timer
	replacedAt time.Time // when dropReplaced dropped a session
}

var errClosed = errors.New("the tool servers are being shut down")

// scopeKey returns the key of the connection that a tenant's session uses.
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

// connection returns the established connection for the scope, and its session. The caller must release it.
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

// connect returns the session. Without one it starts an attempt, or waits for the current one.
func (c *conn) connect(ctx context.Context) (*mcpSession, error) {
	for {
		c.up.mu.Lock()
		if s := c.session; s != nil && !s.deaf() {
			c.up.mu.Unlock()
			return s, nil
		}
		if delay := time.Until(c.retryAt); delay > 0 && c.dialing == nil {
			err := c.err
			c.up.mu.Unlock()
			if err := c.waitForRetry(ctx, delay, err); err != nil {
				return nil, err
			}
			continue
		}
		attempt := c.dialing
		if attempt == nil {
			attempt = c.startDial(ctx)
		}
		c.up.mu.Unlock()
		if attempt == nil {
			return nil, c.down(errClosed)
		}
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

// startDial starts an attempt and returns a channel that is closed when the attempt ends, or nil if the
// manager is closed. The attempt does not end with ctx, because other calls may wait for it. The caller
// holds up.mu.
func (c *conn) startDial(ctx context.Context) chan struct{} {
	attempt := make(chan struct{})
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if !c.up.manager.start(func() {
		defer cancel()
		c.dial(base, attempt)
	}) {
		cancel()
		return nil
	}
	c.dialing, c.cancelDial = attempt, cancel
	return attempt
}

// maxRetryWait is how long a call waits for the next attempt. If the attempt is later, the call fails at once.
const maxRetryWait = time.Second

func (c *conn) waitForRetry(ctx context.Context, d time.Duration, last error) error {
	if d > maxRetryWait {
		return c.down(fmt.Errorf("not reachable, next attempt in %s: %w", d.Round(time.Second), last))
	}
	return clock.Sleep(ctx, d)
}

func (c *conn) down(err error) error {
	return &tools.UpstreamError{Server: c.up.Name, Reason: tools.Down, Err: err}
}

// dial makes one attempt. If it succeeds, dial waits until the session ends.
func (c *conn) dial(ctx context.Context, attempt chan struct{}) {
	log := c.up.manager.log.With("server", c.up.Name)
	s, err := c.up.open(ctx, log)
	err = c.up.redactor.redactError(err)
	c.up.mu.Lock()
	c.session, c.err, c.dialing, c.cancelDial = s, err, nil, nil
	if err != nil {
		c.scheduleRetry()
	}
	closed := c.up.conns[c.key] != c // the connection was closed during the attempt
	c.up.mu.Unlock()
	close(attempt)
	if err != nil {
		log.WarnContext(ctx, "connection to tool server failed", "error", err)
		return
	}
	log.InfoContext(ctx, "tool server connected", "version", s.about.Version)
	if closed {
		s.close()
	}
	ended := c.up.redactor.redactError(s.client.Wait())
	s.close()
	c.up.mu.Lock()
	if c.session == s {
		c.session = nil
		c.err = ended
		if !s.used.Load() {
			c.scheduleRetry() // it ended before it responded to a call
		} else {
			c.retryAt = time.Time{}
		}
	}
	c.up.mu.Unlock()
	log.InfoContext(ctx, "tool server disconnected", "reason", s.endReason(ended))
}

// scheduleRetry counts a failure and sets the time of the next attempt. The caller holds up.mu.
func (c *conn) scheduleRetry() {
	delay := c.up.manager.backoff.Min << min(c.failures, 20)
	if delay > c.up.manager.backoff.Max || delay <= 0 {
		delay = c.up.manager.backoff.Max
	}
	c.failures++
	c.retryAt = time.Now().Add(delay)
	if c.err == nil {
		c.err = errors.New("the connection ended at once")
	}
}

// drop closes the session; the next call opens a new one.
func (c *conn) drop(s *mcpSession) {
	c.up.mu.Lock()
	if c.session == s {
		c.session = nil
	}
	c.up.mu.Unlock()
	if !c.up.manager.start(s.close) { // in the background: a process may take long to exit
		s.close()
	}
}

// replacePause is the shortest time after which dropReplaced drops another session: the replaced file may be data that
// the server changes all the time.
const replacePause = time.Minute

// dropReplaced drops the session of a process whose program was replaced, and returns true, if no other call uses the
// connection, and the last such session was dropped long enough ago.
func (c *conn) dropReplaced(s *mcpSession) bool {
	c.up.mu.Lock()
	drop := c.inFlight == 1 && c.session == s && time.Since(c.replacedAt) >= replacePause
	if drop {
		c.session, c.replacedAt = nil, time.Now()
	}
	c.up.mu.Unlock()
	if drop {
		c.drop(s)
	}
	return drop
}

// markUsed records that the server responded to a call, which resets the failures.
func (c *conn) markUsed(s *mcpSession) {
	if s.used.Swap(true) {
		return
	}
	c.up.mu.Lock()
	c.failures, c.err = 0, nil
	c.up.mu.Unlock()
}

// release ends a call's use of the connection.
func (c *conn) release() {
	c.up.mu.Lock()
	defer c.up.mu.Unlock()
	c.inFlight--
	if c.inFlight > 0 || c.up.conns[c.key] != c {
		return
	}
	if c.up.retired {
		c.up.manager.start(c.closeIdle)
		return
	}
	if c.up.Scope == Shared {
		return
	}
	if c.idleTimer == nil {
		c.idleTimer = time.AfterFunc(c.up.Limits.IdleTimeout, c.closeIdle)
	} else {
		c.idleTimer.Reset(c.up.Limits.IdleTimeout)
	}
}

// closeIdle closes the connection unless a call uses it.
func (c *conn) closeIdle() {
	c.up.mu.Lock()
	if c.inFlight > 0 || c.up.conns[c.key] != c {
		c.up.mu.Unlock()
		return
	}
	delete(c.up.conns, c.key)
	if c.cancelDial != nil {
		c.cancelDial()
	}
	s := c.session
	c.up.mu.Unlock()
	if s != nil {
		s.close()
	}
}

// retire ends the announcements, and closes all connections without calls, and the others when their last call ends.
func (u *upstream) retire() {
	u.announcements.end()
	u.mu.Lock()
	u.retired = true
	idle := slices.Collect(maps.Values(u.conns))
	u.mu.Unlock()
	for _, c := range idle {
		u.manager.start(c.closeIdle) // it does nothing while there are calls
	}
}

// unused reports whether the upstream has no connection.
func (u *upstream) unused() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.conns) == 0
}

// closeAll ends the announcements, and closes all connections, including those that calls use.
func (u *upstream) closeAll() {
	u.announcements.end()
	u.mu.Lock()
	var sessions []*mcpSession
	for _, c := range u.conns {
		if c.cancelDial != nil {
			c.cancelDial()
		}
		if c.idleTimer != nil {
			c.idleTimer.Stop()
		}
		if c.session != nil {
			sessions = append(sessions, c.session)
		}
	}
	clear(u.conns)
	u.mu.Unlock()
	for _, s := range sessions {
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
