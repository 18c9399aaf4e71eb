package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/state/content"
	"github.com/codefleet/codefleet/internal/state/format"
)

// storedEdit is an edit whose content is stored.
type storedEdit struct {
	Edit
	entry *format.Entry // nil if the path is removed
}

// storeEdits stores the content of edits, except for content that known has.
func (s *Store) storeEdits(
	ctx context.Context, tenant string, known *format.EntrySet, edits iter.Seq2[Edit, error],
) ([]storedEdit, error) {
	const lookups = 64 // an estimate: the number of edits is not known yet
	p := s.repo.NewPacker(ctx, tenant, known.BlobFinder(lookups))
	var list []storedEdit
	var total int64
	var err error
	buf, scratch := s.repo.Buffer(), s.repo.Buffer()
	defer func() { s.repo.PutBuffer(&buf); s.repo.PutBuffer(&scratch) }()
	for e, streamErr := range edits {
		if err = streamErr; err != nil {
			break
		}
		d := storedEdit{Edit: e}
		if d.entry, err = s.storeEdit(p, e, s.dirs.Quota.Bytes-total, &buf, &scratch); err != nil {
			break
		}
		if d.entry != nil {
			total += d.entry.Size
		}
		d.Content = nil
		list = append(list, d)
		if len(list) > s.dirs.Quota.Files {
			err = &QuotaError{What: "number of files", Has: int64(len(list)), Limit: int64(s.dirs.Quota.Files)}
			break
		}
	}
	return list, errors.Join(err, p.Finish())
}

// storeEdit stores the content of an edit, of at most room bytes, and returns its entry, or nil for a removal.
func (s *Store) storeEdit(p *content.Packer, e Edit, room int64, buf, scratch *[]byte) (*format.Entry, error) {
	if err := s.checkEdit(e); err != nil || e.Kind == "" {
		return nil, err
	}
	out := &format.Entry{Path: e.Path, Mode: uint32(e.Mode.Perm())}
	switch e.Kind {
	case Dir:
		out.Kind = format.KindDir
		out.Mode = cmp.Or(out.Mode, 0o755)
	case Symlink:
		out.Kind, out.Mode, out.Target = format.KindSymlink, 0o777, e.Target
	case File:
		if e.Time.IsZero() {
			e.Time = time.Now()
		}
		out.Kind, out.MTime = format.KindFile, clock.Nanos(e.Time)
		out.Mode = cmp.Or(out.Mode, 0o644)
		if err := s.readContent(p, out, e.Content, room, buf, scratch); err != nil {
			return nil, err
		}
	}
	return out, out.Check()
}

func (s *Store) checkEdit(e Edit) error {
	if err := format.CheckPath(e.Path); err != nil {
		return &EditError{e.Path, "is not a clean relative path: " + err.Error()}
	}
	if slices.Contains(s.dirs.Reserved, format.TopDir(e.Path)) {
		return &EditError{e.Path, "is reserved: " + format.TopDir(e.Path) + " belongs to the fleet"}
	}
	if depth := int64(1 + strings.Count(e.Path, "/")); depth > int64(s.dirs.Quota.Depth) {
		return &QuotaError{What: "depth", Has: depth, Limit: int64(s.dirs.Quota.Depth), Largest: []string{e.Path}}
	}
	switch e.Kind {
	case "", File, Dir:
	case Symlink:
		if e.Target == "" || strings.IndexByte(e.Target, 0) >= 0 || len(e.Target) > format.MaxPath {
			return &EditError{e.Path, "is a symbolic link without a valid target"}
		}
	default:
		return &EditError{e.Path, fmt.Sprintf("has the unknown kind %q", e.Kind)}
	}
	return nil
}

// readContent stores the content of e, of at most room bytes, and sets its size.
func (s *Store) readContent(
	p *content.Packer, e *format.Entry, r io.Reader, room int64, buf, scratch *[]byte,
) (err error) {
	q := s.dirs.Quota
	e.Blobs, e.Size, err = p.AddStream(r, min(room, q.Largest), buf, scratch)
	switch {
	case !errors.Is(err, content.ErrTooLarge):
		return err
	case e.Size > q.Largest:
		return &QuotaError{What: "largest file in bytes", Has: e.Size, Limit: q.Largest, Largest: []string{e.Path}}
	default:
		total := q.Bytes - room + e.Size
		return &QuotaError{What: "total in bytes", Has: total, Limit: q.Bytes, Largest: []string{e.Path}}
	}
}
