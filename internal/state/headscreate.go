package state

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// CreateOnly keeps heads on a store that honours If-None-Match: * and nothing else. Each version of a
// head is an object of its own, numbered without a gap; whoever creates a number first has won. What
// is the newest is found by a listing, one more request than with If-Match.
func CreateOnly(objects Objects) Heads { return &createOnly{objects} }

type createOnly struct{ objects Objects }

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
func (c *createOnly) after(ctx context.Context, key string, n int64) ([]ObjectInfo, error) {
	var out []ObjectInfo
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

// parseVersion returns 0 for none.
func parseVersion(version string) (int64, bool) {
	if version == "" {
		return 0, true
	}
	n, err := strconv.ParseInt(version, 10, 64)
	return n, err == nil && n > 0
}

// Get implements Heads. A newest version that is pruned between listing and reading has a successor.
func (c *createOnly) Get(ctx context.Context, key, version string) (Object, error) {
	from, ok := parseVersion(version)
	if !ok {
		from = 0
	}
	for {
		found, err := c.after(ctx, key, from)
		if err != nil {
			return Object{}, err
		}
		if len(found) == 0 && from > 0 { // deleted and begun anew, or deleted
			from = 0
			continue
		}
		if len(found) == 0 {
			return Object{}, fmt.Errorf("get %s: %w", key, ErrNotFound)
		}
		_, n, _ := headNumber(found[len(found)-1].Key)
		if from > 0 && n == from {
			return Object{}, fmt.Errorf("get %s: %w", key, ErrNotModified)
		}
		obj, err := c.objects.Get(ctx, headObject(key, n), GetOptions{})
		if errors.Is(err, ErrNotFound) {
			if err := ctx.Err(); err != nil {
				return Object{}, err
			}
			continue
		}
		obj.ETag = strconv.FormatInt(n, 10)
		return obj, err
	}
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
	if _, err := c.objects.CompareAndSwap(ctx, headObject(key, n+1), "", data); err != nil {
		return "", err
	}
	if (n+1)%pruneEvery == 0 {
		c.prune(ctx, key)
	}
	return strconv.FormatInt(n+1, 10), nil
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
func (c *createOnly) List(ctx context.Context, prefix string) ([]ObjectInfo, error) {
	return listed(ctx, c.objects, prefix, func(object string) (string, bool) {
		key, _, ok := headNumber(object)
		return key, ok
	})
}

// Delete implements Heads.
func (c *createOnly) Delete(ctx context.Context, key string) error {
	found, err := c.after(ctx, key, 0)
	if err != nil || len(found) == 0 {
		return err
	}
	keys := make([]string, len(found))
	for i, info := range found {
		keys[i] = info.Key
	}
	return c.objects.Delete(ctx, keys...)
}
