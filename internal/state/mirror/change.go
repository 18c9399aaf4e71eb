package mirror

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/content"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/repo"
)

// change makes the mirror equal to v, and returns the new mark. before is the mark before this update.
func (u *update) change(ctx context.Context, before mark, v *repo.Version) (mark, error) {
	paths, err := u.changed(ctx, before, v)
	if err != nil {
		return mark{}, err
	}
	h := &v.Head
	done := mark{Generation: h.Generation, Commit: h.Commit, Time: h.Time}
	wanted := map[string]bool{} // names of v's objects
	var put []*format.Entry
	for _, e := range v.Set.Entries {
		if e.Kind != format.KindFile {
			continue
		}
		name, ok := objectName(e.Path)
		if !ok {
			if len(done.Skipped) < maxSkipped {
				done.Skipped = append(done.Skipped, strings.ToValidUTF8(e.Path[:min(len(e.Path), maxName)], "?"))
			}
			continue
		}
		done.Files++
		wanted[name] = true
		if paths == nil || paths[e.Path] {
			put = append(put, e)
		}
	}
	remove, err := u.unwanted(ctx, paths, wanted)
	if err != nil {
		return mark{}, err
	}
	// Removals come first, because a directory may replace a file with the same name, and vice versa.
	if err := u.retrying.Delete(ctx, remove...); err != nil {
		return mark{}, err
	}
	u.out.Removed += len(remove)
	return done, u.putAll(ctx, put)
}

// changed returns the paths at which the mirror may differ from v. Nil means all paths.
func (u *update) changed(ctx context.Context, before mark, v *repo.Version) (map[string]bool, error) {
	// Files of the mirror may be of the generations in Touched, which interrupted updates have left. Generation 0 is a
	// workspace without HEAD.
	if before.Generation == 0 || slices.Contains(before.Touched, 0) {
		return nil, nil
	}
	base, err := u.repo.Find(ctx, u.ref, before.Generation)
	if errors.Is(err, objects.ErrNotFound) || err == nil && base.Manifest.Header.Commit != before.Commit {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	sets := []*format.EntrySet{v.Set}
	for _, g := range before.Touched {
		touched, err := u.repo.Find(ctx, u.ref, g)
		if errors.Is(err, objects.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		sets = append(sets, touched.Set)
	}
	paths := map[string]bool{}
	for _, set := range sets {
		for _, c := range base.Set.Diff(set) {
			paths[c.Path] = true
		}
	}
	return paths, nil
}

// unwanted returns the keys of the mirror's objects that are not wanted. paths is the result of changed.
func (u *update) unwanted(ctx context.Context, paths, wanted map[string]bool) ([]string, error) {
	prefix := filesPrefix(u.ref)
	var keys []string
	if paths == nil {
		for info, err := range u.retrying.List(ctx, prefix, "") {
			if err != nil {
				return nil, err
			}
			if !wanted[strings.TrimPrefix(info.Key, prefix)] {
				keys = append(keys, info.Key)
			}
		}
		return keys, nil
	}
	for path := range paths {
		if name, ok := objectName(path); ok && !wanted[name] {
			keys = append(keys, prefix+name)
		}
	}
	return keys, nil
}

// putAll writes small files in batches, and large ones one at a time.
func (u *update) putAll(ctx context.Context, files []*format.Entry) error {
	var batch []*format.Entry
	var size int64
	flush := func() error {
		err := u.putBatch(ctx, batch)
		batch, size = batch[:0], 0
		return err
	}
	for _, e := range files {
		if len(e.Blobs) > 1 {
			r := &leaseReader{u: u, ctx: ctx, r: u.repo.Open(ctx, u.ref.Tenant, e)}
			if err := u.target.PutFile(ctx, u.key(e), r, e.Size); err != nil {
				return cmp.Or(r.lost, err)
			}
			u.out.Put++
			if err := u.renewLease(ctx); err != nil {
				return err
			}
			continue
		}
		if batch, size = append(batch, e), size+e.Size; size > content.BatchBytes || len(batch) >= 16*parallelPuts {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

func (u *update) putBatch(ctx context.Context, batch []*format.Entry) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelPuts)
	err := u.repo.ReadBatch(ctx, u.ref.Tenant, batch, func(e *format.Entry, r *bytes.Reader) error {
		g.Go(func() error { return u.put(gctx, e, r) })
		return nil
	})
	if err = errors.Join(err, g.Wait()); err != nil {
		return err
	}
	u.out.Put += len(batch)
	return u.renewLease(ctx)
}

// put writes a small file.
func (u *update) put(ctx context.Context, e *format.Entry, r io.ReadSeeker) error {
	return u.repo.Options.Retry.Do(ctx, func(ctx context.Context) error {
		if _, err := r.Seek(0, io.SeekStart); err != nil {
			return err
		}
		return u.target.PutFile(ctx, u.key(e), r, e.Size)
	})
}

func (u *update) key(e *format.Entry) string {
	name, _ := objectName(e.Path)
	return filesPrefix(u.ref) + name
}

// leaseReader renews the lease while a large file is read.
type leaseReader struct {
	u    *update
	ctx  context.Context //nolint:containedctx // for io.Reader; the context lives as long as one request
	r    io.Reader
	lost error // why the lease could not be renewed
}

func (l *leaseReader) Read(p []byte) (int, error) {
	if l.lost = l.u.renewLease(l.ctx); l.lost != nil {
		return 0, l.lost
	}
	return l.r.Read(p)
}
