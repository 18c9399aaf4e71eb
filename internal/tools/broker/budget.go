package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
)

// Budget limits the tool calls of one execution.
type Budget struct {
	Calls      int           // 0: 1,000
	Bytes      int64         // of all arguments and results; 0: 256 MiB
	Concurrent int           // calls at a time, further ones wait; 0: 16
	PerCall    time.Duration // 0: 5 min
	Total      time.Duration // of all calls; 0: 1 h
}

func (b Budget) withDefaults() Budget {
	if b.Calls == 0 {
		b.Calls = 1000
	}
	if b.Bytes == 0 {
		b.Bytes = 256 << 20
	}
	if b.Concurrent == 0 {
		b.Concurrent = 16
	}
	if b.PerCall == 0 {
		b.PerCall = 5 * time.Minute
	}
	if b.Total == 0 {
		b.Total = time.Hour
	}
	return b
}

var errCallTime = errors.New("the call timed out")

// meter counts what an execution has used.
type usage struct {
	Budget
	mu    sync.Mutex
	calls int
	bytes int64
	spent time.Duration
}

func (m *usage) admit(c Call) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	m.bytes += int64(len(c.Args))
	switch {
	case m.calls > m.Calls:
		return fail(c, errcode.OverBudget, "the task may make %d tool calls", m.Calls)
	case m.bytes > m.Bytes:
		return fail(c, errcode.OverBudget, "the task may exchange %d bytes with tools", m.Bytes)
	case m.spent > m.Total:
		return fail(c, errcode.OverBudget, "the task may spend %s in tool calls", m.Total)
	}
	return nil
}

func (m *usage) used(d time.Duration, answer int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spent += d
	m.bytes += int64(answer)
}

// budget checks the budget before each call. A call that begins within the budget may exceed it, by at
// most its size and time.
func budget(b Budget) layer {
	m := &usage{Budget: b}
	slots := make(chan struct{}, b.Concurrent)
	return func(next handler) handler {
		return func(ctx context.Context, c Call) (Result, error) {
			if err := m.admit(c); err != nil {
				return Result{}, err
			}
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			case <-ctx.Done():
				return Result{}, context.Cause(ctx)
			}
			limited, cancel := context.WithTimeoutCause(ctx, b.PerCall, errCallTime)
			defer cancel()
			started := time.Now()
			r, err := next(limited, c)
			m.used(time.Since(started), len(r.Value))
			_, known := errors.AsType[*Error](err)
			if err != nil && !known && ctx.Err() == nil && errors.Is(context.Cause(limited), errCallTime) {
				late := fail(c, errcode.Timeout, "the call took more than %s", b.PerCall)
				late.Sent = true
				err = late
			}
			return r, err
		}
	}
}
