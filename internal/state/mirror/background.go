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
	ctx    context.Context //nolint:containedctx // the context of updates, until Close
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

func newBackground(m *Mirror) *background {
	ctx, stop := context.WithCancelCause(context.Background())
	return &background{
		mirror: m, ctx: ctx, stop: stop, slots: make(chan struct{}, parallelUpdates), active: map[format.Ref]bool{},
	}
}

// notify starts an update of a workspace. It does not wait.
func (b *background) notify(ref format.Ref) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	if _, active := b.active[ref]; active {
		b.active[ref] = true
		return
	}
	b.active[ref] = false
	b.wg.Go(func() { b.run(ref) })
}

// run updates a workspace's mirror until there was no commit during an update.
func (b *background) run(ref format.Ref) {
	b.slots <- struct{}{}
	defer func() { <-b.slots }()
	for again := true; again; {
		out, err := b.mirror.Update(b.ctx, ref)
		log := b.mirror.repo.Options.Log
		if err != nil {
			log.WarnContext(b.ctx, "mirror update failed; the next commit, or codefleet workspace mirror, tries again",
				"workspace", ref.String(), "error", err)
		} else {
			log.DebugContext(b.ctx, "mirror updated", "workspace", ref.String(), "generation", out.Generation,
				"put", out.Put, "removed", out.Removed)
		}
		b.mu.Lock()
		if again = b.active[ref] && b.ctx.Err() == nil; again {
			b.active[ref] = false
		} else {
			delete(b.active, ref)
		}
		b.mu.Unlock()
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
