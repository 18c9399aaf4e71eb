package broker

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
)

// Budget limits the tool calls of one execution. A zero field means the default.
type Budget struct {
	Calls      int           // default 1,000
	Bytes      int64         // arguments and results of all calls, default 256 MiB
	Concurrent int           // calls at a time, default 16; further calls wait
	PerCall    time.Duration // default 5 min
	Total      time.Duration // time of all calls together, default 1 h
}

func (b Budget) withDefaults() Budget {
	return Budget{
		Calls:      cmp.Or(b.Calls, 1000),
		Bytes:      cmp.Or(b.Bytes, 256<<20),
		Concurrent: cmp.Or(b.Concurrent, 16),
		PerCall:    cmp.Or(b.PerCall, 5*time.Minute),
		Total:      cmp.Or(b.Total, time.Hour),
	}
}

var errCallTime = errors.New("the call timed out")

// spending counts what an execution has spent of its budget.
type spending struct {
	Budget
	mu    sync.Mutex
	calls int
	bytes int64
	spent time.Duration
}

// admit counts a call and returns an error if it exceeds the budget.
func (s *spending) admit(c Call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.bytes += int64(len(c.Args))
	switch {
	case s.calls > s.Calls:
		return fail(c, errcode.OverBudget, "the task may make at most %d tool calls", s.Calls)
	case s.bytes > s.Bytes:
		return fail(c, errcode.OverBudget, "the task may exchange at most %d bytes with tools", s.Bytes)
	case s.spent > s.Total:
		return fail(c, errcode.OverBudget, "the task may spend at most %s in tool calls", s.Total)
	}
	return nil
}

// add counts what a call used until it ended.
func (s *spending) add(d time.Duration, resultBytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spent += d
	s.bytes += int64(resultBytes)
}

// budget checks the budget before each call, lets a call wait while Concurrent others run, and ends a call after
// PerCall. A call that begins within the budget may exceed it, but only by its own result and time. Once a call exceeds
// the budget, so do all later ones, and exhausted is set.
func budget(b Budget, exhausted *atomic.Bool) layer {
	s := &spending{Budget: b}
	slots := make(chan struct{}, b.Concurrent)
	return func(ctx context.Context, c Call, next handler) (Result, error) {
		if err := s.admit(c); err != nil {
			exhausted.Store(true)
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
		failure, known := errors.AsType[*Error](err)
		s.add(time.Since(started), r.size()+failure.size())
		if err != nil && !known && ctx.Err() == nil && errors.Is(context.Cause(limited), errCallTime) {
			err = markSent(fail(c, errcode.Timeout, "the call took more than %s", b.PerCall))
		}
		return r, err
	}
}
