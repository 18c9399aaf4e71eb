package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/text"
)

// RetryPolicy bounds the attempts at a request.
type RetryPolicy struct {
	Request  time.Duration // time limit of one attempt, which ends a stalled connection; the default is 1 min
	Total    time.Duration // time limit of all attempts together; the default is 2 min
	Attempts uint          // limit of attempts; 0 means no limit
}

const (
	backoffMin = 50 * time.Millisecond
	backoffMax = 5 * time.Second

	deleteBatch = 96 // keys; a multiple of the number that the S3 store deletes at a time

	// MaxRaces is how many compare-and-swaps of one change may lose to other writers.
	MaxRaces  = 100
	raceDelay = 5 * time.Millisecond // longest delay after the first lost race
)

// WithDefaults fills zero fields.
func (p RetryPolicy) WithDefaults() RetryPolicy {
	p.Request = cmp.Or(p.Request, time.Minute)
	p.Total = cmp.Or(p.Total, 2*time.Minute)
	return p
}

// WithRetry returns a store that retries after temporary errors. It does not retry CompareAndSwap, because the caller
// must read the object back first.
func WithRetry(store Objects, policy RetryPolicy) Objects {
	return retrying{store, policy.WithDefaults()}
}

type retrying struct {
	Objects
	policy RetryPolicy
}

// Get implements Objects.
func (r retrying) Get(ctx context.Context, key string, opts GetOptions) (Object, error) {
	return retry(ctx, r.policy, func(ctx context.Context) (Object, error) { return r.Objects.Get(ctx, key, opts) })
}

// Put implements Objects.
func (r retrying) Put(ctx context.Context, key string, data []byte, sum Digest) error {
	return r.policy.Do(ctx, func(ctx context.Context) error { return r.Objects.Put(ctx, key, data, sum) })
}

// CompareAndSwap implements Objects. It makes one attempt; a time-out is a temporary error.
func (r retrying) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	attempt, cancel := context.WithTimeout(ctx, r.policy.Request)
	defer cancel()
	etag, err := r.Objects.CompareAndSwap(attempt, key, old, data)
	if err != nil && ctx.Err() == nil && attempt.Err() != nil {
		err = fmt.Errorf("%w: %w", ErrTemporary, err)
	}
	return etag, err
}

// List implements Objects. A retry resumes after the last key that was yielded. The time limits are for the wait for
// the next object: how long the consumer takes does not count.
func (r retrying) List(ctx context.Context, prefix, after string) iter.Seq2[ObjectInfo, error] {
	return func(yield func(ObjectInfo, error) bool) {
		last := after
		for {
			first := last
			stopped, err := retry(ctx, r.policy, func(context.Context) (stopped bool, err error) {
				stopped, err = r.listOnce(ctx, prefix, &last, yield)
				if last != first && Temporary(ctx, err) {
					err = errResume
				}
				return stopped, err
			})
			if errors.Is(err, errResume) {
				continue
			}
			if err != nil && !stopped {
				yield(ObjectInfo{}, err)
			}
			return
		}
	}
}

// errResume ends the attempts to list the next object, because one has arrived: the policy's limits begin anew.
var errResume = errors.New("resume the list")

// listOnce is listAfter with a time limit for each wait for an object.
func (r retrying) listOnce(
	ctx context.Context, prefix string, after *string, yield func(ObjectInfo, error) bool,
) (stopped bool, err error) {
	attempt, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := time.AfterFunc(r.policy.Request, cancel)
	defer limit.Stop()
	stopped, err = listAfter(attempt, r.Objects, prefix, after, func(info ObjectInfo, err error) bool {
		limit.Stop()
		defer limit.Reset(r.policy.Request)
		return yield(info, err)
	})
	if err != nil && ctx.Err() == nil && attempt.Err() != nil {
		err = fmt.Errorf("%w: %w", ErrTemporary, err)
	}
	return stopped, err
}

// listAfter yields the objects whose keys are after *after, and sets *after to the last key that was yielded, so that
// the caller can resume after an error. It reports whether yield ended the list.
func listAfter(
	ctx context.Context, o Objects, prefix string, after *string, yield func(ObjectInfo, error) bool,
) (stopped bool, err error) {
	for info, err := range o.List(ctx, prefix, *after) {
		if err != nil {
			return false, err
		}
		*after = info.Key
		if !yield(info, nil) {
			return true, nil
		}
	}
	return false, nil
}

// Delete implements Objects. The policy's limits are for each deleteBatch of keys, which fits into them.
func (r retrying) Delete(ctx context.Context, keys ...string) error {
	for batch := range slices.Chunk(keys, deleteBatch) {
		err := r.policy.Do(ctx, func(ctx context.Context) error { return r.Objects.Delete(ctx, batch...) })
		if err != nil {
			return err
		}
	}
	return nil
}

// Do calls op until it succeeds, fails with an error that is not temporary, or reaches a limit of p. The delays between
// the attempts grow exponentially.
func (p RetryPolicy) Do(ctx context.Context, op func(context.Context) error) error {
	_, err := retry(ctx, p, func(ctx context.Context) (struct{}, error) { return struct{}{}, op(ctx) })
	return err
}

// retry is RetryPolicy.Do for an op with a result.
func retry[T any](ctx context.Context, p RetryPolicy, op func(context.Context) (T, error)) (T, error) {
	attempts := 0
	var last error
	v, err := backoff.Retry(ctx, func() (T, error) {
		attempt, cancel := context.WithTimeout(ctx, p.Request)
		defer cancel()
		attempts++
		v, err := op(attempt)
		last = err
		if err == nil || Temporary(ctx, err) {
			return v, err
		}
		return v, backoff.Permanent(err)
	}, backoff.WithBackOff(newBackOff()), backoff.WithMaxElapsedTime(p.Total), backoff.WithMaxTries(p.Attempts))
	switch {
	case err == nil || last == nil:
	case !errors.Is(err, last): // ctx ended between two attempts
		err = fmt.Errorf("%w after %s: %w", err, text.Count(attempts, "attempt"), last)
	case attempts > 1 && Temporary(ctx, err):
		err = fmt.Errorf("%w: gave up after %d attempts: %w", ErrTemporary, attempts, err)
	}
	return v, err
}

// Temporary reports whether err is worth another attempt under ctx.
func Temporary(ctx context.Context, err error) bool {
	return ctx.Err() == nil && (errors.Is(err, ErrTemporary) || errors.Is(err, context.DeadlineExceeded))
}

func newBackOff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.Multiplier = backoffMin, backoffMax, 2
	return b
}

// Backoff spaces the attempts to swap one object: the delay is short after a lost race, and grows exponentially with
// temporary errors.
type Backoff struct {
	policy RetryPolicy
	races  int
	since  time.Time // when the current series of temporary errors began; zero after a lost race
	delays *backoff.ExponentialBackOff
}

// NewBackoff returns a Backoff for one change of an object.
func (p RetryPolicy) NewBackoff() *Backoff { return &Backoff{policy: p} }

// Swap calls attempt, which reads an object and swaps it, and repeats it after a lost race or a temporary error. It
// returns any other outcome, and an error that attempt marks as final.
func (p RetryPolicy) Swap(ctx context.Context, attempt func() (final bool, err error)) error {
	for b := p.NewBackoff(); ; {
		final, err := attempt()
		if final || !errors.Is(err, ErrConflict) && !Temporary(ctx, err) {
			return err
		}
		if err := b.Wait(ctx, err); err != nil {
			return err
		}
	}
}

// Wait waits before the next attempt. cause is the last attempt's error; ErrConflict means a lost race. Wait returns
// an error when ctx ends, after MaxRaces lost races, and when the policy's total time is over.
func (b *Backoff) Wait(ctx context.Context, cause error) error {
	if errors.Is(cause, ErrConflict) {
		b.since = time.Time{}
		if b.races++; b.races >= MaxRaces {
			return fmt.Errorf("%w: lost %d races: %w", ErrTemporary, b.races, cause)
		}
		delay := raceDelay * time.Duration(min(b.races, 20))
		return clock.Sleep(ctx, rand.N(delay)) //nolint:gosec // spreads attempts; need not be unpredictable
	}
	if b.since.IsZero() {
		b.since, b.delays = time.Now(), newBackOff()
	}
	delay := b.delays.NextBackOff()
	if elapsed := time.Since(b.since); elapsed+delay > b.policy.Total {
		return fmt.Errorf("%w: gave up after %s: %w", ErrTemporary, elapsed.Round(time.Millisecond), cause)
	}
	if err := clock.Sleep(ctx, delay); err != nil {
		return fmt.Errorf("%w while waiting to retry: %w", err, cause)
	}
	return nil
}
