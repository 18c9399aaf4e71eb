package jobs

import (
	"context"
	"errors"
	"sync"
	"time"
)

// lease keeps a run alive in the eyes of the server, and the run's context alive only as long as the
// run is this worker's. It fences itself: a worker that was stopped or cut off finds its last proven
// heartbeat too old and gives up, before the server hands the task to another.
type lease struct {
	w      *Worker
	r      *run
	number int // of the run
	cancel context.CancelCauseFunc
	poke   chan struct{}   // look at the record now
	done   context.Context //nolint:containedctx // the life of the lease, not of a call
	stop   context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	last time.Time // when the latest heartbeat that is known to have arrived was sent
}

// hold starts the lease of a run that was just claimed.
func (w *Worker) hold(r *run, cancel context.CancelCauseFunc) *lease {
	l := &lease{
		w: w, r: r, number: r.rec.Run, cancel: cancel, last: r.d.asked,
		poke: make(chan struct{}, 1),
	}
	l.done, l.stop = context.WithCancel(context.Background())
	w.mu.Lock()
	w.leases[r.tenant+"."+r.id] = l
	w.mu.Unlock()
	l.wg.Go(l.keep)
	return l
}

// release ends the heartbeats.
func (l *lease) release() {
	l.w.mu.Lock()
	if key := l.r.tenant + "." + l.r.id; l.w.leases[key] == l {
		delete(l.w.leases, key)
	}
	l.w.mu.Unlock()
	l.stop()
	l.wg.Wait()
}

// holds reports whether this worker runs the task and has not lost it.
func (w *Worker) holds(tenant, id string) bool {
	w.mu.Lock()
	l := w.leases[tenant+"."+id]
	w.mu.Unlock()
	return l != nil && !l.overdue()
}

// recheck makes the lease of a task, given as tenant.id, look at the record now.
func (w *Worker) recheck(key string) {
	w.mu.Lock()
	l := w.leases[key]
	w.mu.Unlock()
	if l != nil {
		select {
		case l.poke <- struct{}{}:
		default:
		}
	}
}

// fence is how old the last heartbeat may become: less than the ack wait, to have the sandbox gone
// when the next worker starts.
func (l *lease) fence() time.Duration { return l.w.opts.AckWait * 9 / 10 }

func (l *lease) overdue() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.last) > l.fence() && !l.w.unfenced
}

func (l *lease) keep() {
	every := l.w.opts.AckWait / 3
	next := time.NewTimer(every - time.Since(l.last))
	defer next.Stop()
	for {
		select {
		case <-l.done.Done():
			return
		case <-l.poke:
		case <-next.C:
		}
		began := time.Now()
		if l.overdue() {
			l.cancel(ErrLeaseLost)
			return
		}
		err := l.beat()
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
			l.w.log.WarnContext(l.done, "heartbeat", "task", l.r.id, "error", err)
			next.Reset(every / 10)
		}
	}
}

// beat extends the lease and reads the record, which proves that the extension arrived: both go
// over one connection, in order.
func (l *lease) beat() error {
	l.mu.Lock()
	left := l.fence() - time.Since(l.last)
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(l.done, max(time.Millisecond, min(left, l.w.opts.AckWait/3)))
	defer cancel()
	if err := l.r.d.inProgress(l.w.c); err != nil {
		return err
	}
	rec, err := l.w.c.load(ctx, l.r.tenant, l.r.id)
	if err == nil && (rec.Run != l.number || rec.Worker != l.w.opts.Name) && l.w.c.opts.Storage.Replicas > 1 {
		rec, err = l.w.c.loadLeader(ctx, l.r.tenant, l.r.id)
	}
	switch {
	case err != nil && !errors.Is(err, ErrUnknownTask):
		return err
	case l.w.unfenced:
		return nil
	case err != nil, rec.Run != l.number, rec.Worker != l.w.opts.Name:
		return ErrLeaseLost
	case rec.CancelRequested:
		l.cancel(ErrCancelled)
	}
	return nil
}
