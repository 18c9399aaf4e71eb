package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/state/content"
	"github.com/codefleet/codefleet/internal/state/format"
)

// edited is an edit whose content is stored.
type edited struct {
	Edit
	entry *format.Entry // nil: removed
}

// readEdits stores the content of edits.
func (s *Store) readEdits(
	ctx context.Context, tenant string, known *format.EntrySet, edits iter.Seq2[Edit, error],
) ([]edited, error) {
	const many = 64 // edits for which an index of known content is worth building
	p := s.repo.NewPacker(ctx, tenant, known.BlobFinder(many))
	var list []edited
	var total int64
	var err error
	buf, scratch := s.repo.Buffer(), s.repo.Buffer()
	defer func() { s.repo.PutBuffer(&buf); s.repo.PutBuffer(&scratch) }()
	for e, failed := range edits {
		if err = failed; err != nil {
			break
		}
		var d edited
		if d, err = s.readEdit(p, e, s.dirs.Quota.Bytes-total, &buf, &scratch); err != nil {
			break
		}
		if d.entry != nil {
			total += d.entry.Size
		}
		list = append(list, d)
		if len(list) > s.dirs.Quota.Files {
			err = &QuotaError{
				What: "number of files", Has: int64(len(list)), Limit: int64(s.dirs.Quota.Files),
				Largest: nil,
			}
			break
		}
	}
	return list, errors.Join(err, p.Finish())
}

func (s *Store) readEdit(p *content.Packer, e Edit, room int64, buf, scratch *[]byte) (edited, error) {
	if err := s.checkEdit(e); err != nil {
		return edited{}, err
	}
	out := &format.Entry{Path: e.Path, Mode: uint32(e.Mode.Perm()), MTime: e.Time.UnixNano()}
	if e.Time.IsZero() {
		out.MTime = time.Now().UnixNano()
	}
	switch e.Kind {
	case "":
		return edited{e, nil}, nil
	case Dir:
		out.Kind, out.MTime = format.KindDir, 0
		if out.Mode == 0 {
			out.Mode = 0o755
		}
	case Link:
		out.Kind, out.Mode, out.Link, out.MTime = format.KindLink, 0o777, e.Target, 0
	case File:
		out.Kind = format.KindFile
		if out.Mode == 0 {
			out.Mode = 0o644
		}
		if err := s.readContent(p, out, e.Content, room, buf, scratch); err != nil {
			return edited{}, err
		}
	}
	e.Content = nil
	return edited{e, out}, out.Check()
}

func (s *Store) checkEdit(e Edit) error {
	if err := format.CheckPath(e.Path); err != nil {
		return &EditError{e.Path, "is not a clean relative path: " + err.Error()}
	}
	if slices.Contains(s.dirs.Reserved, format.TopDir(e.Path)) {
		return &EditError{e.Path, "is reserved: " + format.TopDir(e.Path) + " is put there by the fleet"}
	}
	if depth := int64(1 + strings.Count(e.Path, "/")); depth > int64(s.dirs.Quota.Depth) {
		return &QuotaError{What: "depth", Has: depth, Limit: int64(s.dirs.Quota.Depth), Largest: []string{e.Path}}
	}
	switch e.Kind {
	case "", File, Dir:
	case Link:
		if e.Target == "" || strings.IndexByte(e.Target, 0) >= 0 || len(e.Target) > format.MaxPath {
			return &EditError{e.Path, "is a link without a usable target"}
		}
	default:
		return &EditError{e.Path, fmt.Sprintf("is of the unknown kind %q", e.Kind)}
	}
	return nil
}

// readContent stores a file of unknown size, of at most room bytes.
func (s *Store) readContent(
	p *content.Packer, e *format.Entry, r io.Reader, room int64, buf, scratch *[]byte,
) (err error) {
	limit := min(room, s.dirs.Quota.Largest)
	e.Blobs, e.Size, err = p.AddStream(r, limit, buf, scratch)
	if errors.Is(err, content.ErrTooLarge) {
		return s.overQuota(e, room)
	}
	return err
}

func (s *Store) overQuota(e *format.Entry, room int64) error {
	if e.Size > s.dirs.Quota.Largest {
		return &QuotaError{
			What: "largest file in bytes", Has: e.Size, Limit: s.dirs.Quota.Largest,
			Largest: []string{e.Path},
		}
	}
	return &QuotaError{
		What: "total in bytes", Has: s.dirs.Quota.Bytes - room + e.Size, Limit: s.dirs.Quota.Bytes,
		Largest: []string{e.Path},
	}
}
