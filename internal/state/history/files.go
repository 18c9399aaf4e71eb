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

// ErrLink is objects.ErrNotFound for a path that is a symbolic link.
var ErrLink = fmt.Errorf("it is a link: %w", objects.ErrNotFound)

// Open opens a file of a version for reading. Generation 0 means the newest. Only the blobs that are read are fetched.
// Open returns objects.ErrNotFound if the file does not exist, and ErrLink if it is a link. ctx bounds all reads.
func Open(
	ctx context.Context, r *repo.Repo, ref format.Ref, generation int64, path string,
) (io.ReadSeeker, repo.FileInfo, error) {
	v, err := r.Find(ctx, ref, generation)
	if err != nil {
		return nil, repo.FileInfo{}, fmt.Errorf("open %q: %w", path, err)
	}
	return openIn(ctx, r, ref, v, path)
}

// OpenRetained is like Open, but also finds a retained version that is no longer in the history.
func OpenRetained(
	ctx context.Context, r *repo.Repo, ref format.Ref, generation int64, path string,
) (io.ReadSeeker, repo.FileInfo, error) {
	v, err := findRetained(ctx, r, ref, generation)
	if err != nil {
		return nil, repo.FileInfo{}, fmt.Errorf("open %q: %w", path, err)
	}
	return openIn(ctx, r, ref, v, path)
}

// findRetained is like repo.Repo.Find, but also finds a retained version that is no longer in the history.
func findRetained(ctx context.Context, r *repo.Repo, ref format.Ref, generation int64) (*repo.Loaded, error) {
	v, err := r.Find(ctx, ref, generation)
	if !errors.Is(err, objects.ErrNotFound) {
		return v, err
	}
	for o, listErr := range r.Bucket.List(ctx, ref.RetainedPrefix(generation), "") {
		if listErr != nil {
			return nil, listErr
		}
		found, readErr := r.ReadRetained(ctx, ref, generation, o.Key)
		if errors.Is(readErr, objects.ErrNotFound) {
			continue
		}
		if readErr == nil && len(found) > 1 {
			readErr = fmt.Errorf("%s: %w: %d manifests may be the retained one", o.Key, objects.ErrCorrupt, len(found))
		}
		if readErr != nil {
			return nil, readErr
		}
		if len(found) == 1 {
			return r.Load(ctx, ref, found[0])
		}
	}
	return nil, err
}

func openIn(
	ctx context.Context, r *repo.Repo, ref format.Ref, v *repo.Loaded, path string,
) (io.ReadSeeker, repo.FileInfo, error) {
	e := v.Set.Find(path)
	if e != nil && e.Kind == format.KindSymlink {
		return nil, repo.FileInfo{}, fmt.Errorf("open %q: %w", path, ErrLink)
	}
	if e == nil || e.Kind != format.KindFile {
		return nil, repo.FileInfo{}, fmt.Errorf("open %q: %w", path, objects.ErrNotFound)
	}
	return r.Open(ctx, ref.Tenant, e), repo.DescribeEntry(e), nil
}

// Read calls fn for each path of a version for which want returns true, in the order of the paths. The reader has the
// content of a file, and is valid during the call. Read fetches many files at a time. It stops at fn's first error, and
// returns the error unchanged.
func Read(
	ctx context.Context, r *repo.Repo, ref format.Ref, generation int64,
	want func(repo.FileInfo) bool, fn func(repo.FileInfo, io.Reader) error,
) error {
	v, err := r.Find(ctx, ref, generation)
	if err != nil {
		return fmt.Errorf("read %s: %w", ref, err)
	}
	var batch []*format.Entry
	var size int64
	flush := func() error {
		err := r.ReadBatch(ctx, ref.Tenant, batch, func(e *format.Entry, data *bytes.Reader) error {
			return fn(repo.DescribeEntry(e), data)
		})
		if err != nil {
			return err
		}
		batch, size = batch[:0], 0
		return nil
	}
	for _, e := range v.Set.Entries {
		if !want(repo.DescribeEntry(e)) {
			continue
		}
		if size+e.Size > content.BatchBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		if len(e.Blobs) > 1 {
			if err := flush(); err != nil { // fn must get the preceding files first
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
