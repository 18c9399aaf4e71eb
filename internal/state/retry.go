package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// retrying tries again what may be tried again: everything but CompareAndSwap,
// whose caller must look first.
type retrying struct {
	Objects
	patience Patience
}

// Patience bounds how long a store that does not answer well is asked; zero fields take the defaults.
type Patience struct {
	Request time.Duration // of one request; a stalled connection ends here: 1 min
	Total   time.Duration // of a request and its repetitions: 2 min
}

const (
	retryFirst = 50 * time.Millisecond
	retryMost  = 5 * time.Second
)

func (p Patience) orDefaults() Patience {
	return Patience{Request: cmp.Or(p.Request, time.Minute), Total: cmp.Or(p.Total, 2*time.Minute)}
}

// newBackOff doubles from retryFirst to retryMost, with a random part.
func newBackOff() *backoff.ExponentialBackOff {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval, wait.Multiplier = retryFirst, retryMost, 2
	return wait
}

func retry[T any](ctx context.Context, patience Patience, op func(context.Context) (T, error)) (T, error) {
	tries := 0
	var last error
	v, err := backoff.Retry(ctx, func() (T, error) {
		attempt, cancel := context.WithTimeout(ctx, patience.Request)
		defer cancel()
		tries++
		v, err := op(attempt)
		last = err
		if err == nil || temporary(ctx, err) {
			return v, err
		}
		return v, backoff.Permanent(err)
	}, backoff.WithBackOff(newBackOff()), backoff.WithMaxElapsedTime(patience.Total))
	switch {
	case err == nil || last == nil:
	case !errors.Is(err, last): // the context's end, in a pause
		err = fmt.Errorf("%w, after %d attempts: %w", err, tries, last)
	case tries > 1 && temporary(ctx, err):
		err = fmt.Errorf("%w: gave up after %d attempts: %w", ErrTemporary, tries, err)
	}
	return v, err
}

// pacer spaces the attempts at swapping one head: after a lost race almost at once, from a store that
// does not answer with back-off.
type pacer struct {
	patience Patience
	races    int
	trouble  time.Time // since when the store has not answered; zero: it does
	wait     *backoff.ExponentialBackOff
}

func (s *Store) newPacer() *pacer { return &pacer{patience: s.opts.Patience} }

// pause waits before the next attempt. It returns an error instead when there should be none.
func (p *pacer) pause(ctx context.Context, cause error) error {
	if errors.Is(cause, ErrConflict) {
		p.trouble = time.Time{}
		if p.races++; p.races >= commitTries {
			return fmt.Errorf("%w: lost %d races: %w", ErrTemporary, p.races, cause)
		}
		return pause(ctx, rand.N(racePause*time.Duration(min(p.races, 20)))) //nolint:gosec // spreads attempts, hides nothing
	}
	if p.trouble.IsZero() {
		p.trouble, p.wait = time.Now(), newBackOff()
	}
	wait := p.wait.NextBackOff()
	if since := time.Since(p.trouble); since+wait > p.patience.Total {
		return fmt.Errorf("%w: gave up after %s: %w", ErrTemporary, since.Round(time.Millisecond), cause)
	}
	if err := pause(ctx, wait); err != nil {
		return fmt.Errorf("%w, after: %w", err, cause)
	}
	return nil
}

// temporary reports whether err is worth another attempt under ctx.
func temporary(ctx context.Context, err error) bool {
	return ctx.Err() == nil && (errors.Is(err, ErrTemporary) || errors.Is(err, context.DeadlineExceeded))
}

func (r retrying) Get(ctx context.Context, key string, opts GetOptions) (Object, error) {
	return retry(ctx, r.patience, func(ctx context.Context) (Object, error) { return r.Objects.Get(ctx, key, opts) })
}

func (r retrying) Put(ctx context.Context, key string, data []byte, sum Digest) error {
	_, err := retry(ctx, r.patience, func(ctx context.Context) (struct{}, error) { return struct{}{}, r.Objects.Put(ctx, key, data, sum) })
	return err
}

func (r retrying) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	attempt, cancel := context.WithTimeout(ctx, r.patience.Request)
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
		stopped, err := retry(ctx, r.patience, func(context.Context) (stopped bool, err error) {
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
	_, err := retry(ctx, r.patience, func(ctx context.Context) (struct{}, error) { return struct{}{}, r.Objects.Delete(ctx, keys...) })
	return err
}
