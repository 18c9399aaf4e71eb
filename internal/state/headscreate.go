package state

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
)

// CreateOnly keeps heads on a store that honours If-None-Match: * and nothing else. Each version of a
// head is an object of its own, numbered without a gap; whoever creates a number first has won. What
// is the newest is found by a listing, one more request than with If-Match.
func CreateOnly(bucket objects.Objects) Heads { return &createOnly{objects: bucket} }

type createOnly struct {
	objects objects.Objects
	known   sync.Map // key to seen: what the newest object was found to hold
}

// seen is an object of which a listing tells enough.
type seen struct {
	objects.ObjectInfo
	version string
}

const (
	headDigits = 12
	pruneEvery = 32 // versions
	// A number may be used again once it is removed, by a writer that looked before all the later ones
	// were there and writes after. Requests are cut off long before this time.
	pruneAge = 24 * time.Hour
)

func headObject(key string, n int64) string { return fmt.Sprintf("%s/%0*d", key, headDigits, n) }

// headNumber is the number in the name of a version's object.
func headNumber(object string) (key string, n int64, ok bool) {
	i := len(object) - headDigits - 1
	if i < 0 || object[i] != '/' || !strings.HasSuffix(object[:i], headSuffix) {
		return "", 0, false
	}
	n, err := strconv.ParseInt(object[i+1:], 10, 64)
	return object[:i], n, err == nil && n > 0
}

// after returns the versions of a head from n on, oldest first.
func (c *createOnly) after(ctx context.Context, key string, n int64) ([]objects.ObjectInfo, error) {
	var out []objects.ObjectInfo
	for info, err := range c.objects.List(ctx, key+"/", headObject(key, n-1)) {
		if err != nil {
			return nil, err
		}
		if _, _, ok := headNumber(info.Key); ok {
			out = append(out, info)
		}
	}
	return out, nil
}

// headVersion names what an object holds: a number alone comes again when a head was deleted and another
// begins under its key.
func headVersion(n int64, data []byte) string {
	const digits = 16
	return fmt.Sprintf("%d-%s", n, objects.Sum(data).String()[:digits])
}

// parseVersion returns 0 for none.
func parseVersion(version string) (int64, bool) {
	if version == "" {
		return 0, true
	}
	number, _, ok := strings.Cut(version, "-")
	n, err := strconv.ParseInt(number, 10, 64)
	return n, ok && err == nil && n > 0
}

// read returns an object that was listed, with its version for an ETag.
func (c *createOnly) read(ctx context.Context, key string, info objects.ObjectInfo) (objects.Object, error) {
	obj, err := c.objects.Get(ctx, info.Key, objects.GetOptions{})
	if err != nil {
		return obj, err
	}
	_, n, _ := headNumber(info.Key)
	obj.ETag = headVersion(n, obj.Data)
	c.known.Store(key, seen{info, obj.ETag})
	return obj, nil
}

// holds reports whether an object that was listed is the given version.
func (c *createOnly) holds(ctx context.Context, key string, info objects.ObjectInfo, version string) (bool, error) {
	if known, ok := c.known.Load(key); ok && known == (seen{info, version}) {
		return true, nil
	}
	obj, err := c.read(ctx, key, info)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return obj.ETag == version, err
}

// Get implements Heads. A newest version that is pruned between listing and reading has a successor.
func (c *createOnly) Get(ctx context.Context, key, version string) (objects.Object, error) {
	from, ok := parseVersion(version)
	if !ok {
		from = 0
	}
	for {
		found, err := c.after(ctx, key, from)
		if err != nil {
			return objects.Object{}, err
		}
		if len(found) == 0 && from > 0 { // deleted and begun anew, or deleted
			from = 0
			continue
		}
		if len(found) == 0 {
			return objects.Object{}, fmt.Errorf("get %s: %w", key, ErrNotFound)
		}
		newest := found[len(found)-1]
		if from > 0 && newest.Key == headObject(key, from) {
			same, err := c.holds(ctx, key, newest, version)
			if same || err != nil {
				return objects.Object{}, errors.Join(err, sameVersion(key, same))
			}
		}
		obj, err := c.read(ctx, key, newest)
		if errors.Is(err, ErrNotFound) {
			if err := ctx.Err(); err != nil {
				return objects.Object{}, err
			}
			continue
		}
		return obj, err
	}
}

func sameVersion(key string, same bool) error {
	if !same {
		return nil
	}
	return fmt.Errorf("get %s: %w", key, objects.ErrNotModified)
}

// CompareAndSwap implements Heads.
func (c *createOnly) CompareAndSwap(ctx context.Context, key, version string, data []byte) (string, error) {
	n, ok := parseVersion(version)
	if !ok {
		return "", fmt.Errorf("swap %s: version %q: %w", key, version, ErrConflict)
	}
	// The number after a version that was pruned is free again: look first.
	found, err := c.after(ctx, key, n)
	if err != nil {
		return "", err
	}
	if n == 0 && len(found) > 0 || n > 0 && (len(found) != 1 || found[0].Key != headObject(key, n)) {
		return "", fmt.Errorf("swap %s: %w", key, ErrConflict)
	}
	if n > 0 {
		if same, err := c.holds(ctx, key, found[0], version); !same || err != nil {
			return "", cmp.Or(err, fmt.Errorf("swap %s: %w", key, ErrConflict))
		}
	}
	if _, err := c.objects.CompareAndSwap(ctx, headObject(key, n+1), "", data); err != nil {
		return "", err
	}
	if (n+1)%pruneEvery == 0 {
		c.prune(ctx, key)
	}
	return headVersion(n+1, data), nil
}

// prune removes versions that were replaced long ago, by the store's clock. What it leaves is
// removed another time.
func (c *createOnly) prune(ctx context.Context, key string) {
	found, err := c.after(ctx, key, 0)
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
		_ = c.objects.Delete(ctx, old...)
	}
}

// List implements Heads.
func (c *createOnly) List(ctx context.Context, prefix string) ([]objects.ObjectInfo, error) {
	return listed(ctx, c.objects, prefix, func(object string) (string, bool) {
		key, _, ok := headNumber(object)
		return key, ok
	})
}

// Delete implements Heads. The newest version goes last: those before it must not come to light.
func (c *createOnly) Delete(ctx context.Context, key string) error {
	found, err := c.after(ctx, key, 0)
	if err != nil || len(found) == 0 {
		return err
	}
	c.known.Delete(key)
	var older []string
	newest := len(found) - 1
	for _, info := range found[:newest] {
		older = append(older, info.Key)
	}
	if err := c.objects.Delete(ctx, older...); err != nil {
		return err
	}
	return c.objects.Delete(ctx, found[newest].Key)
}
