package bridge

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// tenantLimit bounds what one tenant may ask for at once, and how often.
type tenantLimit struct {
	rate    *rate.Limiter
	calls   chan struct{}
	streams chan struct{}
}

// streamsPerCall is how many idle streams a tenant may hold for each call that it may make at once:
// a stream costs memory only.
const streamsPerCall = 8

func (b *Bridge) limit(tenant string) *tenantLimit {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.limits[tenant] // as many as there are tenants
	if l == nil {
		l = &tenantLimit{
			rate:    rate.NewLimiter(rate.Limit(b.o.Limits.Rate), 2*b.o.Limits.Rate),
			calls:   make(chan struct{}, b.o.Limits.Concurrent),
			streams: make(chan struct{}, streamsPerCall*b.o.Limits.Concurrent),
		}
		b.limits[tenant] = l
	}
	return l
}

// enter takes a place for one request, and returns what gives it back; or nil and how long it may
// take until there is one.
func (l *tenantLimit) enter(stream bool) (leave func(), wait time.Duration) {
	if r := l.rate.Reserve(); r.Delay() > 0 {
		r.Cancel()
		return nil, r.Delay()
	}
	places := l.calls
	if stream {
		places = l.streams
	}
	select {
	case places <- struct{}{}:
		return sync.OnceFunc(func() { <-places }), 0
	default:
		return nil, time.Second
	}
}

// calls counts calls under way over HTTP.
type calls struct {
	mu   sync.Mutex
	n    int
	last chan struct{} // closed when there are none, once somebody waits for that
}

func (c *calls) enter() (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.n--; c.n == 0 && c.last != nil {
			close(c.last)
			c.last = nil
		}
	})
}

// none is closed when no call is under way.
func (c *calls) none() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := c.last
	if done == nil {
		done = make(chan struct{})
		if c.n == 0 {
			close(done)
		} else {
			c.last = done
		}
	}
	return done
}
