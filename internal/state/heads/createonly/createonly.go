// Package createonly is the head mode for object stores that honour only one condition, If-None-Match: *.
//
// Each version of a HEAD is a separate object below the HEAD's key, numbered without gaps. The writer that creates a
// number first wins. The newest version is found by a listing, which takes one more request than If-Match.
package createonly

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/heads"
)

// New returns the HEADs of bucket.
func New(bucket objects.Objects) heads.Store { return &store{bucket: bucket} }

type store struct {
	bucket objects.Objects
	known  sync.Map // maps a HEAD's key to its listedVersion
}

// listedVersion is a version's object as a listing showed it, with the version's name.
type listedVersion struct {
	objects.ObjectInfo
	version string
}

const (
	numberDigits = 12
	pruneEvery   = 32 // versions
	// A number becomes free when its object is pruned. Only a writer that listed the objects before later versions
	// existed could create it again, but such a request times out long before this age.
	pruneAge = 24 * time.Hour
)

func objectKey(key string, n int64) string { return fmt.Sprintf("%s/%0*d", key, numberDigits, n) }

// parseObject returns the HEAD's key and the number of a version's object.
func parseObject(object string) (key string, n int64, ok bool) {
	i := len(object) - numberDigits - 1
	if i < 0 || object[i] != '/' || !strings.HasSuffix(object[:i], heads.Suffix) {
		return "", 0, false
	}
	n, err := strconv.ParseInt(object[i+1:], 10, 64)
	return object[:i], n, err == nil && n > 0
}

// formatVersion names a version by its number and its content. The number alone is not unique: if a HEAD is deleted and
// created again, numbers start again.
func formatVersion(n int64, data []byte) string {
	const digits = 16
	return fmt.Sprintf("%d-%s", n, objects.Sum(data).String()[:digits])
}

// parseVersion returns a version's number. The empty version, which stands for a missing HEAD, has number 0.
func parseVersion(version string) (int64, bool) {
	if version == "" {
		return 0, true
	}
	number, _, ok := strings.Cut(version, "-")
	n, err := strconv.ParseInt(number, 10, 64)
	return n, ok && err == nil && n > 0
}

// versions lists a HEAD's objects from number n on, oldest first.
func (s *store) versions(ctx context.Context, key string, n int64) ([]objects.ObjectInfo, error) {
	var out []objects.ObjectInfo
	for info, err := range s.bucket.List(ctx, key+"/", objectKey(key, n-1)) {
		if err != nil {
			return nil, err
		}
		if _, _, ok := parseObject(info.Key); ok {
			out = append(out, info)
		}
	}
	return out, nil
}

// read returns a listed object, with its version as the ETag.
func (s *store) read(ctx context.Context, key string, info objects.ObjectInfo) (objects.Object, error) {
	obj, err := s.bucket.Get(ctx, info.Key, objects.GetOptions{})
	if err != nil {
		return obj, err
	}
	_, n, _ := parseObject(info.Key)
	obj.ETag = formatVersion(n, obj.Data)
	s.known.Store(key, listedVersion{info, obj.ETag})
	return obj, nil
}

// isVersion reports whether a listed object is the given version.
func (s *store) isVersion(ctx context.Context, key string, info objects.ObjectInfo, version string) (bool, error) {
	if known, ok := s.known.Load(key); ok && known == (listedVersion{info, version}) {
		return true, nil
	}
	obj, err := s.read(ctx, key, info)
	if errors.Is(err, objects.ErrNotFound) {
		return false, nil
	}
	return obj.ETag == version, err
}

// Get implements heads.Store.
func (s *store) Get(ctx context.Context, key, version string) (objects.Object, error) {
	from, ok := parseVersion(version)
	if !ok {
		from = 0
	}
	for {
		found, err := s.versions(ctx, key, from)
		if err != nil {
			return objects.Object{}, err
		}
		if len(found) == 0 && from > 0 { // deleted, and perhaps created again
			from = 0
			continue
		}
		if len(found) == 0 {
			return objects.Object{}, fmt.Errorf("get %s: %w", key, objects.ErrNotFound)
		}
		newest := found[len(found)-1]
		if from > 0 && newest.Key == objectKey(key, from) {
			same, err := s.isVersion(ctx, key, newest, version)
			if err == nil && same {
				err = fmt.Errorf("get %s: %w", key, objects.ErrNotModified)
			}
			if err != nil {
				return objects.Object{}, err
			}
		}
		obj, err := s.read(ctx, key, newest)
		if errors.Is(err, objects.ErrNotFound) { // pruned since the listing, so it has a successor
			if err := ctx.Err(); err != nil {
				return objects.Object{}, err
			}
			continue
		}
		return obj, err
	}
}

// CompareAndSwap implements heads.Store.
func (s *store) CompareAndSwap(ctx context.Context, key, version string, data []byte) (string, error) {
	n, ok := parseVersion(version)
	if !ok {
		return "", fmt.Errorf("swap %s: version %q: %w", key, version, objects.ErrConflict)
	}
	// The number after a pruned version may be free, so make sure first that the version to replace is the newest.
	found, err := s.versions(ctx, key, n)
	if err != nil {
		return "", err
	}
	if n == 0 && len(found) > 0 || n > 0 && (len(found) != 1 || found[0].Key != objectKey(key, n)) {
		return "", fmt.Errorf("swap %s: %w", key, objects.ErrConflict)
	}
	if n > 0 {
		if same, err := s.isVersion(ctx, key, found[0], version); !same || err != nil {
			return "", cmp.Or(err, fmt.Errorf("swap %s: %w", key, objects.ErrConflict))
		}
	}
	if _, err := s.bucket.CompareAndSwap(ctx, objectKey(key, n+1), "", data); err != nil {
		return "", err
	}
	if (n+1)%pruneEvery == 0 {
		s.prune(ctx, key)
	}
	return formatVersion(n+1, data), nil
}

// prune removes the versions that were replaced more than pruneAge ago, by the store's clock. Errors are ignored,
// because the next prune removes what is left.
func (s *store) prune(ctx context.Context, key string) {
	found, err := s.versions(ctx, key, 0)
	if err != nil || len(found) == 0 {
		return
	}
	newest := found[len(found)-1].Modified
	var old []string
	for i, info := range found[:len(found)-1] {
		if newest.Sub(found[i+1].Modified) < pruneAge {
			break
		}
		old = append(old, info.Key)
	}
	if len(old) > 0 {
		_ = s.bucket.Delete(ctx, old...)
	}
}

// List implements heads.Store.
func (s *store) List(ctx context.Context, prefix string) ([]objects.ObjectInfo, error) {
	return heads.List(ctx, s.bucket, prefix, func(object string) (string, bool) {
		key, _, ok := parseObject(object)
		return key, ok
	})
}

// Delete implements heads.Store. It removes the newest version last, so that an older one never becomes the newest.
func (s *store) Delete(ctx context.Context, key string) error {
	found, err := s.versions(ctx, key, 0)
	if err != nil || len(found) == 0 {
		return err
	}
	s.known.Delete(key)
	var older []string
	newest := len(found) - 1
	for _, info := range found[:newest] {
		older = append(older, info.Key)
	}
	if err := s.bucket.Delete(ctx, older...); err != nil {
		return err
	}
	return s.bucket.Delete(ctx, found[newest].Key)
}
