package state

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"strings"

	"golang.org/x/sync/errgroup"
)

// change makes the mirror v and returns the mark that says so. before is what the mirror was.
func (m *mirroring) change(ctx context.Context, before mirrorMark, v *version) (mirrorMark, error) {
	paths, err := m.changed(ctx, before, v)
	if err != nil {
		return mirrorMark{}, err
	}
	h := &v.head
	done := mirrorMark{Generation: h.Generation, Commit: h.Commit, Time: h.Time}
	wanted := map[string]bool{} // names of objects
	var put []*entry
	for _, e := range v.snap.entries {
		if e.Kind != kindFile {
			continue
		}
		name, ok := mirrorName(e.Path)
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
	remove, err := m.superfluous(ctx, paths, wanted)
	if err != nil {
		return mirrorMark{}, err
	}
	// A file may give way to a directory of its name, and the other way round.
	if err := m.target.Delete(ctx, remove...); err != nil {
		return mirrorMark{}, err
	}
	m.out.Removed += len(remove)
	return done, m.putAll(ctx, put)
}

// changed returns the paths in which v may differ from the mirror; nil: all.
func (m *mirroring) changed(ctx context.Context, before mirrorMark, v *version) (map[string]bool, error) {
	if before.Generation == 0 {
		return nil, nil
	}
	base, err := m.store.find(ctx, m.ref, before.Generation)
	if errors.Is(err, ErrNotFound) || err == nil && base.man.header.Commit != before.Commit {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	paths := map[string]bool{}
	note := func(other *snapshot) {
		for _, c := range base.snap.diff(other) {
			paths[c.path] = true
		}
	}
	note(v.snap)
	for _, g := range before.Touched {
		if g == 0 {
			return nil, nil
		}
		t, err := m.store.find(ctx, m.ref, g)
		if errors.Is(err, ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		note(t.snap)
	}
	return paths, nil
}

// superfluous returns the keys of objects that are none of the wanted files.
func (m *mirroring) superfluous(ctx context.Context, paths, wanted map[string]bool) ([]string, error) {
	prefix := mirrorPrefix(m.ref)
	var keys []string
	if paths == nil {
		for info, err := range m.target.List(ctx, prefix, "") {
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
		if name, ok := mirrorName(path); ok && !wanted[name] {
			keys = append(keys, prefix+name)
		}
	}
	return keys, nil
}

// putAll writes files, many small ones at a time, and large ones alone and in pieces.
func (m *mirroring) putAll(ctx context.Context, files []*entry) error {
	var batch []*entry
	var size int64
	flush := func() error {
		err := m.putBatch(ctx, batch)
		batch, size = batch[:0], 0
		return err
	}
	for _, e := range files {
		if len(e.Blobs) > 1 {
			r := &keeping{m: m, ctx: ctx, r: &fileReader{store: m.store, ctx: ctx, tenant: m.ref.Tenant, entry: e}}
			if err := m.store.opts.Mirror.Target.PutFile(ctx, m.key(e), r, e.Size); err != nil {
				return cmp.Or(r.lost, err)
			}
			m.out.Put++
			if err := m.keep(ctx); err != nil {
				return err
			}
			continue
		}
		if batch, size = append(batch, e), size+e.Size; size > readAhead || len(batch) >= 16*mirrorPuts {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

func (m *mirroring) putBatch(ctx context.Context, batch []*entry) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(mirrorPuts)
	at := 0
	err := m.store.readBatch(ctx, m.ref.Tenant, batch, func(_ FileInfo, r io.Reader) error {
		e := batch[at]
		at++
		g.Go(func() error { return m.put(gctx, e, r.(*bytes.Reader)) }) //nolint:errcheck,forcetypeassert // of memory
		return nil
	})
	if err = errors.Join(err, g.Wait()); err != nil {
		return err
	}
	m.out.Put += len(batch)
	return m.keep(ctx)
}

// put writes a small file.
func (m *mirroring) put(ctx context.Context, e *entry, r io.ReadSeeker) error {
	return m.store.opts.Retry.Do(ctx, func(ctx context.Context) error {
		if _, err := r.Seek(0, io.SeekStart); err != nil {
			return err
		}
		return m.store.opts.Mirror.Target.PutFile(ctx, m.key(e), r, e.Size)
	})
}

func (m *mirroring) key(e *entry) string {
	name, _ := mirrorName(e.Path)
	return mirrorPrefix(m.ref) + name
}

// keeping reads a large file, which takes its time, and keeps the mirror meanwhile.
type keeping struct {
	m    *mirroring
	ctx  context.Context //nolint:containedctx // io.Reader takes none; it lives as long as one request
	r    io.Reader
	lost error // why it ended
}

func (k *keeping) Read(p []byte) (int, error) {
	if k.lost = k.m.keep(k.ctx); k.lost != nil {
		return 0, k.lost
	}
	return k.r.Read(p)
}
