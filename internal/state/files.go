package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
)

// FileInfo is one path of a version.
type FileInfo struct {
	Path   string    `json:"path"`
	Kind   string    `json:"kind"` // file, dir, link
	Mode   uint32    `json:"mode"` // permission bits
	Bytes  int64     `json:"bytes"`
	Time   time.Time `json:"time,omitzero"`    // of a file's last change; zero of what is no file
	Target string    `json:"target,omitempty"` // of a link
	// ETag of a file changes with its content: the SHA-256 of that, or where the file has Parts the
	// SHA-256 of theirs, one after the other.
	ETag  string `json:"etag,omitempty"`
	Parts []Part `json:"parts,omitempty"` // of a large file, in order
}

// Part is a piece of a large file's content.
type Part struct {
	SHA256 objects.Digest `json:"sha256"`
	Bytes  int64          `json:"bytes"`
}

func (e *entry) info() FileInfo {
	f := FileInfo{Path: e.Path, Mode: e.Mode, Bytes: e.Size}
	switch e.Kind {
	case kindDir:
		f.Kind = Dir
	case kindLink:
		f.Kind, f.Target = Link, e.Link
	default:
		f.Kind, f.ETag, f.Time = File, e.etag(), time.Unix(0, e.MTime).UTC()
		if len(e.Blobs) > 1 {
			for _, b := range e.Blobs {
				f.Parts = append(f.Parts, Part{b.ID, b.Raw})
			}
		}
	}
	return f
}

func (e *entry) etag() string {
	if len(e.Blobs) == 1 {
		return e.Blobs[0].ID.String()
	}
	var ids []byte
	for _, b := range e.Blobs {
		ids = append(ids, b.ID[:]...)
	}
	return objects.Sum(ids).String()
}

// Ls returns the paths of a version (0: the newest) in the directory dir, or in
// all of the workspace when dir is empty, with all below it.
func (s *Store) Ls(ctx context.Context, ref Ref, generation int64, dir string) ([]FileInfo, error) {
	v, err := s.find(ctx, ref, generation)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	prefix := strings.Trim(dir, "/")
	if prefix != "" {
		prefix += "/"
	}
	var out []FileInfo
	for _, e := range v.snap.entries {
		if strings.HasPrefix(e.Path, prefix) {
			out = append(out, e.info())
		}
	}
	return out, nil
}

// Open returns a file of a version (0: the newest) for reading at any place;
// only what is read is fetched. ErrNotFound: no such file. ctx bounds all reads.
func (s *Store) Open(ctx context.Context, ref Ref, generation int64, path string) (io.ReadSeeker, FileInfo, error) {
	v, err := s.find(ctx, ref, generation)
	if err != nil {
		return nil, FileInfo{}, fmt.Errorf("open %q: %w", path, err)
	}
	return s.openIn(ctx, ref, v, path)
}

func (s *Store) openIn(ctx context.Context, ref Ref, v *loaded, path string) (io.ReadSeeker, FileInfo, error) {
	e := v.snap.find(path)
	if e == nil || e.Kind != kindFile {
		return nil, FileInfo{}, fmt.Errorf("open %q: %w", path, ErrNotFound)
	}
	return &fileReader{store: s, ctx: ctx, tenant: ref.Tenant, entry: e}, e.info(), nil
}

// fileReader reads a stored file, one blob in memory at a time.
type fileReader struct {
	store  *Store
	ctx    context.Context //nolint:containedctx // io.Reader takes none; a reader lives as long as one request
	tenant string
	entry  *entry
	at     int64

	data  []byte // of the last blob
	start int64  // of data in the file
}

func (r *fileReader) Read(p []byte) (int, error) {
	if r.at >= r.entry.Size {
		return 0, io.EOF
	}
	if r.data == nil || r.at < r.start || r.at >= r.start+int64(len(r.data)) {
		if err := r.load(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.data[r.at-r.start:])
	r.at += int64(n)
	return n, nil
}

func (r *fileReader) load() error {
	var start int64
	for i := range r.entry.Blobs {
		b := &r.entry.Blobs[i]
		if r.at < start+b.Raw {
			data := make([]byte, b.Raw)
			err := r.store.fetch(r.ctx, r.tenant, []want{{b, 0, 0}}, func(_ int, _ want, content []byte) error {
				copy(data, content)
				return nil
			})
			if err != nil {
				return fmt.Errorf("read %q: %w", r.entry.Path, err)
			}
			r.data, r.start = data, start
			return nil
		}
		start += b.Raw
	}
	return io.ErrUnexpectedEOF
}

func (r *fileReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.entry.Size
	}
	if offset < 0 {
		return 0, errors.New("seek before the start of the file")
	}
	r.at = offset
	return offset, nil
}

// Adopt takes the directory as it is for the work of a task that began with the
// newest version: Commit makes the workspace what the directory holds. It is how a folder
// that people edit is imported.
func (s *Store) Adopt(ctx context.Context, t *Tree) (Version, error) {
	v, err := s.current(ctx, t.ref, t.base)
	if err != nil {
		return Version{}, fmt.Errorf("adopt %s: %w", t.ref, err)
	}
	t.base, t.lent = v, true
	return v.public(), nil
}
