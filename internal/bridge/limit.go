package bridge

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// tenantLimit bounds how many requests of one tenant are served at once, and how many per second.
type tenantLimit struct {
	rate    *rate.Limiter
	calls   chan struct{}
	streams chan struct{}
}

// streamsPerCall is how many idle streams a tenant may have for each concurrent call. A stream uses only memory.
const streamsPerCall = 8

func (b *Bridge) limit(tenant string) *tenantLimit {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.limits[tenant] // never removed, because the tenants are few
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

// acquire admits one request, which release ends. If a limit is reached, release is nil, and retryAfter is how long to
// wait before the next attempt.
func (l *tenantLimit) acquire(stream bool) (release func(), retryAfter time.Duration) {
	if r := l.rate.Reserve(); r.Delay() > 0 {
		r.Cancel()
		return nil, r.Delay()
	}
	slots := l.calls
	if stream {
		slots = l.streams
	}
	select {
	case slots <- struct{}{}:
		return sync.OnceFunc(func() { <-slots }), 0
	default:
		return nil, time.Second
	}
}

// sessions returns how many sessions a tenant's clients have.
func (b *Bridge) sessions(tenant string) (n int) {
	b.mu.Lock()
	var list []*principal
	for _, p := range b.principals {
		if p.tenant == tenant {
			list = append(list, p)
		}
	}
	b.mu.Unlock()
	for _, p := range list {
		n += p.sessions()
	}
	return n
}

// inFlight counts the calls in progress over HTTP.
type inFlight struct {
	mu       sync.Mutex
	n        int
	whenIdle chan struct{} // closed when n becomes 0; nil unless idle was called
}

func (f *inFlight) begin() (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.n--; f.n == 0 && f.whenIdle != nil {
			close(f.whenIdle)
			f.whenIdle = nil
		}
	})
}

// idle returns a channel that is closed when no call is in progress.
func (f *inFlight) idle() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	idle := f.whenIdle
	if idle == nil {
		idle = make(chan struct{})
		if f.n == 0 {
			close(idle)
		} else {
			f.whenIdle = idle
		}
	}
	return idle
}
