// Package heads stores the objects that change (HEADs) apart from the other objects, for object stores that do not
// honour conditional writes. The packages below it are the head modes: createonly, singlewriter and natsheads. Only
// the code that constructs the object store imports them.
package heads

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/objects"
)

// Store keeps the objects whose key ends in Suffix. A version plays the part of the ETag in objects.Objects. Methods
// are safe for concurrent use.
type Store interface {
	// Get returns objects.ErrNotFound, or objects.ErrNotModified if version is still the newest.
	Get(ctx context.Context, key, version string) (objects.Object, error)

	// CompareAndSwap has the contract of objects.Objects.
	CompareAndSwap(ctx context.Context, key, version string, data []byte) (string, error)

	// List returns the heads below prefix, in the order of keys.
	List(ctx context.Context, prefix string) ([]objects.ObjectInfo, error)

	// Delete removes a head; one that does not exist counts as removed.
	Delete(ctx context.Context, key string) error
}

// Suffix ends the keys of objects that change. A head mode may keep objects of its own below such a key.
const Suffix = "/HEAD"

// With returns bucket, but with its HEADs kept in store. All processes that use a bucket must keep them in the same
// way; see RequireMode.
func With(bucket objects.Objects, store Store) objects.Objects { return &split{bucket, store} }

// split sends requests for HEADs to heads, and all others to Objects.
type split struct {
	objects.Objects
	heads Store
}

// Get implements Objects.
func (s *split) Get(ctx context.Context, key string, opts objects.GetOptions) (objects.Object, error) {
	if strings.HasSuffix(key, Suffix) {
		return s.heads.Get(ctx, key, opts.IfNoneMatch)
	}
	return s.Objects.Get(ctx, key, opts)
}

// CompareAndSwap implements Objects.
func (s *split) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	if !strings.HasSuffix(key, Suffix) {
		return "", fmt.Errorf("swap %s: only keys that end in %s change", key, Suffix)
	}
	return s.heads.CompareAndSwap(ctx, key, old, data)
}

// List implements Objects.
func (s *split) List(ctx context.Context, prefix, after string) iter.Seq2[objects.ObjectInfo, error] {
	return func(yield func(objects.ObjectInfo, error) bool) {
		heads, err := s.heads.List(ctx, prefix)
		if err != nil {
			yield(objects.ObjectInfo{}, err)
			return
		}
		heads = slices.DeleteFunc(heads, func(i objects.ObjectInfo) bool { return i.Key <= after })
		for info, err := range s.Objects.List(ctx, prefix, after) {
			if err != nil {
				yield(objects.ObjectInfo{}, err)
				return
			}
			if strings.Contains(info.Key+"/", Suffix+"/") {
				continue
			}
			for len(heads) > 0 && heads[0].Key < info.Key {
				if !yield(heads[0], nil) {
					return
				}
				heads = heads[1:]
			}
			if !yield(info, nil) {
				return
			}
		}
		for _, info := range heads {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// Delete implements Objects.
func (s *split) Delete(ctx context.Context, keys ...string) error {
	var rest []string
	for _, key := range keys {
		if !strings.HasSuffix(key, Suffix) {
			rest = append(rest, key)
			continue
		}
		if err := s.heads.Delete(ctx, key); err != nil {
			return err
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return s.Objects.Delete(ctx, rest...)
}

// List returns the HEADs of which bucket has objects below prefix, sorted by key. headOf returns the key of the HEAD
// that an object belongs to, if any. A HEAD with several objects has the size and time of the last one.
func List(
	ctx context.Context, bucket objects.Objects, prefix string, headOf func(object string) (key string, ok bool),
) ([]objects.ObjectInfo, error) {
	var out []objects.ObjectInfo
	for info, err := range bucket.List(ctx, prefix, "") {
		if err != nil {
			return nil, err
		}
		key, ok := headOf(info.Key)
		if !ok {
			continue
		}
		info.Key = key
		if n := len(out); n > 0 && out[n-1].Key == key {
			out[n-1] = info
			continue
		}
		out = append(out, info)
	}
	slices.SortStableFunc(out, func(a, b objects.ObjectInfo) int { return cmp.Compare(a.Key, b.Key) })
	return out, nil
}
