package format

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/objects"
)

// Kind is the type of a path.
type Kind byte

// Kinds of paths. The values are part of the stored format.
const (
	KindFile    Kind = 'f'
	KindDir     Kind = 'd'
	KindSymlink Kind = 'l'
	KindOther   Kind = 'x' // socket, pipe, device: never stored
)

// Pack identifies an immutable pack. All blobs of one pack share the pointer. ID and Size are zero until the pack is
// complete.
type Pack struct {
	ID   objects.Digest
	Size int64  // bytes
	Key  string // id of the key that encrypts it; empty if it is unencrypted
}

// overhead is how many bytes encryption adds to each blob.
func (p *Pack) overhead() int64 {
	if p.Key == "" {
		return 0
	}
	return gcmOverhead
}

// Blob locates a piece of content in a pack. If Stored, without the encryption's overhead, equals Raw, the content is
// stored as it is; otherwise it is stored as one zstd frame.
type Blob struct {
	ID     objects.Digest // SHA-256 of the content
	Pack   *Pack
	Offset int64 // in the pack
	Stored int64 // bytes in the pack, including the encryption's overhead
	Raw    int64 // bytes of the content
}

// Entry is one path of a version. Entries are immutable, and versions share them.
type Entry struct {
	Path   string
	Kind   Kind
	Mode   uint32 // permission bits only
	Size   int64  // bytes of a file
	MTime  int64  // nanoseconds since 1970; ignored by Same
	Target string // what a symbolic link points to
	Blobs  []Blob
}

// NewDir returns the entry of a directory with the usual permissions.
func NewDir(path string) *Entry { return &Entry{Path: path, Kind: KindDir, Mode: 0o755} }

// SameContent reports whether e and other have the same kind and the same content or target.
func (e *Entry) SameContent(other *Entry) bool {
	if e == other {
		return true
	}
	if e == nil || other == nil || e.Kind != other.Kind || e.Size != other.Size || e.Target != other.Target {
		return false
	}
	return slices.EqualFunc(e.Blobs, other.Blobs, func(x, y Blob) bool { return x.ID == y.ID })
}

// Same reports whether e and other have the same content and permissions. Both may be nil.
func (e *Entry) Same(other *Entry) bool {
	return e == other || e.SameContent(other) && (e.Kind == KindSymlink || e.Mode == other.Mode)
}

// IsDir reports whether e is a directory. It returns false for nil.
func (e *Entry) IsDir() bool { return e != nil && e.Kind == KindDir }

// findBlob returns the blob of e with a digest, or nil. e may be nil.
func (e *Entry) findBlob(id objects.Digest) *Blob {
	if e == nil {
		return nil
	}
	for i := range e.Blobs {
		if e.Blobs[i].ID == id {
			return &e.Blobs[i]
		}
	}
	return nil
}

// Check validates an entry, except for its path.
func (e *Entry) Check() error {
	var total int64
	for _, b := range e.Blobs {
		total += b.Raw
	}
	switch {
	case e.Mode&^0o777 != 0:
		return fmt.Errorf("invalid mode %o", e.Mode)
	case e.Size != total:
		return fmt.Errorf("size is %d, but the content is %d bytes", e.Size, total)
	case e.Kind != KindFile && total != 0:
		return errors.New("a directory or symbolic link has content")
	case (e.Kind == KindSymlink) != (e.Target != ""):
		return errors.New("a symbolic link has no target, or another kind of path has one")
	case len(e.Target) > MaxPath || strings.IndexByte(e.Target, 0) >= 0:
		return errors.New("the target of a symbolic link is too long or contains a NUL byte")
	case e.Kind != KindFile && e.Kind != KindDir && e.Kind != KindSymlink:
		return fmt.Errorf("unknown kind %q", e.Kind)
	}
	return nil
}

// ETag returns the digest of a file's content. If the file has several blobs, it is the digest of their digests.
func (e *Entry) ETag() string {
	if len(e.Blobs) == 1 {
		return e.Blobs[0].ID.String()
	}
	var ids []byte
	for _, b := range e.Blobs {
		ids = append(ids, b.ID[:]...)
	}
	return objects.Sum(ids).String()
}
