package state_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// lacking is a store without some conditions of PUT: it answers them with an error.
type lacking struct {
	*mem.Objects
	create bool // If-None-Match: * is honoured
}

func (l lacking) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	if old == "" && l.create {
		return l.Objects.CompareAndSwap(ctx, key, old, data)
	}
	return "", fmt.Errorf("swap %s: 501 Not Implemented: %w", key, objects.ErrUnsafe)
}

// Put replaces a head, which the store in memory does not take as an immutable object.
func (l lacking) Put(ctx context.Context, key string, data []byte, sum objects.Digest) error {
	if !strings.HasSuffix(key, "/HEAD") {
		return l.Objects.Put(ctx, key, data, sum)
	}
	for {
		obj, err := l.Get(ctx, key, objects.GetOptions{})
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return err
		}
		if _, err = l.Objects.CompareAndSwap(ctx, key, obj.ETag, data); !errors.Is(err, state.ErrConflict) {
			return err
		}
	}
}

// elsewhere keeps heads in another store.
type elsewhere struct{ bucket *mem.Objects }

func (e elsewhere) Get(ctx context.Context, key, version string) (objects.Object, error) {
	return e.bucket.Get(ctx, key, objects.GetOptions{IfNoneMatch: version})
}

func (e elsewhere) CompareAndSwap(ctx context.Context, key, version string, data []byte) (string, error) {
	return e.bucket.CompareAndSwap(ctx, key, version, data)
}

func (e elsewhere) List(ctx context.Context, prefix string) (out []objects.ObjectInfo, err error) {
	for info, err := range e.bucket.List(ctx, prefix, "") {
		if err != nil {
			return nil, err
		}
		out = append(out, info)
	}
	return out, nil
}

func (e elsewhere) Delete(ctx context.Context, key string) error { return e.bucket.Delete(ctx, key) }

func locked() func(context.Context) (func(), error) {
	var mu sync.Mutex
	return func(context.Context) (func(), error) {
		mu.Lock()
		return mu.Unlock, nil
	}
}

// rungs are the ways to keep heads on stores that lack conditions, each on a new store.
var rungs = map[string]func() (objects.Objects, *mem.Objects){
	"create only": func() (objects.Objects, *mem.Objects) {
		m := mem.New()
		o := lacking{m, true}
		return state.WithHeads(o, state.CreateOnly(o)), m
	},
	"single writer": func() (objects.Objects, *mem.Objects) {
		m := mem.New()
		o := lacking{m, false}
		return state.WithHeads(o, state.SingleWriter(o, locked())), m
	},
	"elsewhere": func() (objects.Objects, *mem.Objects) {
		m := mem.New()
		return state.WithHeads(lacking{m, false}, elsewhere{mem.New()}), m
	},
}

func TestRungs(t *testing.T) {
	for name, open := range rungs {
		t.Run(name, func(t *testing.T) {
			t.Run("objects", func(t *testing.T) {
				statetest.TestObjects(t, func(*testing.T) objects.Objects { o, _ := open(); return o })
			})
			t.Run("store", func(t *testing.T) {
				o, m := open()
				statetest.TestStore(t, func(*testing.T) objects.Objects { return o })
				if err := m.Violations(); err != nil {
					t.Error(err)
				}
			})
			t.Run("probe", func(t *testing.T) {
				o, m := open()
				if caps, err := state.New(o, state.Options{}).Probe(t.Context()); err != nil {
					t.Errorf("Probe() = %+v, %v", caps, err)
				}
				if left := keys(t, m); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
			})
			t.Run("collect", func(t *testing.T) { testCollectOn(t, open) })
		})
	}
}

// testCollectOn: workspaces are found, and what they need stays.
func testCollectOn(t *testing.T, open func() (objects.Objects, *mem.Objects)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o, _ := open()
		w := committed(t, o, 30)
		for range 2 {
			advance(t, 25*time.Hour)
			out, err := w.Store.Collect(t.Context(), "acme", state.CollectOptions{Retention: state.Retention{Newest: 1, All: time.Hour, Daily: 1}})
			if err != nil || out.Workspaces != 1 {
				t.Fatalf("Collect() = %+v, %v, want 1 workspace", out, err)
			}
		}
		fresh := newWorker(t, o)
		fresh.Checkout()
		fresh.Want(map[string]string{"n": "30", "keep": "kept"})
	})
}

// TestCreateOnlyPrunes: old versions of a head go, and a writer that has slept since then does not
// take a number that is free again.
func TestCreateOnlyPrunes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mem.New()
		o := lacking{m, true}
		heads := state.CreateOnly(o)
		swap := func(version string) string {
			t.Helper()
			version, err := heads.CompareAndSwap(t.Context(), "w/HEAD", version, []byte("after "+strings.SplitN(version, "-", 2)[0]))
			if err != nil {
				t.Fatal(err)
			}
			return version
		}
		version := ""
		for range 20 {
			version = swap(version)
		}
		stale := version
		advance(t, 48*time.Hour)
		for range 20 {
			version = swap(version)
		}
		if left := keys(t, m); len(left) != 40-20+1 { // 20 is the one that was replaced lately
			t.Errorf("%d versions are left, want 21: %v", len(left), left)
		}
		advance(t, 48*time.Hour)
		for range 30 {
			version = swap(version)
		}
		if _, err := m.Get(t.Context(), "w/HEAD/000000000021", objects.GetOptions{}); !errors.Is(err, state.ErrNotFound) {
			t.Fatalf("version 21 is there: %v", err)
		}
		for _, old := range []string{stale, "", "1", "69-0", "70-0123456789abcdef", "71-0", "-3", "x"} {
			if _, err := heads.CompareAndSwap(t.Context(), "w/HEAD", old, []byte("stale")); !errors.Is(err, state.ErrConflict) {
				t.Errorf("swap of version %q = %v, want %v", old, err, state.ErrConflict)
			}
		}
		obj, err := heads.Get(t.Context(), "w/HEAD", stale)
		if err != nil || obj.ETag != version || !strings.HasPrefix(version, "70-") || string(obj.Data) != "after 69" {
			t.Errorf("Get() = %q as %q, %v, want version 70", obj.Data, obj.ETag, err)
		}
	})
}

func TestAgree(t *testing.T) {
	m := mem.New()
	for range 2 {
		if err := state.Agree(t.Context(), m, "s3-create"); err != nil {
			t.Fatal(err)
		}
	}
	err := state.Agree(t.Context(), m, "s3-cas")
	if !errors.Is(err, state.ErrConflict) || !strings.Contains(err.Error(), "by s3-create here (object _heads/s3-create), not by s3-cas") {
		t.Errorf("Agree() with another way = %v, want %v that names both", err, state.ErrConflict)
	}
	if err := state.Agree(t.Context(), m, "s3-create"); err != nil {
		t.Errorf("Agree() afterwards = %v: a refused one must leave nothing", err)
	}
}
