package jobs

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// leases are the leases of one worker.
type leases struct {
	c       *Client
	worker  string
	ackWait time.Duration
	log     *slog.Logger

	// unfenced makes a worker continue and complete its tasks whatever their records say. Only tests set it,
	// to prove that they detect two runs at once.
	unfenced bool

	mu   sync.Mutex
	held map[string]*lease // by tenant.task
}

// lease extends the right to a run by heartbeats, and ends the run's context when the lease is lost. It does
// not rely on the server for that: a worker that was stopped or cut off finds that its last confirmed heartbeat
// is too old, and ends the run before the server delivers the task to another worker.
type lease struct {
	leases *leases
	m      *message
	id     string
	run    int
	cancel context.CancelCauseFunc
	check  chan struct{}   // a request to read the record now
	done   context.Context //nolint:containedctx // the life of the lease, not of a call
	stop   context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	last time.Time // when the latest confirmed heartbeat was sent
}

// start starts the heartbeats of a run that was just claimed. cancel ends the run's context.
func (ls *leases) start(m *message, id string, run int, cancel context.CancelCauseFunc) *lease {
	l := &lease{
		leases: ls, m: m, id: id, run: run, cancel: cancel, last: m.requested,
		check: make(chan struct{}, 1),
	}
	l.done, l.stop = context.WithCancel(context.Background())
	ls.mu.Lock()
	ls.held[l.key()] = l
	ls.mu.Unlock()
	l.wg.Go(l.heartbeats)
	return l
}

func (l *lease) key() string { return l.m.tenant + "." + l.id }

// release ends the heartbeats.
func (l *lease) release() {
	l.leases.mu.Lock()
	if l.leases.held[l.key()] == l {
		delete(l.leases.held, l.key())
	}
	l.leases.mu.Unlock()
	l.stop()
	l.wg.Wait()
}

// holds reports whether this worker runs the task and has not lost its lease.
func (ls *leases) holds(tenant, id string) bool {
	ls.mu.Lock()
	l := ls.held[tenant+"."+id]
	ls.mu.Unlock()
	return l != nil && !l.overdue()
}

// recheck makes the lease of a task, given as tenant.id, read the record now.
func (ls *leases) recheck(key string) {
	ls.mu.Lock()
	l := ls.held[key]
	ls.mu.Unlock()
	if l != nil {
		select {
		case l.check <- struct{}{}:
		default:
		}
	}
}

// limit is how old the last heartbeat may become. It is less than the ack wait, so that the box is gone before
// the next run begins.
func (ls *leases) limit() time.Duration { return ls.ackWait * 9 / 10 }

func (l *lease) overdue() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.last) > l.leases.limit() && !l.leases.unfenced
}

// heartbeats extends the lease until it is released or lost. If it is lost, heartbeats ends the run.
func (l *lease) heartbeats() {
	every := l.leases.ackWait / 3
	next := time.NewTimer(every - time.Since(l.last))
	defer next.Stop()
	for {
		select {
		case <-l.done.Done():
			return
		case <-l.check:
		case <-next.C:
		}
		began := time.Now()
		if l.overdue() {
			l.cancel(ErrLeaseLost)
			return
		}
		err := l.heartbeat()
		switch {
		case err == nil:
			l.mu.Lock()
			l.last = began
			l.mu.Unlock()
			next.Reset(every - time.Since(began))
		case errors.Is(err, ErrLeaseLost):
			l.cancel(ErrLeaseLost)
			return
		case l.done.Err() != nil:
			return
		default:
			l.leases.log.WarnContext(l.done, "heartbeat failed", "task_id", l.id, "error", err)
			next.Reset(every / 10)
		}
	}
}

// heartbeat extends the lease and reads the record. It returns ErrLeaseLost if the record names another run, and
// cancels this one if that was requested. The record's arrival proves that the extension arrived, because both requests
// use one connection, in order.
func (l *lease) heartbeat() error {
	l.mu.Lock()
	left := l.leases.limit() - time.Since(l.last)
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(l.done, max(time.Millisecond, min(left, l.leases.ackWait/3)))
	defer cancel()
	if err := l.m.inProgress(l.leases.c); err != nil {
		return err
	}
	r, err := l.leases.c.load(ctx, l.m.tenant, l.id)
	lost := errors.Is(err, ErrUnknownTask) || err == nil && (r.Run != l.run || r.Worker != l.leases.worker)
	if lost && l.leases.c.clustered() { // perhaps the replica lags behind
		r, err = l.leases.c.loadLeader(ctx, l.m.tenant, l.id)
	}
	switch {
	case err != nil && !errors.Is(err, ErrUnknownTask):
		return err
	case l.leases.unfenced:
		return nil
	case err != nil, r.Run != l.run, r.Worker != l.leases.worker:
		return ErrLeaseLost
	case r.CancelRequested:
		l.cancel(ErrCancelled)
	}
	return nil
}
