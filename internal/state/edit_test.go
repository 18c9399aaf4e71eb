package state_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/ignore"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

func edits(list ...state.Edit) iter.Seq2[state.Edit, error] {
	return func(yield func(state.Edit, error) bool) {
		for _, e := range list {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func put(path, content string) state.Edit {
	return state.Edit{Path: path, Kind: state.File, Content: strings.NewReader(content)}
}

func remove(path string) state.Edit { return state.Edit{Path: path} }

func TestEdit(t *testing.T) {
	bucket := mem.New()
	w := statetest.OpenWorker(t, bucket)
	s := state.New(bucket, state.Options{})
	large := statetest.Random(9, 9<<20)
	newest := state.EditOptions{Base: state.Newest, Message: "push"}
	c, err := s.Edit(t.Context(), ref, newest, edits(
		put("a/b/c", "1"), put("large", large), put("empty", ""),
		state.Edit{Path: "l", Kind: state.Symlink, Target: "a"}, state.Edit{Path: "d", Kind: state.Dir}))
	if err != nil || c.Generation != 1 {
		t.Fatalf("Edit() = %+v, %v, want generation 1", c, err)
	}
	if diff := cmp.Diff([]string{"a", "a/b", "a/b/c", "d", "empty", "l", "large"}, c.Changed); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	w.Checkout()
	w.Want(map[string]string{
		"a": "dir", "a/b": "dir", "a/b/c": "1", "d": "dir", "empty": "", "l": "-> a",
		"large": large,
	})

	infos, err := s.List(t.Context(), ref, 0, "")
	if err != nil || len(infos) != 7 {
		t.Fatalf("List() = %v, %v, want 7 paths", infos, err)
	}
	for _, f := range infos {
		switch f.Path {
		case "a/b/c":
			if want := objects.Sum([]byte("1")).String(); f.ETag != want || f.Parts != nil {
				t.Errorf("etag = %s, %v, want %s and no parts", f.ETag, f.Parts, want)
			}
		case "large":
			ids, at := []byte{}, int64(0)
			for _, p := range f.Parts {
				if sum := objects.Sum([]byte(large[at : at+p.Bytes])); sum != p.SHA256 {
					t.Errorf("part at %d = %s, want %s", at, p.SHA256, sum)
				}
				ids = append(ids, p.SHA256[:]...)
				at += p.Bytes
			}
			if at != 9<<20 || f.ETag != objects.Sum(ids).String() {
				t.Errorf("the parts of the large file are %d bytes, want %d; etag %s", at, 9<<20, f.ETag)
			}
		case "empty":
			if want := objects.Sum(nil).String(); f.ETag != want {
				t.Errorf("etag of an empty file = %s, want %s", f.ETag, want)
			}
		}
	}
	// If its response was lost, a call is repeated, with any base.
	for _, base := range []int64{state.Newest, 0} {
		c, err = s.Edit(t.Context(), ref, state.EditOptions{Base: base}, edits(put("a/b/c", "1"), put("large", large)))
		if err != nil || !c.NoChange || c.Generation != 1 {
			t.Errorf("Edit() again on %d = %+v, %v, want no change", base, c, err)
		}
	}
	c, err = s.Edit(t.Context(), ref, newest, edits(remove("a"), put("a", "a file now"), remove("nothing")))
	if err != nil || cmp.Diff([]string{"a", "a/b", "a/b/c"}, c.Changed) != "" {
		t.Errorf("Edit() = %+v, %v, want a, a/b and a/b/c", c, err)
	}
	if err := bucket.Violations(); err != nil {
		t.Error(err)
	}
}

func TestEditMerges(t *testing.T) {
	bucket := mem.New()
	w := statetest.OpenWorker(t, bucket)
	s := state.New(bucket, state.Options{})
	do := func(base int64, list ...state.Edit) (state.Commit, error) {
		return s.Edit(t.Context(), ref, state.EditOptions{Base: base}, edits(list...))
	}
	if _, err := do(0, put("mine", "1"), put("theirs", "1"), put("both", "1"),
		put("state.json", `{"a":1,"b":1}`)); err != nil {
		t.Fatal(err)
	}
	w.Checkout()
	w.Write("theirs", "2")
	w.Write("both", "2")
	w.Write("state.json", `{"a":2,"b":1}`)
	w.Commit("task-1")
	c, err := do(1, put("mine", "2"), put("theirs", "1"), put("state.json", `{"a":1,"b":2}`))
	if err != nil || c.Generation != 3 || cmp.Diff([]string{"mine", "state.json"}, c.Changed) != "" {
		t.Fatalf("Edit(base 1) = %+v, %v, want generation 3 with mine and state.json", c, err)
	}
	w.Checkout()
	w.Want(map[string]string{"mine": "2", "theirs": "2", "both": "2", "state.json": "{\n  \"a\": 2,\n  \"b\": 2\n}\n"})
	_, err = do(1, put("both", "3"), put("new", "1"))
	if e, ok := errors.AsType[*state.ConflictError](err); !ok || cmp.Diff([]string{"both"}, e.Paths) != "" {
		t.Errorf("Edit() of a path that a task changed = %v, want a conflict", err)
	}
	if _, err = do(99, put("x", "1")); !errors.Is(err, state.ErrDeleted) {
		t.Errorf("Edit(base 99) = %v, want %v", err, state.ErrDeleted)
	}
}

// TestMergeOfDeepState checks that the merge of a deeply nested state file is not indented, which would make it
// thousands of times as long.
func TestMergeOfDeepState(t *testing.T) {
	s := state.New(mem.New(), state.Options{})
	deep := strings.Repeat("[", 2000) + strings.Repeat("1,", 20_000) + "1" + strings.Repeat("]", 2000)
	for base, content := range []string{
		`{"a":1,"b":1,"deep":` + deep + `}`, `{"a":2,"b":1,"deep":` + deep + `}`,
		`{"a":1,"b":2,"deep":` + deep + `}`,
	} {
		c, err := s.Edit(t.Context(), ref, state.EditOptions{Base: int64(min(base, 1))},
			edits(put("state.json", content)))
		if err != nil {
			t.Fatalf("Edit(%d) = %+v, %v, want nil", base, c, err)
		}
	}
	f, _, err := history.Open(t.Context(), s.Repo(), ref, 0, "state.json")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(f); err != nil || string(got) != `{"a":2,"b":2,"deep":`+deep+"}\n" {
		t.Errorf("merged = %.40s… of %d bytes, %v", got, len(got), err)
	}
}

func TestEditConditions(t *testing.T) {
	s := state.New(mem.New(), state.Options{})
	newest := state.EditOptions{Base: state.Newest}
	one := objects.Sum([]byte("1")).String()
	for i, c := range []struct {
		edit state.Edit
		ok   bool
	}{
		{state.Edit{Path: "f", Kind: state.File, Content: strings.NewReader("0"), IfMatch: "*"}, false},
		{state.Edit{Path: "f", Kind: state.File, Content: strings.NewReader("1"), IfNoneMatch: "*"}, true},
		// The first creation ends the condition.
		{state.Edit{Path: "f", Kind: state.File, Content: strings.NewReader("1"), IfNoneMatch: "*"}, false},
		{state.Edit{Path: "f", Kind: state.File, Content: strings.NewReader("2"), IfNoneMatch: "*"}, false},
		{state.Edit{Path: "f", Kind: state.File, Content: strings.NewReader("2"), IfMatch: "00"}, false},
		{state.Edit{Path: "f", Kind: state.File, Content: strings.NewReader("2"), IfMatch: one}, true},
		{state.Edit{Path: "f", Kind: state.File, Content: strings.NewReader("3"), IfMatch: one}, false},
		{state.Edit{Path: "f", IfMatch: one}, false},
		{state.Edit{Path: "f", IfMatch: "*"}, true},
	} {
		_, err := s.Edit(t.Context(), ref, newest, edits(c.edit))
		if (err == nil) != c.ok || err != nil && !errors.Is(err, state.ErrConflict) {
			t.Errorf("edit %d: %v, want ok %v", i, err, c.ok)
		}
	}
	// One of several concurrent creations succeeds, although documents with different keys merge.
	var created atomic.Int64
	var creating sync.WaitGroup
	for i := range 8 {
		creating.Go(func() {
			e := put("state.json", fmt.Sprintf(`{"k%d": 1}`, i))
			e.IfNoneMatch = "*"
			_, err := s.Edit(t.Context(), ref, newest, edits(e))
			if err == nil {
				created.Add(1)
			} else if !errors.Is(err, state.ErrConflict) {
				t.Error(err)
			}
		})
	}
	creating.Wait()
	if n := created.Load(); n != 1 {
		t.Errorf("%d of 8 creations of state.json succeeded, want 1", n)
	}
	// With conditions, each of several concurrent increments counts once.
	if _, err := s.Edit(t.Context(), ref, newest, edits(put("n", "0"))); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				r, info, err := history.Open(t.Context(), s.Repo(), ref, 0, "n")
				if err != nil {
					t.Error(err)
					return
				}
				data, _ := io.ReadAll(r)
				_, err = s.Edit(t.Context(), ref, newest, edits(state.Edit{
					Path: "n", Kind: state.File, Content: strings.NewReader(string(data) + "+"), IfMatch: info.ETag,
				}))
				if err == nil {
					return
				}
				if !errors.Is(err, state.ErrConflict) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if _, info, err := history.Open(t.Context(), s.Repo(), ref, 0, "n"); err != nil || info.Bytes != 9 {
		t.Errorf("the counter is %d bytes, %v, want 1 and 8 increments", info.Bytes, err)
	}
}

func TestEditRefuses(t *testing.T) {
	quota := state.Quota{Bytes: 10 << 20, Files: 10, Largest: 6 << 20, Depth: 4}
	bucket := mem.New()
	s := state.New(bucket, state.Options{Quota: quota})
	newest := state.EditOptions{Base: state.Newest}
	if _, err := s.Edit(t.Context(), ref, newest,
		edits(put("file", "1"), put("dir/x", "1"), put(ignore.FileName, "*.log\n"))); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"", "/abs", "../up", "a/../b", "a//b", "a/", "./a", "a\x00b",
		strings.Repeat("n", 300), "servers/x", "client", "file/below", "dir", "node_modules/x", "a/x.log",
	} {
		_, err := s.Edit(t.Context(), ref, newest, edits(put("fine", "1"), put(path, "1")))
		if _, ok := errors.AsType[*state.EditError](err); !ok {
			t.Errorf("Edit(%q) = %v, want an EditError", path, err)
		}
	}
	many := make([]state.Edit, 11)
	for i := range many {
		many[i] = put(fmt.Sprintf("many-%d", i), "1")
	}
	for name, list := range map[string][]state.Edit{
		"largest": {put("l", strings.Repeat("x", 6<<20+1))}, "deep": {put("a/b/c/d/e", "1")}, "many": many,
		"total": {put("a", strings.Repeat("x", 5<<20)), put("b", strings.Repeat("y", 5<<20))},
	} {
		if _, err := s.Edit(t.Context(), ref, newest, edits(list...)); !errors.Is(err, state.ErrQuota) {
			t.Errorf("Edit(%s) = %v, want %v", name, err, state.ErrQuota)
		}
	}
	if info, err := history.ReadInfo(t.Context(), s.Repo(), ref); err != nil || info.Generation != 1 ||
		info.Files != 4 {
		t.Errorf("ReadInfo() = %+v, %v, want generation 1 with 4 paths", info, err)
	}
	// A file of rules that is too large counts up to the limit, as for a task's commit.
	long := put(ignore.FileName, "*.log\n"+strings.Repeat("# long\n", 10_000))
	_, err := s.Edit(t.Context(), ref, newest, edits(long, put("late.log", "1")))
	if _, ok := errors.AsType[*state.EditError](err); !ok {
		t.Errorf("Edit() of a file that a long %s excludes = %v, want an EditError", ignore.FileName, err)
	}
	broken := func(yield func(state.Edit, error) bool) {
		if yield(put("half", "1"), nil) {
			yield(state.Edit{}, io.ErrUnexpectedEOF)
		}
	}
	if _, err := s.Edit(t.Context(), ref, newest, broken); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Edit() of a stream that breaks off = %v, want %v", err, io.ErrUnexpectedEOF)
	}
	for _, size := range []int{10, 5 << 20} { // a file that breaks off must not be stored as a shorter file
		cut := io.MultiReader(strings.NewReader(statetest.Random(1, size)), iotest.ErrReader(io.ErrUnexpectedEOF))
		e := state.Edit{Path: "cut", Kind: state.File, Content: cut}
		if _, err := s.Edit(t.Context(), ref, newest, edits(e)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("Edit() of a file that breaks off after %d bytes = %v, want %v", size, err, io.ErrUnexpectedEOF)
		}
	}
	if info, err := history.ReadInfo(t.Context(), s.Repo(), ref); err != nil || info.Generation != 1 {
		t.Errorf("ReadInfo() = %+v, %v, want generation 1", info, err)
	}
}

func TestWorkspaces(t *testing.T) {
	bucket := mem.New()
	s := state.New(bucket, state.Options{})
	for _, name := range []string{"main", "main-2", "gone"} {
		if _, err := s.Edit(t.Context(), state.Ref{Tenant: "acme", Workspace: name}, state.EditOptions{},
			edits(put("f", name))); err != nil {
			t.Fatal(err)
		}
	}
	if err := history.Delete(t.Context(), s.Repo(), state.Ref{Tenant: "acme", Workspace: "gone"}); err != nil {
		t.Fatal(err)
	}
	list, err := history.Workspaces(t.Context(), s.Repo(), "acme")
	if err != nil || len(list) != 2 || list[0].Name != "main" || list[1].Name != "main-2" || list[1].Bytes != 6 {
		t.Errorf("Workspaces() = %+v, %v, want main and main-2", list, err)
	}
	if other, err := history.Workspaces(t.Context(), s.Repo(), "acm"); err != nil || len(other) != 0 {
		t.Errorf("Workspaces of another tenant = %+v, %v, want none", other, err)
	}
	if err := history.Pin(t.Context(), s.Repo(), state.Ref{Tenant: "acme", Workspace: "main"}, "v1", 0); err != nil {
		t.Fatal(err)
	}
	pins, err := history.Pins(t.Context(), s.Repo(), state.Ref{Tenant: "acme", Workspace: "main"})
	if diff := cmp.Diff([]history.Pinned{{Name: "v1", Generation: 1}}, pins); diff != "" || err != nil {
		t.Errorf("Pins() %v (-want +got):\n%s", err, diff)
	}
}

// countedLists counts listings.
type countedLists struct {
	*mem.Objects
	lists int
}

func (c *countedLists) List(ctx context.Context, prefix, after string) iter.Seq2[objects.ObjectInfo, error] {
	c.lists++
	return c.Objects.List(ctx, prefix, after)
}

// TestWorkspacesAreListedAtOnce checks that the number of listings does not grow with that of the workspaces, but with
// that of large ones, whose objects are skipped.
func TestWorkspacesAreListedAtOnce(t *testing.T) {
	bucket := &countedLists{Objects: mem.New()}
	s := state.New(bucket, state.Options{})
	for _, name := range []string{"a", "a-b", "a0", "b"} {
		if _, err := s.Edit(t.Context(), state.Ref{Tenant: "acme", Workspace: name}, state.EditOptions{},
			edits(put("f", name))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 500 {
		for _, workspace := range []string{"a", "gone" + strconv.Itoa(i)} {
			key := fmt.Sprintf("acme/w/%s/m/%04d", workspace, i)
			if err := bucket.Put(t.Context(), key, nil, objects.Sum(nil)); err != nil {
				t.Fatal(err)
			}
		}
	}
	bucket.lists = 0
	list, err := history.Workspaces(t.Context(), s.Repo(), "acme")
	var found []string
	for _, w := range list {
		found = append(found, w.Name)
	}
	if want := []string{"a", "a-b", "a0", "b"}; err != nil || !slices.Equal(found, want) || bucket.lists != 2 {
		t.Errorf("Workspaces() = %q, %v, with %d listings, want %q with 2", found, err, bucket.lists, want)
	}
}

// TestLostResponseOfEdit checks that an edit whose response was lost counts as applied, even if others have committed
// since: it is neither a conflict nor made again.
func TestLostResponseOfEdit(t *testing.T) {
	one := objects.Sum([]byte("1")).String()
	conditional := put("f", "2")
	conditional.IfMatch = one
	for name, c := range map[string]struct {
		base   int64
		edit   state.Edit
		others int // commits of others since
	}{
		"newest":                 {state.Newest, put("f", "2"), 1},
		"condition":              {state.Newest, conditional, 1},
		"base":                   {3, put("f", "2"), 1},
		"older base":             {1, put("f", "2"), 2},
		"many commits of others": {3, put("f", "2"), 20},
	} {
		t.Run(name, func(t *testing.T) {
			bucket := mem.New()
			s, other := state.New(bucket, state.Options{}), state.New(bucket, state.Options{})
			commit := func(path, content string) {
				_, err := other.Edit(t.Context(), ref, state.EditOptions{Base: state.Newest}, edits(put(path, content)))
				statetest.Must(t, err)
			}
			commit("f", "1")
			commit("a", "1")
			commit("a", "2")
			swapped := false
			bucket.SetFault(func(call mem.Call) mem.Fault {
				switch {
				case call.Op == "swap" && !swapped:
					swapped = true
					return mem.LostResponse
				case call.Op == "get" && swapped:
					bucket.SetFault(nil)
					for i := range c.others {
						commit("f", fmt.Sprint("of another ", i))
					}
				}
				return mem.OK
			})
			c.edit.Content = strings.NewReader("2")
			got, err := s.Edit(t.Context(), ref, state.EditOptions{Base: c.base}, edits(c.edit))
			if err != nil || got.Generation != 4 || cmp.Diff([]string{"f"}, got.Changed) != "" {
				t.Errorf("Edit() = %+v, %v, want generation 4, which changed f", got, err)
			}
			info, err := history.ReadInfo(t.Context(), other.Repo(), ref)
			if want := int64(4 + c.others); err != nil || info.Generation != want {
				t.Errorf("ReadInfo() = %+v, %v, want generation %d", info, err, want)
			}
		})
	}
}
