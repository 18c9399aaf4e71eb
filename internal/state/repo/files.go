package repo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// Kinds of paths, as FileInfo and Edit name them.
const (
	File = "file"
	Dir  = "dir"
	Link = "link"
)

// FileInfo is one path of a version.
type FileInfo struct {
	Path   string    `json:"path"`
	Kind   string    `json:"kind"` // file, dir, link
	Mode   uint32    `json:"mode"` // permission bits
	Bytes  int64     `json:"bytes"`
	Time   time.Time `json:"time,omitzero"`    // of a file's last change
	Target string    `json:"target,omitempty"` // of a symbolic link
	// ETag of a file is the SHA-256 of its content, or of the SHA-256 of its Parts, one after the other.
	ETag  string `json:"etag,omitempty"`
	Parts []Part `json:"parts,omitempty"` // of a large file, in order
}

// Part is a piece of a large file's content.
type Part struct {
	SHA256 objects.Digest `json:"sha256"`
	Bytes  int64          `json:"bytes"`
}

// DescribeEntry returns the FileInfo of an entry.
func DescribeEntry(e *format.Entry) FileInfo {
	f := FileInfo{Path: e.Path, Mode: e.Mode, Bytes: e.Size}
	switch e.Kind {
	case format.KindDir:
		f.Kind = Dir
	case format.KindLink:
		f.Kind, f.Target = Link, e.Link
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

// List returns the paths of a version (0: the newest) below the directory dir, or all paths if dir is empty.
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
