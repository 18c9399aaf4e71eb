// Package objects defines the interface of an object store, such as an S3 bucket, and its errors.
//
// [Objects] is implemented by state/s3, by state/mem (in memory, for tests) and by decorators: [WithRetry], [Lazy],
// [Reopening] and the head modes below state/heads. The package itself speaks no protocol.
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

// Objects is an object store. Its objects are of two kinds: immutable ones, which Put writes once, and a few small
// ones, which only CompareAndSwap changes. No key is a directory of another key.
//
// Methods are safe for concurrent use. A call that fails with an error that wraps ErrTemporary may be retried, see
// [WithRetry].
type Objects interface {
	// Get reads an object, or the range that opts selects. It returns ErrNotFound if there is no object, and
	// ErrNotModified if opts.IfNoneMatch is still the object's ETag. A read that is cut short is an error.
	Get(ctx context.Context, key string, opts GetOptions) (Object, error)

	// Put writes an immutable object atomically: a reader sees all of data or nothing. sum is the SHA-256 of data,
	// which the store verifies on arrival. Putting the same data again is harmless. The caller may reuse data
	// afterwards.
	Put(ctx context.Context, key string, data []byte, sum Digest) error

	// CompareAndSwap writes an object if its ETag is still old, and returns the new ETag. An empty old means that the
	// object must not exist. The test and the write are one atomic step.
	//
	// ErrUnsafe means that the store refuses conditions, and nothing was written. ErrConflict means that another
	// version is stored; that may be this very write, if its response was lost and the client tried again. After any
	// other error the write may have happened, or may still happen. After all errors but ErrUnsafe, the caller must
	// read the object back to find out what is stored.
	CompareAndSwap(ctx context.Context, key, old string, data []byte) (etag string, err error)

	// List yields the objects whose keys start with prefix and are greater than after, in key order. An error ends the
	// sequence.
	List(ctx context.Context, prefix, after string) iter.Seq2[ObjectInfo, error]

	// Delete removes objects. Missing objects count as removed. After an error, some of the objects may be removed.
	Delete(ctx context.Context, keys ...string) error
}

// GetOptions narrows a Get; the zero value reads the whole object.
type GetOptions struct {
	IfNoneMatch string // ETag of the version that the caller has
	Offset      int64  // first byte
	Length      int64  // in bytes; 0 means to the end. A range beyond the end is an error.
	Buffer      []byte // used for Object.Data if its capacity suffices
}

// Object is what Get returns.
type Object struct {
	Data     []byte
	ETag     string
	Modified time.Time // by the store's clock, to the second
}

// ObjectInfo describes one object of a listing.
type ObjectInfo struct {
	Key      string
	Size     int64     // bytes
	Modified time.Time // by the store's clock, to the second
}

// Errors that callers branch on.
var (
	ErrNotFound    error = notFoundError{} // also matches fs.ErrNotExist
	ErrNotModified       = errors.New("not modified")
	ErrConflict          = errors.New("conflict")          // another writer changed the object first
	ErrTemporary         = errors.New("store unavailable") // overload, time-out or broken connection: may be retried
	ErrDenied            = errors.New("access denied")     // the store refused the credentials: nothing was done
	ErrNoBucket          = errors.New("no such bucket")
	ErrCorrupt           = errors.New("corrupt object") // the content does not match its digest or format
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

// UnmarshalText accepts 64 hexadecimal digits.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) != 2*len(d) {
		return fmt.Errorf("decode digest: %d characters, want %d", len(text), 2*len(d))
	}
	if _, err := hex.Decode(d[:], text); err != nil {
		return fmt.Errorf("decode digest: %w", err)
	}
	return nil
}

const replaceAttempts = 3

// Replace writes a small object over whatever is stored under its key; the last of several concurrent writers wins. If
// the object already equals data, Replace does not write. After replaceAttempts writes that lost a race or failed
// temporarily, it returns the last error. An error of a read is returned at once.
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

// Responds returns an error unless the store serves a read of its bucket with its credentials.
func Responds(ctx context.Context, store Objects) error {
	_, err := store.Get(ctx, "_probe/responds", GetOptions{})
	if err == nil || errors.Is(err, ErrNotFound) {
		return nil
	}
	return fmt.Errorf("read from the object store: %w", err)
}
