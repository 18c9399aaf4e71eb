package state

import (
	"context"
	"errors"
	"sync"
)

// mirrors brings mirrors up to date in the background, one call of Mirror for each workspace at a time. A
// nil one does nothing.
type mirrors struct {
	store *Store
	ctx   context.Context //nolint:containedctx // of the calls, until Close
	stop  context.CancelCauseFunc
	slots chan struct{}

	mu     sync.Mutex
	closed bool
	busy   map[Ref]bool // true: there is news since the call began
	wg     sync.WaitGroup
}

const mirrorsAtOnce = 2 // workspaces

var errClosed = errors.New("the store was closed")

func newMirrors(s *Store) *mirrors {
	ctx, stop := context.WithCancelCause(context.Background())
	return &mirrors{store: s, ctx: ctx, stop: stop, slots: make(chan struct{}, mirrorsAtOnce), busy: map[Ref]bool{}}
}

// note has the mirror of a workspace brought up to date; it does not wait.
func (m *mirrors) note(ref Ref) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	if _, busy := m.busy[ref]; busy {
		m.busy[ref] = true
		return
	}
	m.busy[ref] = false
	m.wg.Go(func() { m.follow(ref) })
}

// follow calls Mirror until there is no news.
func (m *mirrors) follow(ref Ref) {
	m.slots <- struct{}{}
	defer func() { <-m.slots }()
	for again := true; again; {
		out, err := m.store.Mirror(m.ctx, ref)
		log := m.store.opts.Log
		if err != nil {
			log.WarnContext(m.ctx, "the mirror stays behind until the next commit, or codefleet workspace mirror", "workspace", ref.String(), "error", err)
		} else {
			log.DebugContext(m.ctx, "mirrored", "workspace", ref.String(), "generation", out.Generation, "put", out.Put, "removed", out.Removed)
		}
		m.mu.Lock()
		if again = m.busy[ref] && m.ctx.Err() == nil; again {
			m.busy[ref] = false
		} else {
			delete(m.busy, ref)
		}
		m.mu.Unlock()
	}
}

// Close waits until mirrors are up to date, or ctx ends: what is left then, the next commit or call of
// Mirror does. The store can be used afterwards, and mirrors nothing by itself.
func (s *Store) Close(ctx context.Context) {
	m := s.mirrors
	if m == nil {
		return
	}
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	done := make(chan struct{})
	go func() { m.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		m.stop(errClosed)
		<-done
	}
	m.stop(nil)
}
