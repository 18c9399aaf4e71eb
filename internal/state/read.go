package state

import (
	"bytes"
	"context"
	"fmt"
	"io"
)

// readAhead is how much content of small files Read has in memory at a time.
const readAhead = 16 << 20

// Read calls fn with each path of a version that want names, in the order of paths, and with the
// content of files, which is valid during the call. Content is fetched many files at a time, so it is
// what archives are made with. An error of fn ends it and is returned as it is.
func (s *Store) Read(ctx context.Context, ref Ref, generation int64, want func(FileInfo) bool, fn func(FileInfo, io.Reader) error) error {
	v, err := s.find(ctx, ref, generation)
	if err != nil {
		return fmt.Errorf("read %s: %w", ref, err)
	}
	var batch []*entry
	var size int64
	flush := func() error {
		if err := s.readBatch(ctx, ref.Tenant, batch, fn); err != nil {
			return err
		}
		batch, size = batch[:0], 0
		return nil
	}
	for _, e := range v.snap.entries {
		if !want(e.info()) {
			continue
		}
		if size+e.Size > readAhead {
			if err := flush(); err != nil {
				return err
			}
		}
		if len(e.Blobs) > 1 {
			if err := flush(); err != nil { // what comes before it
				return err
			}
			if err := fn(e.info(), &fileReader{store: s, ctx: ctx, tenant: ref.Tenant, entry: e}); err != nil {
				return err
			}
			continue
		}
		batch, size = append(batch, e), size+e.Size
	}
	return flush()
}

// readBatch hands on entries of at most one blob each.
func (s *Store) readBatch(ctx context.Context, tenant string, batch []*entry, fn func(FileInfo, io.Reader) error) error {
	content := make([][]byte, len(batch))
	var wants []want
	for i, e := range batch {
		content[i] = make([]byte, e.Size)
		if len(e.Blobs) == 1 {
			wants = append(wants, want{&e.Blobs[0], i, 0})
		}
	}
	err := s.fetch(ctx, tenant, wants, func(_ int, w want, data []byte) error {
		copy(content[w.target], data)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read content: %w", err)
	}
	for i, e := range batch {
		if err := fn(e.info(), bytes.NewReader(content[i])); err != nil {
			return err
		}
	}
	return nil
}
