package repo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/content"
	"github.com/codefleet/codefleet/internal/state/format"
)

// Proposal is a commit to make.
type Proposal struct {
	Repo    *Repo
	Ref     format.Ref
	Options CommitOptions
	Base    *Version        // version to which Changes were made
	On      *Version        // version that the commit builds on
	Changes []format.Change // from Base
	Result  []format.Blob   // Options.Result, if that is large
	Views   []string        // paths of Changes that never conflict: the last commit wins
	Stored  func() error    // waits until all content is stored; nil if it already is
	Held    *content.Held   // all new content, which Stored would upload; nil if it is being uploaded

	Relocation *Relocation // relocation of content of On; nil lets Run decide
	Full       bool        // write a full manifest
	CheckQuota bool        // the caller has not checked the quota
	Began      time.Time   // when the first upload or reference to old content began; zero means in Run
	// Accepts returns an error if the commit must not be made on a version, which another commit made. Nil accepts all.
	Accepts func(*Version) error

	Merged bool // set by Rebase and Run if changes of others were merged

	id        string
	since     int64           // generation of On when Run began; the commit that Run makes has a higher one
	floor     int64           // the tenant's floor, if On had no HEAD
	changes   []format.Change // to make to On
	conflicts []string
	set       *format.EntrySet // entry set of the version that build returned last
}

// Run commits the proposal. If another commit comes first, Run merges with it and tries again. If the response to a
// swap is lost, Run finds out whether the swap was applied; if it was, and others have committed since, the returned
// version is empty and Merged is set. If another run of the task has committed already, Run returns that commit and a
// nil version.
func (p *Proposal) Run(ctx context.Context) (Commit, *Version, error) {
	p.id, p.since = format.NewCommitID(), p.On.Head.Generation
	if p.Began.IsZero() {
		p.Began = time.Now()
	}
	if !p.Merged {
		p.changes = p.Changes
	}
	if p.Relocation == nil {
		p.Relocation = p.Repo.compact(ctx, p.Ref.Tenant, p.On.Set)
	}
	defer func() { _ = p.Relocation.Stored() }()
	for backoff := p.Repo.Options.Retry.NewBackoff(); ; {
		if err := p.prepare(ctx, backoff); err != nil {
			return Commit{}, nil, err
		}
		next, man, data, err := p.build()
		if err != nil {
			return Commit{}, nil, err
		}
		if next.Carried = p.carried(next.Manifest, data); next.Carried == nil {
			if err := p.put(ctx, next.Manifest, data); err != nil {
				return Commit{}, nil, err
			}
		}
		if err := p.checkAge(); err != nil {
			return Commit{}, nil, err
		}
		etag, err := p.Repo.SwapHead(ctx, p.Ref, p.On.ETag, next)
		if err == nil {
			return p.committed(ctx, next, etag, man, data)
		}
		out, v, confirmErr := p.confirm(ctx, man, data, err)
		if confirmErr != nil {
			return Commit{}, nil, confirmErr
		}
		if out != nil {
			return *out, v, nil
		}
		if err := backoff.Wait(ctx, err); err != nil {
			return Commit{}, nil, err
		}
	}
}

// checkAge returns an error if garbage collection may have removed what the commit refers to, because the process or
// its machine was suspended for long. The monotonic clock stops then, so checkAge compares wall times.
func (p *Proposal) checkAge() error {
	began := p.Began
	if r := p.Relocation; r != nil && !r.Began.IsZero() && r.Began.Before(began) {
		began = r.Began
	}
	if age := time.Since(began.Round(0)); age > DedupAge {
		return fmt.Errorf("%w: the commit began %s ago, and what it has stored may have been removed since: "+
			"commit again", objects.ErrTemporary, age.Round(time.Minute))
	}
	return nil
}

// prepare returns ErrFenced if the task is fenced, and waits while HEAD is being purged. It makes a workspace without
// HEAD begin above its tenant's floor (see format.Floor).
func (p *Proposal) prepare(ctx context.Context, backoff *objects.Backoff) error {
	for {
		if p.On.Head.Fences(p.Options.TaskID, p.Options.Attempt) {
			return ErrFenced
		}
		if !p.On.Head.Purging() {
			break
		}
		purging := fmt.Errorf("swap %s: the deleted workspace is being purged", p.Ref.HeadKey())
		if err := backoff.Wait(ctx, purging); err != nil {
			return err
		}
		h, etag, err := p.Repo.ReadHead(ctx, p.Ref, "")
		if err != nil {
			return err
		}
		if err := p.follow(ctx, h, etag); err != nil {
			return err
		}
	}
	if p.On.ETag != "" || p.On.Head.Generation > 0 {
		return nil
	}
	floor, err := p.Repo.FloorWithoutHead(ctx, p.Ref)
	if err != nil || floor == 0 {
		return err
	}
	p.floor = floor
	on := *p.On
	on.Head.Generation, on.Head.Born = floor, floor+1
	p.On = &on
	return nil
}

// follow rebases onto another HEAD. It returns ErrDeleted if Base was deleted.
func (p *Proposal) follow(ctx context.Context, h format.Head, etag string) (err error) {
	if p.baseDeleted(h, etag) {
		return ErrDeleted
	}
	if p.On, err = p.Repo.VersionOf(ctx, p.Ref, h, etag); err != nil {
		return err
	}
	if p.Accepts != nil {
		if err := p.Accepts(p.On); err != nil {
			return err
		}
	}
	return p.Rebase(ctx)
}

// baseDeleted reports whether the workspace was deleted after Base. A Base that is itself a tombstone stays valid
// during and after its purge, because the purged workspace is empty too.
func (p *Proposal) baseDeleted(h format.Head, etag string) bool {
	base := &p.Base.Head
	if p.Base.ETag == "" && h.NeverLived() {
		return false
	}
	if base.Deleted && (etag == "" || h.Deleted && h.Generation == base.Generation) {
		return false
	}
	if base.Generation == 0 { // there was no HEAD: the first commit is above the floor
		return h.Deleted || h.Born > p.floor+1
	}
	return h.Deleted || h.Born > base.Generation+1 || h.Generation < base.Generation
}

// put stores the manifest and what the previous HEAD carries, and waits until all content is stored. Uploads may
// overlap, because the manifest has no effect until a HEAD refers to it.
func (p *Proposal) put(ctx context.Context, at *format.ManifestRef, data []byte) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.Repo.StoreCarried(ctx, p.Ref, p.On.Head.Carried) })
	g.Go(p.waitStored)
	g.Go(p.Relocation.Stored)
	g.Go(func() error { return p.Repo.Bucket.Put(ctx, p.Ref.ManifestKey(at.Name), data, at.Digest) })
	return g.Wait()
}

// waitStored waits until all content is stored. From then on, no HEAD can carry it.
func (p *Proposal) waitStored() error {
	p.Held = nil
	if p.Stored == nil {
		return nil
	}
	return p.Stored()
}

// committed completes a commit whose swap was applied.
func (p *Proposal) committed(
	ctx context.Context, h *format.Head, etag string, man *format.Manifest, data []byte,
) (Commit, *Version, error) {
	if p.Held != nil && slices.ContainsFunc(h.Carried, func(c format.Carried) bool { return c.Pack == p.Held.ID }) {
		p.Held.MarkCarried()
	}
	p.Repo.Cache(h.Manifest.Digest, data)
	p.Repo.Options.Log.InfoContext(ctx, "workspace committed", "workspace", p.Ref.String(), "generation", h.Generation,
		"task_id", p.Options.TaskID, "changed", len(p.Changes), "conflicts", len(p.conflicts), "merged", p.Merged)
	p.Repo.folder.note(p.Ref, h.Carried)
	p.Repo.Notify(p.Ref)
	v := &Version{
		Head: *h, ETag: etag, Manifest: man, Set: p.set, ReadAt: time.Now(),
	}
	c := CommitOf(man)
	c.Changed, c.Result = format.ChangedPaths(p.changes), p.Options.Result
	return c, v, nil
}

// confirm reads HEAD back to find out whether a swap that returned the error cause was applied. It returns neither a
// commit nor an error if Run should try again.
func (p *Proposal) confirm(
	ctx context.Context, man *format.Manifest, data []byte, cause error,
) (*Commit, *Version, error) {
	if !errors.Is(cause, objects.ErrConflict) && !objects.Temporary(ctx, cause) {
		return nil, nil, cause
	}
	h, etag, err := p.Repo.ReadHead(ctx, p.Ref, "")
	if err != nil {
		return nil, nil, errors.Join(cause, err)
	}
	if h.Commit == p.id { // applied, and the response was lost
		out, v, err := p.committed(ctx, &h, etag, man, data)
		return &out, v, err
	}
	if h.Fences(p.Options.TaskID, p.Options.Attempt) {
		return nil, nil, ErrFenced
	}
	if h.Commit == p.On.Head.Commit { // not applied
		on := *p.On
		on.Head, on.ETag = h, etag // another task may have been fenced
		p.On = &on
		return nil, nil, nil
	}
	if p.baseDeleted(h, etag) {
		return nil, nil, ErrDeleted
	}
	found, err := p.findApplied(ctx, h)
	if err != nil {
		return nil, nil, err
	}
	if found != nil && found.ID == p.id { // applied, and others have committed since
		found.Conflicts = p.conflicts
		p.Merged = true
		return found, &Version{}, nil
	}
	if found != nil {
		found.Already = true
		return found, nil, nil
	}
	return nil, nil, p.follow(ctx, h, etag)
}

// findApplied returns the commit that p has made, or else that of another run of the task. It returns nil if the
// history of h has neither.
func (p *Proposal) findApplied(ctx context.Context, h format.Head) (*Commit, error) {
	if p.Options.TaskID != "" {
		return p.Repo.FindTask(ctx, p.Ref, h, p.Options.TaskID, UntilGeneration(p.Base.Head.Generation))
	}
	if h.Manifest == nil {
		return nil, nil
	}
	isOurs := func(m *format.Manifest) bool { return m.Header.Commit == p.id }
	return p.Repo.findCommit(ctx, p.Ref, h.Manifest.Name, &h.Manifest.Digest, isOurs, UntilGeneration(p.since+1))
}

// build returns the HEAD of the next generation, its manifest, and the manifest's bytes as they will be stored.
func (p *Proposal) build() (*format.Head, *format.Manifest, []byte, error) {
	changes, moved := p.Relocation.addMoved(p.On.Set, p.changes)
	set, err := p.On.Set.Apply(changes)
	if err != nil {
		return nil, nil, nil, err
	}
	if p.Merged || p.CheckQuota {
		if err := p.Repo.Options.Quota.CheckSet(set); err != nil {
			return nil, nil, nil, err
		}
	}
	now := time.Now().UTC()
	man := &format.Manifest{Changes: changes, Result: p.Result, Header: format.Header{
		Generation: p.On.Head.Generation + 1, Commit: p.id, Time: now,
		TaskID: p.Options.TaskID, Attempt: p.Options.Attempt, Message: p.Options.Message,
		Conflicts: p.conflicts, Files: set.Files, Bytes: set.Bytes,
	}}
	if len(p.Result) == 0 {
		man.Header.Result = p.Options.Result
	}
	if moved > 0 {
		man.Header.Repeated, man.Header.Changed = moved, format.ChangedPaths(p.changes)
	}
	man.Extend(p.On.Manifest, p.On.Head.Manifest, set, p.Full)
	data, err := p.Repo.Codec.EncodeManifest(p.Ref, p.Repo.Keys(p.Ref.Tenant), man)
	if err != nil {
		return nil, nil, nil, err
	}
	digest := objects.Sum(data)
	name := format.ManifestName(man.Header.Generation, format.ManifestDigits(digest))
	p.Repo.versions.put(p.Ref.ManifestKey(name), &Loaded{man, set})
	p.set = set
	next := p.On.Head.Next(man.Header, format.ManifestRef{Name: name, Digest: digest})
	next.Files, next.Bytes = set.Files, set.Bytes
	return next, man, data, nil
}

// Replace commits target as the next version. The tenant's packs must already have the content of target. moved says
// which of it was copied, and where to; it may be nil. began is when the caller began to read target.
func (r *Repo) Replace(
	ctx context.Context, ref format.Ref, target *format.EntrySet, moved *Relocation, began time.Time, message string,
) (Commit, error) {
	for range objects.MaxRaces {
		v, err := r.Current(ctx, ref, nil)
		if err != nil {
			return Commit{}, err
		}
		changes := v.Set.Diff(target)
		if len(changes) == 0 {
			return v.NoChange(), nil
		}
		p := &Proposal{
			Repo: r, Ref: ref, Options: CommitOptions{Message: message}, Changes: changes, Base: v, On: v,
			Relocation: moved, Began: began,
		}
		c, _, err := p.Run(ctx)
		if !errors.Is(err, objects.ErrConflict) {
			return c, err
		}
	}
	return Commit{}, fmt.Errorf("lost %d races in a row: %w", objects.MaxRaces, objects.ErrTemporary)
}
