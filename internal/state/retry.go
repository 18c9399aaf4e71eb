package state

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// retrying tries again what may be tried again: everything but CompareAndSwap,
// whose caller must look first.
type retrying struct{ Objects }

const (
	attemptLimit = time.Minute // of one request; a stalled connection ends here
	retryLimit   = 2 * time.Minute
	retryFirst   = 50 * time.Millisecond
	retryMost    = 5 * time.Second
)

func retry[T any](ctx context.Context, op func(context.Context) (T, error)) (T, error) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval, wait.Multiplier = retryFirst, retryMost, 2
	return backoff.Retry(ctx, func() (T, error) {
		attempt, cancel := context.WithTimeout(ctx, attemptLimit)
		defer cancel()
		v, err := op(attempt)
		if err == nil || temporary(ctx, err) {
			return v, err
		}
		return v, backoff.Permanent(err)
	}, backoff.WithBackOff(wait), backoff.WithMaxElapsedTime(retryLimit))
}

// temporary reports whether err is worth another attempt under ctx.
func temporary(ctx context.Context, err error) bool {
	return ctx.Err() == nil && (errors.Is(err, ErrTemporary) || errors.Is(err, context.DeadlineExceeded))
}

func (r retrying) Get(ctx context.Context, key string, opts GetOptions) (Object, error) {
	return retry(ctx, func(ctx context.Context) (Object, error) { return r.Objects.Get(ctx, key, opts) })
}

func (r retrying) Put(ctx context.Context, key string, data []byte, sum Digest) error {
	_, err := retry(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, r.Objects.Put(ctx, key, data, sum) })
	return err
}

func (r retrying) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	attempt, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	etag, err := r.Objects.CompareAndSwap(attempt, key, old, data)
	if err != nil && ctx.Err() == nil && attempt.Err() != nil {
		err = fmt.Errorf("%w: %w", ErrTemporary, err)
	}
	return etag, err
}

// List resumes behind the last key that it has yielded.
func (r retrying) List(ctx context.Context, prefix, after string) iter.Seq2[ObjectInfo, error] {
	return func(yield func(ObjectInfo, error) bool) {
		stopped, err := retry(ctx, func(context.Context) (stopped bool, err error) {
			for info, err := range r.Objects.List(ctx, prefix, after) {
				if err != nil {
					return false, err
				}
				after = info.Key
				if !yield(info, nil) {
					return true, nil
				}
			}
			return false, nil
		})
		if err != nil && !stopped {
			yield(ObjectInfo{}, err)
		}
	}
}

func (r retrying) Delete(ctx context.Context, keys ...string) error {
	_, err := retry(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, r.Objects.Delete(ctx, keys...) })
	return err
}
