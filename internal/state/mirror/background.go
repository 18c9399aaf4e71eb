package mirror

import (
	"context"
	"errors"
	"sync"

	"github.com/codefleet/codefleet/internal/state/format"
)

// background brings mirrors up to date in the background, one call of Mirror for each workspace at a time. A
// nil one does nothing.
type background struct {
	mirror *Mirror
	ctx    context.Context //nolint:containedctx // of the calls, until Close
	stop   context.CancelCauseFunc
	slots  chan struct{}

	mu     sync.Mutex
	closed bool
	busy   map[format.Ref]bool // true: there is news since the call began
	wg     sync.WaitGroup
}

const parallelUpdates = 2 // workspaces

var errClosed = errors.New("the store was closed")

func newBackground(of *Mirror) *background {
	ctx, stop := context.WithCancelCause(context.Background())
	return &background{mirror: of, ctx: ctx, stop: stop, slots: make(chan struct{}, parallelUpdates), busy: map[format.Ref]bool{}}
}

// notify has the mirror of a workspace brought up to date; it does not wait.
func (m *background) notify(ref format.Ref) {
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
func (m *background) follow(ref format.Ref) {
	m.slots <- struct{}{}
	defer func() { <-m.slots }()
	for again := true; again; {
		out, err := m.mirror.Update(m.ctx, ref)
		log := m.mirror.repo.Options.Log
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
func (m *Mirror) Close(ctx context.Context) {
	if m == nil {
		return
	}
	b := m.background
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	done := make(chan struct{})
	go func() { b.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		b.stop(errClosed)
		<-done
	}
	b.stop(nil)
}
