package repo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// Kinds of paths in FileInfo and state.Edit.
const (
	File    = "file"
	Dir     = "dir"
	Symlink = "link"
)

// FileInfo describes one path of a version.
type FileInfo struct {
	Path   string    `json:"path"`
	Kind   string    `json:"kind"` // File, Dir or Symlink
	Mode   uint32    `json:"mode"` // permission bits
	Bytes  int64     `json:"bytes"`
	Time   time.Time `json:"time,omitzero"`    // modification time; files only
	Target string    `json:"target,omitempty"` // symbolic links only
	// ETag is the SHA-256 of a file's content. For a file with Parts, it is the SHA-256 of their concatenated digests.
	ETag  string `json:"etag,omitempty"`
	Parts []Part `json:"parts,omitempty"` // large files only, in order
}

// Part is a piece of a large file's content.
type Part struct {
	SHA256 objects.Digest `json:"sha256"`
	Bytes  int64          `json:"bytes"`
}

// DescribeEntry returns an entry's FileInfo.
func DescribeEntry(e *format.Entry) FileInfo {
	f := FileInfo{Path: e.Path, Mode: e.Mode, Bytes: e.Size}
	switch e.Kind {
	case format.KindDir:
		f.Kind = Dir
	case format.KindSymlink:
		f.Kind, f.Target = Symlink, e.Target
	default:
		f.Kind, f.ETag, f.Time = File, e.ETag(), time.Unix(0, e.MTime).UTC()
		if len(e.Blobs) > 1 {
			for _, b := range e.Blobs {
				f.Parts = append(f.Parts, Part{b.ID, b.Raw})
			}
		}
	}
	return f
}

// List returns the paths of a version below the directory dir, or all paths if dir is empty. Generation 0 means the
// newest.
func (r *Repo) List(ctx context.Context, ref format.Ref, generation int64, dir string) ([]FileInfo, error) {
	v, err := r.Find(ctx, ref, generation)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	prefix := strings.Trim(dir, "/")
	if prefix != "" {
		prefix += "/"
	}
	var out []FileInfo
	for _, e := range v.Set.Entries {
		if strings.HasPrefix(e.Path, prefix) {
			out = append(out, DescribeEntry(e))
		}
	}
	return out, nil
}
