package repo

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// A small commit is carried: HEAD contains its pack and its manifest, with the bytes and the names that they have when
// they are stored later. So a commit is one request, and the rest of the format does not depend on whether a commit is
// carried. To fold a HEAD is to store what it carries, and then to swap it for a HEAD that carries nothing. Every
// object that a HEAD or a stored object refers to is stored, or carried by that HEAD:
//
//   - an object leaves HEAD only after it was stored;
//   - a stored manifest refers to stored objects only, so a commit that is not carried folds;
//   - another workspace refers to stored packs only, so a fork folds its source.
//
// The first version of a workspace is never carried: while there is a HEAD, there is a stored manifest, by which the
// loss of HEAD is noticed.

// HoldLimit returns the largest size of new content, in bytes, with which a commit that builds on a version may be
// carried. 0 means that it cannot be carried.
func (r *Repo) HoldLimit(on *Version) int {
	if r.Options.Carry == nil || on.Head.Manifest == nil || !r.Options.Carry() {
		return 0
	}
	return format.MaxCarriedCommit
}

// carried returns what the next HEAD carries if the commit is carried, and nil otherwise. at refers to the commit's
// manifest, whose stored bytes are data.
func (p *Proposal) carried(at *format.ManifestRef, data []byte) []format.Carried {
	if p.Held == nil || p.Full || p.Relocation != nil ||
		len(p.Held.Data)+len(data) > p.Repo.HoldLimit(p.On) {
		return nil
	}
	list := p.Repo.carrier.unstored(p.Ref, p.On.Head.Carried)
	if len(p.Held.Data) > 0 {
		list = append(list, format.Carried{Pack: p.Held.ID, Data: p.Held.Data})
	}
	list = append(list, format.Carried{Manifest: at.Name, Data: slices.Clip(data)})
	if !format.FitsHead(list) {
		return nil
	}
	return list
}

const foldParallel = 16 // objects that are stored at a time

// StoreCarried stores objects that a HEAD carries, so that the next HEAD need not carry them.
func (r *Repo) StoreCarried(ctx context.Context, ref format.Ref, carried []format.Carried) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(foldParallel)
	for _, c := range r.carrier.unstored(ref, carried) {
		g.Go(func() error {
			key := c.Key(ref)
			err := r.Bucket.Put(ctx, key, c.Data, objects.Sum(c.Data))
			if err == nil {
				r.carrier.markStored(ref, key)
			}
			return err
		})
	}
	return g.Wait()
}

// Fold stores what a workspace's HEAD carries, and then swaps HEAD for one that carries nothing. It may be interrupted
// at any time, and repeated.
func (r *Repo) Fold(ctx context.Context, ref format.Ref) error {
	return r.Options.Retry.Swap(ctx, func() (final bool, err error) {
		h, etag, err := r.ReadHead(ctx, ref, "")
		if err != nil || len(h.Carried) == 0 {
			return true, err
		}
		if err := r.StoreCarried(ctx, ref, h.Carried); err != nil {
			return true, err
		}
		h.Carried = nil
		_, err = r.SwapHead(ctx, ref, etag, &h)
		return false, err
	})
}

const (
	foldAfter      = 5 * time.Second // how long HEAD carries a commit before it is stored
	foldEvery      = time.Second
	foldMaxDelay   = time.Minute                    // longest delay after an error
	foldEarly      = format.MaxCarriedManifests / 2 // if HEAD carries at least so many objects, they are stored at once
	foldWorkspaces = 4                              // workspaces that are folded at a time
)

// folder folds the workspaces to which this process commits. It first stores what HEAD carries: the next commit then
// carries only what is newer. It swaps HEAD itself only if there is no such commit, so that it does not compete with
// commits.
type folder struct {
	repo *Repo
	wake chan struct{} // receives a value when a HEAD carries foldEarly objects

	mu  sync.Mutex
	due map[format.Ref]fold
}

// fold says when the folder acts on a workspace.
type fold struct {
	at     time.Time // when it stores what HEAD carries
	stored time.Time // when it last did so; zero if never

	delay time.Duration // after the last attempt, which failed; zero if it succeeded
	retry time.Time     // when the delay ends
}

// StartFolding folds the workspaces to which r commits, within ten seconds after the last commit, or, after errors,
// within foldMaxDelay after a fold is possible again. stop ends this, and folds the remaining workspaces until its ctx
// ends; those that it does not reach are folded by a later commit or by garbage collection. Call StartFolding before
// other methods.
func (r *Repo) StartFolding() (stop func(ctx context.Context)) {
	f := &folder{repo: r, wake: make(chan struct{}, 1), due: map[format.Ref]fold{}}
	r.folder = f
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.run(ctx)
	}()
	return func(last context.Context) {
		cancel()
		<-done
		f.foldAll(last)
	}
}

// note records what HEAD carries after a commit.
func (f *folder) note(ref format.Ref, carried []format.Carried) {
	if f == nil || len(carried) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	due, ok := f.due[ref]
	if !ok {
		due.at = time.Now().Add(foldAfter)
	}
	if len(carried) >= foldEarly && time.Until(due.at) > 0 {
		due.at = time.Now()
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
	f.due[ref] = due
}

func (f *folder) run(ctx context.Context) {
	tick := time.NewTicker(foldEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.step(ctx)
		case <-f.wake:
			f.step(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// step stores what is due. It folds a workspace if there were no commits for foldEvery after it stored what HEAD
// carries, or if that was evicted from memory. While HEADs must not carry commits, it folds all workspaces. After an
// error it waits, each time longer.
func (f *folder) step(ctx context.Context) {
	allowed := f.repo.Options.Carry != nil && f.repo.Options.Carry()
	var g errgroup.Group
	g.SetLimit(foldWorkspaces)
	f.mu.Lock()
	workspaces := maps.Clone(f.due)
	f.mu.Unlock()
	for ref, due := range workspaces {
		carried, stored, evicted := f.repo.carrier.status(ref)
		switch {
		case len(carried) == 0 && !evicted:
			f.forget(ref)
		case time.Until(due.retry) > 0:
		case evicted || !allowed || stored && !due.stored.IsZero() && time.Since(due.stored) >= foldEvery:
			g.Go(func() error { f.noteAttempt(ctx, ref, f.repo.Fold(ctx, ref)); return nil })
		case time.Until(due.at) <= 0:
			g.Go(func() error {
				err := f.repo.StoreCarried(ctx, ref, carried)
				f.noteAttempt(ctx, ref, err)
				if err == nil {
					f.noteStored(ref)
				}
				return nil
			})
		}
	}
	_ = g.Wait() // no function returns an error
}

// forget drops a workspace, unless its HEAD carries a commit that was made since step has asked: the carrier observes a
// HEAD before note adds it.
func (f *folder) forget(ref format.Ref) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if carried, _, evicted := f.repo.carrier.status(ref); len(carried) == 0 && !evicted {
		delete(f.due, ref)
	}
}

// noteStored records that what HEAD carries is stored. What later commits add is due after foldAfter.
func (f *folder) noteStored(ref format.Ref) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.due[ref] = fold{at: time.Now().Add(foldAfter), stored: time.Now()}
}

// noteAttempt records the outcome of an attempt, and logs an error.
func (f *folder) noteAttempt(ctx context.Context, ref format.Ref, err error) {
	f.report(ctx, ref, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	due := f.due[ref]
	if due.delay = min(max(2*due.delay, foldEvery), foldMaxDelay); err == nil {
		due.delay = 0
	}
	due.retry = time.Now().Add(due.delay)
	f.due[ref] = due
}

func (f *folder) report(ctx context.Context, ref format.Ref, err error) {
	if err != nil && ctx.Err() == nil {
		f.repo.Options.Log.WarnContext(ctx, "workspace not folded, will be retried", "workspace", ref.String(),
			"error", err)
	}
}

// foldAll folds all workspaces.
func (f *folder) foldAll(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(foldWorkspaces)
	f.mu.Lock()
	defer f.mu.Unlock()
	for ref := range f.due {
		g.Go(func() error { f.report(ctx, ref, f.repo.Fold(ctx, ref)); return nil })
	}
	_ = g.Wait() // no function returns an error
}
