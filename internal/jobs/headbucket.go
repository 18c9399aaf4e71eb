package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const bucketHeads = "HEADS"

// Errors of HeadBucket.
var (
	ErrHeadNotFound = errors.New("no such head")
	ErrHeadConflict = errors.New("head has a different revision")
)

// HeadBucket is a bucket of small values that are changed by compare-and-swap: the HEADs of workspaces whose object
// store has no conditional writes. A key consists of parts, joined by /, of letters, digits, - and _. A HeadBucket is
// safe for concurrent use.
type HeadBucket struct {
	kv jetstream.KeyValue
	c  *Client
}

// HeadValue is one value of a HeadBucket.
type HeadValue struct {
	Key      string
	Data     []byte
	Revision uint64 // unique in the bucket
	Modified time.Time
}

// OpenHeadBucket opens the bucket and creates it if necessary.
func (c *Client) OpenHeadBucket(ctx context.Context) (*HeadBucket, error) {
	replicas, err := c.replicas(ctx)
	if err != nil {
		return nil, err
	}
	err = c.provisionBucket(ctx, jetstream.KeyValueConfig{
		Bucket: bucketHeads, Description: "newest versions of workspaces", History: 1,
		Storage: jetstream.FileStorage, Replicas: replicas,
	})
	if err != nil {
		return nil, err
	}
	kv, err := c.js.KeyValue(ctx, bucketHeads)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", bucketHeads, err)
	}
	return &HeadBucket{kv, c}, nil
}

// headToken replaces slashes with dots, so that the server's wildcards match parts of a key.
func headToken(key string) string { return strings.ReplaceAll(key, "/", ".") }

// Get returns the head of a key, or ErrHeadNotFound.
func (h *HeadBucket) Get(ctx context.Context, key string) (HeadValue, error) {
	last, err := h.c.keyOfLeader(ctx, bucketHeads, headToken(key))
	if err == nil && len(last.Data) == 0 {
		err = ErrHeadNotFound
	}
	if err != nil {
		return HeadValue{}, fmt.Errorf("head %s: %w", key, err)
	}
	return HeadValue{key, last.Data, last.Seq, last.Time}, nil
}

// Swap writes a head if it still has the given revision, and returns the new one. Revision 0 means that the head
// does not exist. After ErrHeadConflict nothing was written; after any other error the head may have been written.
func (h *HeadBucket) Swap(ctx context.Context, key string, revision uint64, data []byte) (uint64, error) {
	next, err := swapKey(ctx, h.kv, headToken(key), data, revision)
	if errors.Is(err, errStale) {
		err = ErrHeadConflict
	}
	if err != nil {
		return 0, fmt.Errorf("head %s: %w", key, err)
	}
	return next, nil
}

// swapKey writes a key's value if it still has revision rev, and returns the new revision. Revision 0 means that the
// key does not exist. After errStale nothing was written.
func swapKey(
	ctx context.Context, kv jetstream.KeyValue, key string, data []byte, rev uint64,
) (next uint64, err error) {
	if rev == 0 {
		next, err = kv.Create(ctx, key, data)
	} else {
		next, err = kv.Update(ctx, key, data, rev)
	}
	if errors.Is(err, jetstream.ErrKeyExists) || isWrongRevision(err) {
		err = errStale
	}
	return next, err
}

// List returns the heads whose keys begin with prefix, sorted by key.
func (h *HeadBucket) List(ctx context.Context, prefix string) ([]HeadValue, error) {
	filter := ">"
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		filter = headToken(prefix[:i+1]) + ">"
	}
	entries, err := keysOf(ctx, h.kv, filter)
	if err != nil {
		return nil, fmt.Errorf("list heads: %w", err)
	}
	var out []HeadValue
	for _, e := range entries {
		if key := strings.ReplaceAll(e.Key(), ".", "/"); strings.HasPrefix(key, prefix) {
			out = append(out, HeadValue{key, e.Value(), e.Revision(), e.Created()})
		}
	}
	slices.SortFunc(out, func(a, b HeadValue) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

// keysOf returns the keys that match filter, with their values.
func keysOf(ctx context.Context, kv jetstream.KeyValue, filter string) (out []jetstream.KeyValueEntry, err error) {
	w, err := kv.Watch(ctx, filter, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, err
	}
	defer endWatch(w)
	for {
		e, err := nextUpdate(ctx, w)
		if err != nil {
			return nil, err
		}
		if e == nil {
			return out, nil
		}
		out = append(out, e)
	}
}

// Delete removes a head. It returns nil if the head does not exist.
func (h *HeadBucket) Delete(ctx context.Context, key string) error {
	if err := h.kv.Purge(ctx, headToken(key)); err != nil {
		return fmt.Errorf("head %s: %w", key, err)
	}
	return nil
}
