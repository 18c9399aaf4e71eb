// Package objects is the interface of an object store, such as a bucket of S3, with its errors.
//
// [Objects] is implemented by state/s3, by state/mem (in memory, for tests) and by decorators:
// [WithRetry], [Lazy] and the head modes below state/heads. The package speaks no protocol of its own.
package objects

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"time"
)

// Objects is an object store. Two kinds of key exist: keys written once with Put and never changed, and
// a few small keys that only CompareAndSwap changes. No key is a prefix of another one at a slash.
//
// Methods are safe for concurrent use. An error that wraps ErrTemporary may be retried, see [WithRetry].
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
	// ErrConflict: another version is stored, or this very write was applied, its
	// answer was lost and the client tried again. After any other error the write
	// may or may not have happened, or may still happen. In both cases the caller
	// must read the object back before it decides. ErrUnsafe: the store refuses
	// conditions, and nothing was written.
	CompareAndSwap(ctx context.Context, key, old string, data []byte) (etag string, err error)

	// List yields the objects whose key starts with prefix and is greater than
	// after, in the order of their keys. An error ends the sequence.
	List(ctx context.Context, prefix, after string) iter.Seq2[ObjectInfo, error]

	// Delete removes objects; those that do not exist count as removed.
	// After an error some may be removed.
	Delete(ctx context.Context, keys ...string) error
}

// GetOptions narrows a Get; the zero value reads the whole object.
type GetOptions struct {
	IfNoneMatch string // an ETag as the store returned it
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

// Errors that callers branch on.
var (
	ErrNotFound    error = notFoundError{} // is fs.ErrNotExist too
	ErrNotModified       = errors.New("not modified")
	ErrConflict          = errors.New("conflict")          // another writer changed it first
	ErrTemporary         = errors.New("store unavailable") // may be retried: overload, time-out, broken connection
	ErrCorrupt           = errors.New("corrupt object")    // content does not match its digest or its format
	ErrUnsafe            = errors.New("object store does not honour conditional writes")
)

type notFoundError struct{}

func (notFoundError) Error() string        { return "not found" }
func (notFoundError) Is(target error) bool { return target == fs.ErrNotExist }

// Digest is a SHA-256.
type Digest [sha256.Size]byte

// Sum returns the digest of data.
func Sum(data []byte) Digest { return sha256.Sum256(data) }

// String returns 64 hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Compare orders digests by their bytes.
func (d Digest) Compare(other Digest) int { return bytes.Compare(d[:], other[:]) }

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

const replaceAttempts = 3

// Replace writes a small object over whatever is stored under its key: of concurrent writers the last one
// wins. It does not write data that is stored already.
func Replace(ctx context.Context, store Objects, key string, data []byte) error {
	var err error
	for range replaceAttempts {
		old, getErr := store.Get(ctx, key, GetOptions{})
		if getErr != nil && !errors.Is(getErr, ErrNotFound) {
			return getErr
		}
		if getErr == nil && bytes.Equal(old.Data, data) {
			return nil
		}
		_, err = store.CompareAndSwap(ctx, key, old.ETag, data)
		if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrTemporary) {
			return err
		}
	}
	return err
}
