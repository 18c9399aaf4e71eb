// Package statetest tests object stores: TestObjects checks the contract of objects.Objects, TestStore checks that
// workspaces work on a store, and TestHeads checks both for a head mode. A bug that is found in one object store adds a
// test for all.
package statetest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/objects"
)

// TestObjects checks an object store against the contract of objects.Objects. open returns a store for each test. It
// may be the same one, because the keys of different tests differ.
func TestObjects(t *testing.T, open func(t *testing.T) objects.Objects) {
	for _, c := range []struct {
		name string
		test func(*testing.T, objects.Objects)
	}{
		{"put and get", testPutGet},
		{"ranges", testRanges},
		{"wrong digest", testWrongDigest},
		{"swap", testSwap},
		{"swap race", testSwapRace},
		{"list", testList},
		{"delete", testDelete},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

func put(t *testing.T, o objects.Objects, key, data string) {
	t.Helper()
	if err := o.Put(t.Context(), key, []byte(data), objects.Sum([]byte(data))); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, o objects.Objects, key string, opts objects.GetOptions) objects.Object {
	t.Helper()
	obj, err := o.Get(t.Context(), key, opts)
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func testPutGet(t *testing.T, o objects.Objects) {
	for name, size := range map[string]int{"empty": 0, "small": 10, "large": 9 << 20} {
		data := Random(7, size)
		put(t, o, "pg/"+name, data)
		put(t, o, "pg/"+name, data)
		if obj := get(t, o, "pg/"+name, objects.GetOptions{}); string(obj.Data) != data || obj.ETag == "" ||
			obj.Modified.IsZero() {
			t.Errorf("Get(%s) = %d bytes, ETag %q, modified %v; want %d bytes and both set", name, len(obj.Data),
				obj.ETag, obj.Modified, size)
		}
	}
	obj := get(t, o, "pg/small", objects.GetOptions{})
	if _, err := o.Get(t.Context(), "pg/small", objects.GetOptions{IfNoneMatch: obj.ETag}); !errors.Is(err,
		objects.ErrNotModified) {
		t.Errorf("Get with the current ETag = %v, want %v", err, objects.ErrNotModified)
	}
	if _, err := o.Get(t.Context(), "pg/missing", objects.GetOptions{}); !errors.Is(err, objects.ErrNotFound) {
		t.Errorf("Get of a missing object = %v, want %v", err, objects.ErrNotFound)
	}
}

func testRanges(t *testing.T, o objects.Objects) {
	put(t, o, "range/x", "0123456789")
	buf := make([]byte, 0, 100)
	for _, c := range []struct {
		offset, length int64
		want           string
	}{{0, 3, "012"}, {3, 4, "3456"}, {9, 1, "9"}, {4, 0, "456789"}, {0, 10, "0123456789"}} {
		obj := get(t, o, "range/x", objects.GetOptions{Offset: c.offset, Length: c.length, Buffer: buf})
		if string(obj.Data) != c.want {
			t.Errorf("Get(%d+%d) = %q, want %q", c.offset, c.length, obj.Data, c.want)
		}
	}
	for _, c := range [][2]int64{{8, 3}, {10, 1}, {50, 2}} {
		if obj, err := o.Get(t.Context(), "range/x", objects.GetOptions{Offset: c[0], Length: c[1]}); err == nil {
			t.Errorf("Get(%d+%d) of 10 bytes = %q, want an error", c[0], c[1], obj.Data)
		}
	}
}

func testWrongDigest(t *testing.T, o objects.Objects) {
	if err := o.Put(t.Context(), "wrong/x", []byte("body"), objects.Sum([]byte("other"))); err == nil {
		t.Error("Put with a wrong digest succeeded")
	}
	if _, err := o.Get(t.Context(), "wrong/x", objects.GetOptions{}); !errors.Is(err, objects.ErrNotFound) {
		t.Errorf("Get after a refused Put = %v, want %v", err, objects.ErrNotFound)
	}
}

func testSwap(t *testing.T, o objects.Objects) {
	ctx := t.Context()
	if _, err := o.CompareAndSwap(ctx, "swap/HEAD", "0123456789abcdef0123456789abcdef", []byte("0")); !errors.Is(err,
		objects.ErrConflict) {
		t.Errorf("swap of a missing object = %v, want %v", err, objects.ErrConflict)
	}
	first, err := o.CompareAndSwap(ctx, "swap/HEAD", "", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	large := []byte(Random(3, 124<<10)) // as large as a HEAD may be: the store rejects it before it has read all of it
	if _, err := o.CompareAndSwap(ctx, "swap/HEAD", "", large); !errors.Is(err, objects.ErrConflict) {
		t.Errorf("swap of a large object that exists = %v, want %v", err, objects.ErrConflict)
	}
	if _, err := o.CompareAndSwap(ctx, "swap/HEAD", "", []byte("2")); !errors.Is(err, objects.ErrConflict) {
		t.Errorf("second creation = %v, want %v", err, objects.ErrConflict)
	}
	second, err := o.CompareAndSwap(ctx, "swap/HEAD", first, []byte("3"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.CompareAndSwap(ctx, "swap/HEAD", first, []byte("4")); !errors.Is(err, objects.ErrConflict) {
		t.Errorf("stale swap = %v, want %v", err, objects.ErrConflict)
	}
	obj := get(t, o, "swap/HEAD", objects.GetOptions{})
	if string(obj.Data) != "3" || obj.ETag != second {
		t.Errorf("after the swaps: %q with ETag %q, want \"3\" with %q", obj.Data, obj.ETag, second)
	}
}

func testSwapRace(t *testing.T, o objects.Objects) {
	const writers, rounds = 8, 5
	for round := range rounds {
		key := fmt.Sprintf("race/%d/HEAD", round)
		var wg sync.WaitGroup
		wins := make(chan string, writers)
		for w := range writers {
			wg.Go(func() {
				body := strconv.Itoa(w)
				if _, err := o.CompareAndSwap(t.Context(), key, "", []byte(body)); err == nil {
					wins <- body
				} else if !errors.Is(err, objects.ErrConflict) {
					t.Errorf("racing swap = %v, want %v", err, objects.ErrConflict)
				}
			})
		}
		wg.Wait()
		close(wins)
		var winners []string
		for w := range wins {
			winners = append(winners, w)
		}
		got := string(get(t, o, key, objects.GetOptions{}).Data)
		if diff := cmp.Diff([]string{got}, winners); diff != "" {
			t.Errorf("winners of the race differ from what is stored (-stored +winners):\n%s", diff)
		}
	}
}

// list returns the keys that List returns. The content of each object must be its key, so that list can check the
// sizes.
func list(t *testing.T, o objects.Objects, prefix, after string) []string {
	t.Helper()
	var keys []string
	for info, err := range o.List(t.Context(), prefix, after) {
		if err != nil {
			t.Fatal(err)
		}
		if info.Size != int64(len(info.Key)) || info.Modified.IsZero() {
			t.Errorf("List() = %s with %d bytes, modified %v; want %d bytes and a time", info.Key, info.Size,
				info.Modified, len(info.Key))
		}
		keys = append(keys, info.Key)
	}
	return keys
}

func testList(t *testing.T, o objects.Objects) {
	keys := []string{"list/a/1", "list/a/2", "list/b", "list/c/d/e"}
	for _, key := range append(keys, "listing") {
		put(t, o, key, key)
	}
	if diff := cmp.Diff(keys, list(t, o, "list/", "")); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(keys[2:], list(t, o, "list/", keys[1])); diff != "" {
		t.Errorf("List after %s (-want +got):\n%s", keys[1], diff)
	}
	if got := list(t, o, "list/none/", ""); len(got) != 0 {
		t.Errorf("List without matching keys = %v, want none", got)
	}
	var many []string
	for i := range 1100 { // more than one page
		many = append(many, fmt.Sprintf("many/%04d", i))
		put(t, o, many[i], many[i])
	}
	if diff := cmp.Diff(many, list(t, o, "many/", "")); diff != "" {
		t.Errorf("List of two pages (-want +got):\n%s", diff)
	}
}

func testDelete(t *testing.T, o objects.Objects) {
	put(t, o, "delete/a", "delete/a")
	put(t, o, "delete/b", "delete/b")
	if err := o.Delete(t.Context(), "delete/a", "delete/missing"); err != nil {
		t.Errorf("Delete = %v, want nil", err)
	}
	if diff := cmp.Diff([]string{"delete/b"}, list(t, o, "delete/", "")); diff != "" {
		t.Errorf("after Delete (-want +got):\n%s", diff)
	}
}
