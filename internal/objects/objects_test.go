package objects_test

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/objects"
)

func TestErrNotFound(t *testing.T) {
	if !errors.Is(objects.ErrNotFound, fs.ErrNotExist) || errors.Is(objects.ErrConflict, fs.ErrNotExist) {
		t.Error("ErrNotFound alone should be fs.ErrNotExist")
	}
}

func TestDigest(t *testing.T) {
	d := objects.Sum([]byte("x"))
	text, err := d.MarshalText()
	if err != nil || string(text) != d.String() {
		t.Errorf("MarshalText() = %s, %v, want %s", text, err, d)
	}
	var got objects.Digest
	if err := got.UnmarshalText(text); err != nil || got != d || got.Compare(d) != 0 {
		t.Errorf("UnmarshalText(%s) = %s, %v; want the digest again", text, got, err)
	}
	for _, bad := range []string{"", "00", string(text) + "0", "z" + string(text[1:])} {
		if err := got.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("UnmarshalText(%q) = nil, want an error", bad)
		}
	}
}

// flaky fails the first failures calls of Get and CompareAndSwap.
type flaky struct {
	objects.Objects
	failures int
	err      error
	calls    int
}

func (f *flaky) try() error {
	if f.calls++; f.calls <= f.failures {
		return f.err
	}
	return nil
}

func (f *flaky) Get(context.Context, string, objects.GetOptions) (objects.Object, error) {
	return objects.Object{Data: []byte("old")}, f.try()
}

func (f *flaky) CompareAndSwap(context.Context, string, string, []byte) (string, error) {
	return "etag", f.try()
}

func TestRetry(t *testing.T) {
	permanent := errors.New("permanent")
	for name, c := range map[string]struct {
		policy   objects.RetryPolicy
		failures int
		err      error
		calls    int
		want     error
	}{
		"temporary":         {objects.RetryPolicy{}, 3, objects.ErrTemporary, 4, nil},
		"permanent":         {objects.RetryPolicy{}, 3, permanent, 1, permanent},
		"attempts":          {objects.RetryPolicy{Attempts: 3}, 9, objects.ErrTemporary, 3, objects.ErrTemporary},
		"permanent at last": {objects.RetryPolicy{Attempts: 1}, 9, permanent, 1, permanent},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &flaky{failures: c.failures, err: c.err}
				_, err := objects.WithRetry(store, c.policy).Get(t.Context(), "key", objects.GetOptions{})
				if !errors.Is(err, c.want) || store.calls != c.calls {
					t.Errorf("Get() = %v after %d calls, want %v after %d", err, store.calls, c.want, c.calls)
				}
			})
		})
	}
}

func TestRetryEndsWithTotalTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		store := objects.WithRetry(&flaky{failures: 1000, err: objects.ErrTemporary}, objects.RetryPolicy{})
		_, err := store.Get(t.Context(), "key", objects.GetOptions{})
		if took := time.Since(start); !errors.Is(err, objects.ErrTemporary) || took < 100*time.Second ||
			took > 2*time.Minute {
			t.Errorf("Get() = %v after %v, want a temporary error after about 2 min", err, took)
		}
	})
}

// slow is a store that takes 3 ms to delete an object, and loses the response to its second call.
type slow struct {
	objects.Objects
	calls   int
	deleted map[string]int
}

func (s *slow) Delete(ctx context.Context, keys ...string) error {
	s.calls++
	for _, key := range keys {
		if err := clock.Sleep(ctx, 3*time.Millisecond); err != nil {
			return err
		}
		s.deleted[key]++
	}
	if s.calls == 2 {
		return objects.ErrTemporary
	}
	return nil
}

// TestRetryOfManyDeletions checks that the limits of the policy are for some of the keys, not for all together, and
// that a retry does not begin with the first key.
func TestRetryOfManyDeletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{deleted: map[string]int{}}
		var keys []string
		for i := range 50_050 { // takes 150 s
			keys = append(keys, strconv.Itoa(i))
		}
		if err := objects.WithRetry(store, objects.RetryPolicy{}).Delete(t.Context(), keys...); err != nil {
			t.Fatalf("Delete() = %v, want nil", err)
		}
		again := 0
		for _, key := range keys {
			if store.deleted[key] == 0 {
				t.Fatalf("Delete() left %s", key)
			}
			again += store.deleted[key] - 1
		}
		if again > 1000 {
			t.Errorf("Delete() repeated %d deletions, want those of one call only", again)
		}
	})
}

// stalling is a store whose lists stall after an object.
type stalling struct{ objects.Objects }

func (stalling) List(ctx context.Context, _, after string) iter.Seq2[objects.ObjectInfo, error] {
	return func(yield func(objects.ObjectInfo, error) bool) {
		for _, key := range []string{"a", "b", "c"} {
			if key > after && yield(objects.ObjectInfo{Key: key}, nil) {
				<-ctx.Done()
				yield(objects.ObjectInfo{}, ctx.Err())
				return
			}
		}
	}
}

// TestRetryOfLists checks that a list that stalls is resumed, however long its consumer takes, and that it can be
// ranged over twice.
func TestRetryOfLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := objects.WithRetry(stalling{}, objects.RetryPolicy{}).List(t.Context(), "", "")
		wantTwice(t, list, "abc", func() {
			time.Sleep(time.Hour) //nolint:forbidigo // virtual time, of synctest
		})
	})
}

// wantTwice ranges over a list twice, and calls consume after each key. want is all keys.
func wantTwice(t *testing.T, list iter.Seq2[objects.ObjectInfo, error], want string, consume func()) {
	t.Helper()
	for range 2 {
		var keys []string
		for info, err := range list {
			if err != nil {
				t.Fatalf("List() = %v, want nil", err)
			}
			keys = append(keys, info.Key)
			consume()
		}
		if got := strings.Join(keys, ""); got != want {
			t.Errorf("List() yielded %q, want %s", got, want)
		}
	}
}

func TestReplace(t *testing.T) {
	for name, c := range map[string]struct {
		data     string
		failures int
		err      error
		calls    int
		want     error
	}{
		"other content":  {"new", 0, nil, 2, nil},
		"same content":   {"old", 0, nil, 1, nil},
		"missing":        {"new", 1, objects.ErrNotFound, 2, nil},
		"cannot be read": {"new", 1, objects.ErrUnsafe, 1, objects.ErrUnsafe},
	} {
		store := &flaky{failures: c.failures, err: c.err}
		err := objects.Replace(t.Context(), store, "key", []byte(c.data))
		if !errors.Is(err, c.want) || store.calls != c.calls {
			t.Errorf("%s: Replace() = %v after %d calls, want %v after %d", name, err, store.calls, c.want, c.calls)
		}
	}
}

func TestLazy(t *testing.T) {
	unreachable, opened := errors.New("unreachable"), 0
	store := objects.Lazy(func() (objects.Objects, error) { opened++; return nil, unreachable })
	if opened != 0 {
		t.Error("Lazy opened the store before the first request")
	}
	_, err := store.Get(t.Context(), "key", objects.GetOptions{})
	for _, listErr := range store.List(t.Context(), "", "") {
		err = errors.Join(err, listErr)
	}
	if !errors.Is(err, unreachable) || opened != 1 {
		t.Errorf("two requests = %v, opened %d times, want %v and once", err, opened, unreachable)
	}
}
