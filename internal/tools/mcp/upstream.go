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
	veil    veil
	manager *Manager
	slots   chan struct{}

	mu    sync.Mutex
	conns map[string]*conn
}

// conn is the place of one connection: now and then there is a live one in it.
type conn struct {
	up  *upstream
	key string

	// Guarded by up.mu.
	live     *live
	dialing  chan struct{} // closed when the attempt under way has ended
	abandon  func()        // ends that attempt
	err      error         // of the last attempt, or why the last connection ended
	failures int
	retryAt  time.Time
	inFlight int
	idle     *time.Timer
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
func (u *upstream) connection(ctx context.Context, tenant, session string) (*conn, *live, error) {
	key := u.scopeKey(tenant, session)
	u.mu.Lock()
	c := u.conns[key]
	if c == nil {
		c = &conn{up: u, key: key}
		u.conns[key] = c
	}
	c.inFlight++
	if c.idle != nil {
		c.idle.Stop()
	}
	u.mu.Unlock()
	l, err := c.wait(ctx)
	if err != nil {
		c.release()
		return nil, nil, err
	}
	return c, l, nil
}

// wait returns the live connection, after it has dialled or has waited for who does.
func (c *conn) wait(ctx context.Context) (*live, error) {
	for {
		c.up.mu.Lock()
		if c.live != nil {
			l := c.live
			c.up.mu.Unlock()
			return l, nil
		}
		if pause := time.Until(c.retryAt); pause > 0 && c.dialing == nil {
			err := c.err
			c.up.mu.Unlock()
			if err := c.pause(ctx, pause, err); err != nil {
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
			c.abandon = abandon
			if !c.up.manager.begin(func() {
				defer abandon()
				c.dial(base, attempt)
			}) {
				abandon()
				c.dialing, c.abandon = nil, nil
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
		l, err := c.live, c.err
		c.up.mu.Unlock()
		if l != nil {
			return l, nil
		}
		if err != nil {
			return nil, c.down(err)
		}
	}
}

// patience is how long a call waits for the next attempt rather than fail at once.
const patience = time.Second

func (c *conn) pause(ctx context.Context, d time.Duration, last error) error {
	if d > patience {
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
	l, err := c.up.open(ctx, log)
	err = c.up.veil.hidden(err)
	c.up.mu.Lock()
	c.live, c.err, c.dialing, c.abandon = l, err, nil, nil
	if err != nil {
		c.fail()
	}
	gone := c.up.conns[c.key] != c // closed meanwhile
	c.up.mu.Unlock()
	close(attempt)
	if err != nil {
		log.WarnContext(ctx, "tool server not reached", "error", err)
		return
	}
	log.InfoContext(ctx, "tool server connected", "version", l.about.Version)
	if gone {
		l.close()
	}
	ended := c.up.veil.hidden(l.session.Wait())
	l.close()
	c.up.mu.Lock()
	if c.live == l {
		c.live = nil
		c.err = ended
		if !l.used.Load() {
			c.fail() // it came up and died before it was of use
		} else {
			c.retryAt = time.Time{}
		}
	}
	c.up.mu.Unlock()
	log.InfoContext(ctx, "tool server disconnected", "reason", l.reason(ended))
}

// fail sets the time of the next attempt. up.mu is held.
func (c *conn) fail() {
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
func (c *conn) drop(l *live) {
	c.up.mu.Lock()
	if c.live == l {
		c.live = nil
	}
	c.up.mu.Unlock()
	if !c.up.manager.begin(l.close) { // a process that hangs does not hold up the caller
		l.close()
	}
}

func (c *conn) answered(l *live) {
	if l.used.Swap(true) {
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
	if c.idle == nil {
		c.idle = time.AfterFunc(c.up.IdleTimeout, c.closeIdle)
	} else {
		c.idle.Reset(c.up.IdleTimeout)
	}
}

func (c *conn) closeIdle() {
	c.up.mu.Lock()
	if c.inFlight > 0 || c.up.conns[c.key] != c {
		c.up.mu.Unlock()
		return
	}
	delete(c.up.conns, c.key)
	l := c.live
	c.up.mu.Unlock()
	if l != nil {
		l.close()
	}
}

func (u *upstream) forget(tenant, session string) {
	if u.Scope == Shared {
		return
	}
	var out []*live
	u.mu.Lock()
	for key, c := range u.conns {
		if key == tenant+"\x00"+session || (session == "" && strings.HasPrefix(key, tenant+"\x00")) {
			delete(u.conns, key)
			out = c.leave(out)
		}
	}
	u.mu.Unlock()
	for _, l := range out {
		l.close()
	}
}

// leave gives up what the conn is about to do, and adds to out what has to be closed. up.mu is held.
func (c *conn) leave(out []*live) []*live {
	if c.abandon != nil {
		c.abandon()
	}
	if c.idle != nil {
		c.idle.Stop()
	}
	if c.live != nil {
		out = append(out, c.live)
	}
	return out
}

func (u *upstream) closeAll() {
	u.mu.Lock()
	var out []*live
	for _, c := range u.conns {
		out = c.leave(out)
	}
	clear(u.conns)
	u.mu.Unlock()
	for _, l := range out {
		l.close()
	}
}

func (u *upstream) health() Health {
	u.mu.Lock()
	defer u.mu.Unlock()
	h := Health{Server: u.Name, State: "idle"}
	for _, c := range u.conns {
		h.InFlight += c.inFlight
		if c.live != nil {
			h.Connections++
			h.Version = c.live.about.Version
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
