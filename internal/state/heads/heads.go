// Package heads stores the objects that change (HEADs) in another way than the others, for object stores that do not
// honour conditional writes. The packages below it are the head modes: createonly, singlewriter and natsheads. Only the
// code that constructs the object store imports them.
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

// Store stores the HEADs: the objects whose keys end in Suffix. A version takes the place of the ETag of
// objects.Objects. Methods are safe for concurrent use.
type Store interface {
	// Get returns a HEAD. It returns objects.ErrNotFound if it does not exist, and objects.ErrNotModified if version is
	// still the newest.
	Get(ctx context.Context, key, version string) (objects.Object, error)

	// CompareAndSwap has the contract of objects.Objects.
	CompareAndSwap(ctx context.Context, key, version string, data []byte) (string, error)

	// List returns the HEADs whose keys start with prefix, in key order.
	List(ctx context.Context, prefix string) ([]objects.ObjectInfo, error)

	// Delete removes a HEAD. A missing HEAD counts as removed.
	Delete(ctx context.Context, key string) error
}

// Suffix ends the keys of objects that change. A head mode may store its own objects below such a key.
const Suffix = "/HEAD"

// With returns a store with the objects of bucket and the HEADs of store. All processes that use a bucket must use the
// same head mode; see RequireMode.
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
		return "", fmt.Errorf("swap %s: only objects whose keys end in %s can be swapped", key, Suffix)
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
	var others []string
	for _, key := range keys {
		if !strings.HasSuffix(key, Suffix) {
			others = append(others, key)
			continue
		}
		if err := s.heads.Delete(ctx, key); err != nil {
			return err
		}
	}
	if len(others) == 0 {
		return nil
	}
	return s.Objects.Delete(ctx, others...)
}

// List returns the HEADs to which the objects of bucket below prefix belong, sorted by key. headOf returns the key of
// an object's HEAD; ok is false if it belongs to none. A HEAD with several objects has the size and time of the last
// one.
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
