package assembly

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/tools"
)

// objects keeps versions of the catalogue in the fleet's bucket.
type objects struct{ open func() (state.Objects, error) }

// openObjects asks the settings at the first use: those of a fleet in one process do not say before
// where the bucket is.
func openObjects(c *config.Config) tools.Objects {
	return objects{sync.OnceValues(func() (state.Objects, error) { return Objects(c) })}
}

const (
	objectTime  = 10 * time.Second // of one request: a task may wait for it
	objectTries = 3
)

func (o objects) Get(ctx context.Context, key string) (data []byte, err error) {
	err = o.do(ctx, func(ctx context.Context, bucket state.Objects) error {
		object, err := bucket.Get(ctx, key, state.GetOptions{})
		data = object.Data
		return err
	})
	if errors.Is(err, state.ErrNotFound) {
		return nil, fmt.Errorf("%s: %w", key, fs.ErrNotExist)
	}
	return data, err
}

func (o objects) Put(ctx context.Context, key string, data []byte) error {
	return o.do(ctx, func(ctx context.Context, bucket state.Objects) error {
		return bucket.Put(ctx, key, data, sha256.Sum256(data))
	})
}

// Replace writes what others may write at the same time: the later one wins.
func (o objects) Replace(ctx context.Context, key string, data []byte) error {
	return o.do(ctx, func(ctx context.Context, bucket state.Objects) error {
		was, err := bucket.Get(ctx, key, state.GetOptions{})
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return err
		}
		if err == nil && bytes.Equal(was.Data, data) {
			return nil
		}
		_, err = bucket.CompareAndSwap(ctx, key, was.ETag, data)
		return err
	})
}

// do tries again what may be tried again.
func (o objects) do(ctx context.Context, request func(context.Context, state.Objects) error) error {
	bucket, err := o.open()
	if err != nil {
		return err
	}
	for range objectTries {
		attempt, cancel := context.WithTimeout(ctx, objectTime)
		err = request(attempt, bucket)
		cancel()
		if !errors.Is(err, state.ErrTemporary) && !errors.Is(err, state.ErrConflict) || ctx.Err() != nil {
			break
		}
	}
	return err
}
