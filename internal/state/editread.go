package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	chunkers "github.com/PlakarKorp/go-cdc-chunkers"
)

// edited is an edit whose content is in the store.
type edited struct {
	Edit
	entry *entry // nil: removed
}

// readEdits stores the content of edits.
func (s *Store) readEdits(ctx context.Context, tenant string, known *snapshot, edits iter.Seq2[Edit, error]) ([]edited, error) {
	const many = 64 // edits that make an index of known content worth its while
	p := s.newPacker(ctx, tenant, known.blobFinder(many))
	var list []edited
	var total int64
	var err error
	buf, scratch := s.buffer(), s.buffer()
	defer func() { s.buffers.Put(&buf); s.buffers.Put(&scratch) }()
	for e, failed := range edits {
		if err = failed; err != nil {
			break
		}
		var d edited
		if d, err = s.readEdit(p, e, s.opts.Quota.Bytes-total, &buf, &scratch); err != nil {
			break
		}
		if d.entry != nil {
			total += d.entry.Size
		}
		list = append(list, d)
		if len(list) > s.opts.Quota.Files {
			err = &QuotaError{"number of files", int64(len(list)), int64(s.opts.Quota.Files), nil}
			break
		}
	}
	return list, errors.Join(err, p.finish())
}

func (s *Store) readEdit(p *packer, e Edit, room int64, buf, scratch *[]byte) (edited, error) {
	if err := s.checkEdit(e); err != nil {
		return edited{}, err
	}
	out := &entry{Path: e.Path, Mode: uint32(e.Mode.Perm()), MTime: e.Time.UnixNano()}
	if e.Time.IsZero() {
		out.MTime = time.Now().UnixNano()
	}
	switch e.Kind {
	case "":
		return edited{e, nil}, nil
	case Dir:
		out.Kind, out.MTime = kindDir, 0
		if out.Mode == 0 {
			out.Mode = 0o755
		}
	case Link:
		out.Kind, out.Mode, out.Link, out.MTime = kindLink, 0o777, e.Target, 0
	case File:
		out.Kind = kindFile
		if out.Mode == 0 {
			out.Mode = 0o644
		}
		if err := s.readContent(p, out, e.Content, room, buf, scratch); err != nil {
			return edited{}, err
		}
	}
	e.Content = nil
	return edited{e, out}, out.check()
}

func (s *Store) checkEdit(e Edit) error {
	if err := checkPath(e.Path); err != nil {
		return &EditError{e.Path, "is not a clean relative path: " + err.Error()}
	}
	if s.reserved(e.Path) {
		return &EditError{e.Path, "is reserved: " + top(e.Path) + " is put there by the fleet"}
	}
	if depth := int64(1 + strings.Count(e.Path, "/")); depth > int64(s.opts.Quota.Depth) {
		return &QuotaError{"depth", depth, int64(s.opts.Quota.Depth), []string{e.Path}}
	}
	switch e.Kind {
	case "", File, Dir:
	case Link:
		if e.Target == "" || strings.IndexByte(e.Target, 0) >= 0 || len(e.Target) > maxPath {
			return &EditError{e.Path, "is a link without a usable target"}
		}
	default:
		return &EditError{e.Path, fmt.Sprintf("is of the unknown kind %q", e.Kind)}
	}
	return nil
}

// readContent stores a file of unknown length, at most what the quota leaves.
func (s *Store) readContent(p *packer, e *entry, r io.Reader, room int64, buf, scratch *[]byte) error {
	*buf = slices.Grow((*buf)[:0], maxBlob+1)[:maxBlob+1]
	*scratch = slices.Grow((*scratch)[:0], maxBlob)
	n, ended, err := fill(r, *buf)
	if err != nil {
		return err
	}
	if ended {
		e.Size = int64(n)
		if e.Size > room {
			return s.overQuota(e, room)
		}
		if n == 0 {
			return nil
		}
		b, err := p.add((*buf)[:n], *scratch)
		if err == nil {
			e.Blobs = []blob{b}
		}
		return err
	}
	limit := min(room, s.opts.Quota.Largest)
	counted := &counter{r: io.LimitReader(io.MultiReader(bytes.NewReader(bytes.Clone(*buf)), r), limit+1)}
	chunker, err := chunkers.NewChunker("fastcdc", counted, &chunkers.ChunkerOpts{MinSize: chunkMin, NormalSize: chunkNormal, MaxSize: maxBlob})
	if err != nil {
		return err
	}
	for last := false; !last; {
		data, err := chunker.Next()
		last = errors.Is(err, io.EOF)
		if err != nil && !last {
			return err
		}
		if counted.n > limit {
			e.Size = counted.n
			return s.overQuota(e, room)
		}
		if len(data) > 0 {
			b, err := p.add(data, *scratch)
			if err != nil {
				return err
			}
			e.Blobs = append(e.Blobs, b)
		}
	}
	e.Size = counted.n
	return nil
}

// fill reads until b is full or r ends. A stream that broke is not one that ended.
func fill(r io.Reader, b []byte) (n int, ended bool, err error) {
	for n < len(b) {
		m, err := r.Read(b[n:])
		n += m
		if err == io.EOF {
			return n, true, nil
		}
		if err != nil {
			return n, false, err
		}
	}
	return n, false, nil
}

func (s *Store) overQuota(e *entry, room int64) error {
	if e.Size > s.opts.Quota.Largest {
		return &QuotaError{"largest file in bytes", e.Size, s.opts.Quota.Largest, []string{e.Path}}
	}
	return &QuotaError{"total in bytes", s.opts.Quota.Bytes - room + e.Size, s.opts.Quota.Bytes, []string{e.Path}}
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}
