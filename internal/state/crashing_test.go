package state_test

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/codefleet/codefleet/internal/objects"
)

// crashing fails all calls after a number of them, as if the worker had died.
type crashing struct {
	objects.Objects
	mu   sync.Mutex // calls are concurrent
	left int        // calls until the crash; negative if there is none
	lost bool       // if the crash comes with a swap, the swap is applied and only its response is lost
}

var errCrash = errors.New("crash")

// crashed counts a call, and reports whether it fails.
func (c *crashing) crashed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left > 0 {
		c.left--
	}
	return c.left == 0
}

func (c *crashing) Get(ctx context.Context, key string, o objects.GetOptions) (objects.Object, error) {
	if c.crashed() {
		return objects.Object{}, errCrash
	}
	return c.Objects.Get(ctx, key, o)
}

func (c *crashing) Put(ctx context.Context, key string, data []byte, sum objects.Digest) error {
	if c.crashed() {
		return errCrash
	}
	return c.Objects.Put(ctx, key, data, sum)
}

func (c *crashing) List(ctx context.Context, prefix, after string) iter.Seq2[objects.ObjectInfo, error] {
	if c.crashed() {
		return func(yield func(objects.ObjectInfo, error) bool) { yield(objects.ObjectInfo{}, errCrash) }
	}
	return c.Objects.List(ctx, prefix, after)
}

// Delete removes half of the objects if the worker dies.
func (c *crashing) Delete(ctx context.Context, keys ...string) error {
	if c.crashed() {
		return errors.Join(errCrash, c.Objects.Delete(ctx, keys[:len(keys)/2]...))
	}
	return c.Objects.Delete(ctx, keys...)
}

func (c *crashing) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	if !c.crashed() {
		return c.Objects.CompareAndSwap(ctx, key, old, data)
	}
	if c.lost {
		c.Objects.CompareAndSwap(ctx, key, old, data)
	}
	return "", errCrash
}
