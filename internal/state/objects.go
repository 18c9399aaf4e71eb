package state

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Objects is the object store below a [Store]. Two kinds of key exist: keys
// written once with Put and never changed, and a few small keys changed with
// CompareAndSwap only. No key is a prefix of another one at a slash.
//
// Methods may be called at the same time. An error that wraps ErrTemporary may
// be tried again; [New] wraps every Objects so that reads and Puts are.
type Objects interface {
	// Get reads an object, or the part that opts names. It returns ErrNotFound,
	// or ErrNotModified when opts.IfNoneMatch is still the object's ETag.
	// A read that was cut short is an error, never short data.
	Get(ctx context.Context, key string, opts GetOptions) (Object, error)

	// Put writes an immutable object atomically: a reader sees all of data or
	// nothing. sum is the SHA-256 of data, which the store verifies on arrival.
	// Putting the same data again is harmless. The caller may reuse data afterwards.
	Put(ctx context.Context, key string, data []byte, sum Digest) error

	// CompareAndSwap writes key if its ETag is still old, or if it does not exist
	// when old is empty, and returns the new ETag. The test and the write are one
	// step for all writers of the store.
	//
	// ErrConflict: somebody else's version is there, or this very write is, after
	// its answer was lost and the client tried again. After any other error the
	// write may or may not have happened, or may still happen. In both cases
	// the caller must read the object back before it decides. ErrUnsafe: the store
	// refuses conditions, and nothing was written.
	CompareAndSwap(ctx context.Context, key, old string, data []byte) (etag string, err error)

	// List yields the objects whose key starts with prefix and is greater than
	// after, in the order of their keys. An error ends the sequence.
	List(ctx context.Context, prefix, after string) iter.Seq2[ObjectInfo, error]

	// Delete removes objects; those that do not exist count as removed.
	// After an error some may be gone.
	Delete(ctx context.Context, keys ...string) error
}

// GetOptions narrows a Get; the zero value reads the whole object.
type GetOptions struct {
	IfNoneMatch string // an ETag as the store gave it
	Offset      int64  // first byte
	Length      int64  // bytes; 0 reads to the end. A range beyond the end is an error
	Buffer      []byte // used for Object.Data when its capacity suffices
}

// Object is what Get returns.
type Object struct {
	Data     []byte
	ETag     string
	Modified time.Time // by the store's clock, in seconds
}

// ObjectInfo is one entry of a listing.
type ObjectInfo struct {
	Key      string
	Size     int64     // bytes
	Modified time.Time // by the store's clock, in seconds
}

// Errors of Objects and of Store that callers branch on.
var (
	ErrNotFound    = errors.New("not found")
	ErrNotModified = errors.New("not modified")
	ErrConflict    = errors.New("conflict")          // somebody else changed it first
	ErrTemporary   = errors.New("store unavailable") // may be tried again: overload, time-out, broken connection
	ErrDeleted     = errors.New("workspace was deleted")
	ErrCorrupt     = errors.New("corrupt object") // content does not match its digest or its format
	ErrUnsafe      = errors.New("object store does not honour conditional writes")
	ErrKey         = errors.New("no key for it")
	ErrQuota       = errors.New("workspace quota exceeded")
	ErrDiskFull    = errors.New("no space left on the worker's disk")
)

// Digest is a SHA-256.
type Digest [sha256.Size]byte

// Sum returns the digest of data.
func Sum(data []byte) Digest { return sha256.Sum256(data) }

// String returns 64 hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// IsZero reports whether d was never set.
func (d Digest) IsZero() bool { return d == Digest{} }

func (d Digest) compare(other Digest) int { return bytes.Compare(d[:], other[:]) }

// MarshalText writes 64 hexadecimal digits.
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText reads what MarshalText writes and nothing else.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) != 2*len(d) {
		return fmt.Errorf("digest has %d characters, want %d", len(text), 2*len(d))
	}
	if _, err := hex.Decode(d[:], text); err != nil {
		return fmt.Errorf("digest: %w", err)
	}
	return nil
}
