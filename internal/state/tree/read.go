package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/state/content"
	"github.com/codefleet/codefleet/internal/state/format"
)

// readPaths stores the content of paths with p, and returns their entries.
func (t *Dir) readPaths(ctx context.Context, p *content.Packer, paths []string) ([]*format.Entry, error) {
	entries := make([]*format.Entry, len(paths))
	g, ctx := errgroup.WithContext(ctx)
	next := make(chan int)
	g.Go(func() error {
		defer close(next)
		for i := range paths {
			select {
			case next <- i:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range content.FetchWorkers {
		g.Go(func() error {
			r := pathReader{tree: t, packer: p}
			defer r.close()
			for i := range next {
				var err error
				if entries[i], err = r.read(paths[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return entries, g.Wait()
}

// pathReader turns paths of the tree into entries, one at a time.
type pathReader struct {
	tree         *Dir
	packer       *content.Packer
	buf, scratch []byte
}

func (r *pathReader) close() {
	r.tree.content.PutBuffer(&r.buf)
	r.tree.content.PutBuffer(&r.scratch)
}

func (r *pathReader) read(path string) (*format.Entry, error) {
	st := r.tree.nodes[path].stat
	e := &format.Entry{Path: path, Kind: st.Kind, Mode: st.Mode}
	switch st.Kind {
	case format.KindFile, format.KindOther: // openFile rejects all but regular files
	case format.KindDir:
		return e, nil
	case format.KindSymlink:
		target, err := r.tree.root.Readlink(path)
		if err != nil {
			return nil, fmt.Errorf("read symbolic link: %w", err)
		}
		e.Target, e.Mode = target, 0o777
		return e, e.Check()
	}
	f, err := r.tree.openFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %q: removed since the scan", path)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	e.Size, e.MTime = st.Size, st.MTime
	n := int(max(min(st.Size, format.MaxBlob), 64<<10))
	r.buf, r.scratch = slices.Grow(r.buf[:0], n), slices.Grow(r.scratch[:0], n)
	if e.Blobs, err = r.packer.AddFile(f, st.Size, r.buf, r.scratch); err != nil {
		return nil, fmt.Errorf("read %q: %w", path, err)
	}
	return e, nil
}
