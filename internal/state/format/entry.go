package format

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/codefleet/codefleet/internal/objects"
)

// Kind is what a path is.
type Kind byte

// The kinds of paths; their values are those of the format.
const (
	KindFile  Kind = 'f'
	KindDir   Kind = 'd'
	KindLink  Kind = 'l'
	KindOther Kind = 'x' // socket, pipe, device: never stored
)

// Pack names an immutable pack. All blobs of one pack share the pointer. The fields are zero while the pack is filled.
type Pack struct {
	ID   objects.Digest
	Size int64  // bytes
	Key  string // id of the key that encrypts it; empty: unencrypted
}

// overhead is how many bytes the encryption adds to each blob.
func (p *Pack) overhead() int64 {
	if p.Key == "" {
		return 0
	}
	return gcmOverhead
}

// Blob is where a piece of content lies in a pack. The content is stored raw if Stored == Raw, else as one zstd frame.
// In an encrypted pack Stored counts the overhead of the encryption too.
type Blob struct {
	ID     objects.Digest // of the content
	Pack   *Pack
	Offset int64 // in the pack
	Stored int64 // bytes in the pack
	Raw    int64 // bytes of the content
}

// Entry is one path of a version. Entries are shared between versions and immutable.
type Entry struct {
	Path  string
	Kind  Kind
	Mode  uint32 // permission bits only
	Size  int64  // bytes of a file
	MTime int64  // nanoseconds since 1970; entries that differ in it alone are the same
	Link  string // target of a symbolic link
	Blobs []Blob
}

// SameContent reports whether e and other have the same kind and the same content or target.
func (e *Entry) SameContent(other *Entry) bool {
	if e == other {
		return true
	}
	if e == nil || other == nil || e.Kind != other.Kind || e.Size != other.Size || e.Link != other.Link {
		return false
	}
	return slices.EqualFunc(e.Blobs, other.Blobs, func(x, y Blob) bool { return x.ID == y.ID })
}

// Same reports whether e and other have the same content and permissions. Both may be nil.
func (e *Entry) Same(other *Entry) bool {
	return e == other || e.SameContent(other) && (e.Kind == KindLink || e.Mode == other.Mode)
}

// IsDir reports whether e is a directory; nil is not.
func (e *Entry) IsDir() bool { return e != nil && e.Kind == KindDir }

// Check validates an entry, except for its path.
func (e *Entry) Check() error {
	var total int64
	for _, b := range e.Blobs {
		total += b.Raw
	}
	switch {
	case e.Mode&^0o777 != 0:
		return fmt.Errorf("mode %o", e.Mode)
	case e.Size != total:
		return fmt.Errorf("size %d, content has %d", e.Size, total)
	case e.Kind != KindFile && total != 0:
		return errors.New("content of a directory or link")
	case (e.Kind == KindLink) != (e.Link != ""):
		return errors.New("link without a target, or a target without a link")
	case len(e.Link) > MaxPath || bytes.IndexByte([]byte(e.Link), 0) >= 0:
		return errors.New("link target is too long or has a NUL")
	case e.Kind != KindFile && e.Kind != KindDir && e.Kind != KindLink:
		return fmt.Errorf("type %q", e.Kind)
	}
	return nil
}

// ETag returns the digest of a file's content, or of the digests of its blobs when it has several.
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
