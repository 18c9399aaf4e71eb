package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/objects"
)

// Heads keeps the few objects that change, for an object store that cannot: those whose key ends in
// /HEAD. Versions are what ETags are of Objects. Methods may be called at the same time.
type Heads interface {
	// Get returns ErrNotFound, or ErrNotModified when version is still the newest.
	Get(ctx context.Context, key, version string) (objects.Object, error)

	// CompareAndSwap has the contract of Objects.
	CompareAndSwap(ctx context.Context, key, version string, data []byte) (string, error)

	// List returns what there is below prefix, in the order of keys.
	List(ctx context.Context, prefix string) ([]objects.ObjectInfo, error)

	// Delete removes the object; one that does not exist counts as removed.
	Delete(ctx context.Context, key string) error
}

// WithHeads returns bucket with its changing objects kept by heads. All workers of a store must
// keep them in the same way, see Agree.
func WithHeads(bucket objects.Objects, heads Heads) objects.Objects { return &split{bucket, heads} }

// headSuffix ends the keys of objects that change. A name below one of them is its keeper's.
const headSuffix = "/HEAD"

// split sends each request to where its object is.
type split struct {
	objects.Objects
	heads Heads
}

// Get implements Objects.
func (s *split) Get(ctx context.Context, key string, opts objects.GetOptions) (objects.Object, error) {
	if strings.HasSuffix(key, headSuffix) {
		return s.heads.Get(ctx, key, opts.IfNoneMatch)
	}
	return s.Objects.Get(ctx, key, opts)
}

// CompareAndSwap implements Objects.
func (s *split) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	if !strings.HasSuffix(key, headSuffix) {
		return "", fmt.Errorf("swap %s: only keys that end in %s change", key, headSuffix)
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
			if strings.Contains(info.Key+"/", headSuffix+"/") {
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
		if !strings.HasSuffix(key, headSuffix) {
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

// markerPrefix begins the names of objects that say how a store's heads are kept.
const markerPrefix = "_heads/"

// Agree makes sure that everybody keeps the heads of a store in the same way: the first one notes
// how, and an error tells later ones that name another way. Two ways at once would be two histories.
func Agree(ctx context.Context, bucket objects.Objects, how string) error {
	bucket = objects.WithRetry(bucket, objects.RetryPolicy{})
	known, err := markers(ctx, bucket)
	if err == nil && len(known) == 0 {
		if err = bucket.Put(ctx, markerPrefix+how, nil, objects.Sum(nil)); err == nil {
			known, err = markers(ctx, bucket) // another first one may have come as well
		}
	}
	if err != nil {
		return fmt.Errorf("see how heads are kept: %w", err)
	}
	if !slices.Equal(known, []string{how}) {
		return fmt.Errorf("%w: heads are kept by %s here (object %s), not by %s", ErrConflict, strings.Join(known, " and "), markerPrefix+known[0], how)
	}
	return nil
}

// Agree is the function of the same name for the object store of s.
func (s *Store) Agree(ctx context.Context, how string) error { return Agree(ctx, s.objects, how) }

func markers(ctx context.Context, bucket objects.Objects) ([]string, error) {
	var known []string
	for info, err := range bucket.List(ctx, markerPrefix, "") {
		if err != nil {
			return nil, err
		}
		known = append(known, strings.TrimPrefix(info.Key, markerPrefix))
	}
	return known, nil
}

// listed collects the objects below prefix that keep accepts, under the keys that it gives them,
// the last of those with the same key.
func listed(ctx context.Context, bucket objects.Objects, prefix string, keep func(key string) (string, bool)) ([]objects.ObjectInfo, error) {
	var out []objects.ObjectInfo
	for info, err := range bucket.List(ctx, prefix, "") {
		if err != nil {
			return nil, err
		}
		key, ok := keep(info.Key)
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

// notModified turns a read of the version that the caller has into ErrNotModified.
func notModified(key string, obj objects.Object, version string, err error) (objects.Object, error) {
	if err == nil && version != "" && obj.ETag == version {
		return objects.Object{}, fmt.Errorf("get %s: %w", key, objects.ErrNotModified)
	}
	return obj, err
}

// SingleWriter keeps heads on a store that ignores or refuses conditions, by looking before it
// writes. That is safe only as long as lock keeps out every other writer, and it knows those of this
// host at most: a fleet whose workspaces are written from two hosts loses commits without a trace.
func SingleWriter(bucket objects.Objects, lock func(context.Context) (unlock func(), err error)) Heads {
	return &singleWriter{bucket, lock}
}

type singleWriter struct {
	objects objects.Objects
	lock    func(context.Context) (func(), error)
}

func (w *singleWriter) Get(ctx context.Context, key, version string) (objects.Object, error) {
	obj, err := w.objects.Get(ctx, key, objects.GetOptions{})
	return notModified(key, obj, version, err)
}

func (w *singleWriter) CompareAndSwap(ctx context.Context, key, version string, data []byte) (string, error) {
	unlock, err := w.lock(ctx)
	if err != nil {
		return "", fmt.Errorf("swap %s: %w", key, err)
	}
	defer unlock()
	now, err := w.objects.Get(ctx, key, objects.GetOptions{})
	if err != nil && !errors.Is(err, ErrNotFound) {
		return "", err
	}
	if now.ETag != version {
		return "", fmt.Errorf("swap %s: %w", key, ErrConflict)
	}
	if err := w.objects.Put(ctx, key, data, objects.Sum(data)); err != nil {
		return "", err
	}
	now, err = w.objects.Get(ctx, key, objects.GetOptions{})
	return now.ETag, err
}

func (w *singleWriter) List(ctx context.Context, prefix string) ([]objects.ObjectInfo, error) {
	return listed(ctx, w.objects, prefix, func(key string) (string, bool) { return key, strings.HasSuffix(key, headSuffix) })
}

func (w *singleWriter) Delete(ctx context.Context, key string) error {
	return w.objects.Delete(ctx, key)
}
