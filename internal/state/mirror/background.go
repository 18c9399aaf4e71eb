package mirror

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/state/format"
)

// background calls Update after commits, at most once at a time for each workspace.
type background struct {
	mirror *Mirror
	ctx    context.Context //nolint:containedctx // of the updates, until Close
	stop   context.CancelCauseFunc
	slots  chan struct{}

	mu     sync.Mutex
	closed bool
	active map[format.Ref]bool // workspaces that are being updated; true if there was a commit since the update began
	wg     sync.WaitGroup
}

const parallelUpdates = 2 // workspaces

var errClosed = errors.New("the mirror was closed")

// releaseTime bounds the release of the leases of updates that Close has interrupted.
const releaseTime = 200 * time.Millisecond

func newBackground(of *Mirror) *background {
	ctx, stop := context.WithCancelCause(context.Background())
	return &background{
		mirror: of, ctx: ctx, stop: stop, slots: make(chan struct{}, parallelUpdates), active: map[format.Ref]bool{},
	}
}

// notify starts an update of a workspace; it does not wait.
func (m *background) notify(ref format.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	if _, active := m.active[ref]; active {
		m.active[ref] = true
		return
	}
	m.active[ref] = false
	m.wg.Go(func() { m.run(ref) })
}

// run updates a workspace's mirror until there was no commit during an update.
func (m *background) run(ref format.Ref) {
	m.slots <- struct{}{}
	defer func() { <-m.slots }()
	for again := true; again; {
		out, err := m.mirror.Update(m.ctx, ref)
		log := m.mirror.repo.Options.Log
		if err != nil {
			log.WarnContext(m.ctx, "mirror update failed; the next commit, or codefleet workspace mirror, tries again",
				"workspace", ref.String(), "error", err)
		} else {
			log.DebugContext(m.ctx, "mirror updated", "workspace", ref.String(), "generation", out.Generation,
				"put", out.Put, "removed", out.Removed)
		}
		m.mu.Lock()
		if again = m.active[ref] && m.ctx.Err() == nil; again {
			m.active[ref] = false
		} else {
			delete(m.active, ref)
		}
		m.mu.Unlock()
	}
}

// Close stops the background updates. It waits until the mirror is up to date or ctx ends. A later commit or call of
// Update completes an unfinished update.
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
