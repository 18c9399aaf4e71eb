package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/content"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/repo"
)

// Open returns a file of a version (0: the newest) for reading at any place;
// only what is read is fetched. objects.ErrNotFound: no such file. ctx bounds all reads.
func Open(ctx context.Context, r *repo.Repo, ref format.Ref, generation int64, path string) (io.ReadSeeker, repo.FileInfo, error) {
	v, err := r.Find(ctx, ref, generation)
	if err != nil {
		return nil, repo.FileInfo{}, fmt.Errorf("open %q: %w", path, err)
	}
	return openIn(ctx, r, ref, v, path)
}

// OpenRetained is Open for a version that Keep spared, which may be in no history any more.
func OpenRetained(ctx context.Context, r *repo.Repo, ref format.Ref, generation int64, path string) (io.ReadSeeker, repo.FileInfo, error) {
	f, info, err := Open(ctx, r, ref, generation, path)
	if !errors.Is(err, objects.ErrNotFound) {
		return f, info, err
	}
	prefix := ref.RetainedPrefix(generation)
	for o, failed := range r.Bucket.List(ctx, prefix, "") {
		if failed != nil {
			return nil, repo.FileInfo{}, failed
		}
		l, failed := r.ReadRetained(ctx, o.Key)
		if errors.Is(failed, objects.ErrNotFound) {
			continue
		}
		if failed != nil {
			return nil, repo.FileInfo{}, failed
		}
		v, failed := r.Load(ctx, ref, l)
		if failed != nil {
			return nil, repo.FileInfo{}, fmt.Errorf("open %q: %w", path, failed)
		}
		return openIn(ctx, r, ref, v, path)
	}
	return nil, repo.FileInfo{}, err
}

func openIn(ctx context.Context, r *repo.Repo, ref format.Ref, v *repo.Loaded, path string) (io.ReadSeeker, repo.FileInfo, error) {
	e := v.Snapshot.Find(path)
	if e == nil || e.Kind != format.KindFile {
		return nil, repo.FileInfo{}, fmt.Errorf("open %q: %w", path, objects.ErrNotFound)
	}
	return r.Open(ctx, ref.Tenant, e), repo.DescribeEntry(e), nil
}

// Read calls fn with each path of a version that want names, in the order of paths, and with the
// content of files, which is valid during the call. Content is fetched many files at a time, so it is
// what archives are made with. An error of fn ends it and is returned as it is.
func Read(ctx context.Context, r *repo.Repo, ref format.Ref, generation int64, want func(repo.FileInfo) bool, fn func(repo.FileInfo, io.Reader) error) error {
	v, err := r.Find(ctx, ref, generation)
	if err != nil {
		return fmt.Errorf("read %s: %w", ref, err)
	}
	var batch []*format.Entry
	var size int64
	flush := func() error {
		if err := r.ReadBatch(ctx, ref.Tenant, batch, func(e *format.Entry, data *bytes.Reader) error { return fn(repo.DescribeEntry(e), data) }); err != nil {
			return err
		}
		batch, size = batch[:0], 0
		return nil
	}
	for _, e := range v.Snapshot.Entries {
		if !want(repo.DescribeEntry(e)) {
			continue
		}
		if size+e.Size > content.BatchBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		if len(e.Blobs) > 1 {
			if err := flush(); err != nil { // what comes before it
				return err
			}
			if err := fn(repo.DescribeEntry(e), r.Open(ctx, ref.Tenant, e)); err != nil {
				return err
			}
			continue
		}
		batch, size = append(batch, e), size+e.Size
	}
	return flush()
}
