package mirror_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/mirror"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

const mirrorOf = "acme/main/"

func mirrorMark(t *testing.T, target objects.Objects) (mark struct {
	Generation int64
	Files      int
	Touched    []int64
	Skipped    []string
	By         string
},
) {
	t.Helper()
	obj, err := target.Get(t.Context(), mirrorOf+"mirror.json", objects.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(obj.Data, &mark); err != nil {
		t.Fatal(err)
	}
	return mark
}

// mirroredWorker makes a worker whose commits are mirrored at target.
func mirroredWorker(t *testing.T, bucket objects.Objects, target mirror.Target) (*statetest.Worker, *mirror.Mirror) {
	t.Helper()
	w := statetest.NewWorker(t, bucket, ref, state.Options{})
	return w, mirror.Follow(w.Store.Repo(), target, mirror.Options{})
}

// TestMirror checks that the mirror follows every kind of commit, and writes only the files that changed.
func TestMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, target := mem.New(), mem.New()
		w, mirrored := mirroredWorker(t, bucket, target)
		defer mirrored.Close(t.Context())
		w.Checkout()
		for i := range 50 {
			w.Write(fmt.Sprintf("many/f%02d", i), strconv.Itoa(i))
		}
		large := statetest.Random(1, 6<<20)
		w.Write("large", large)
		w.Write("empty", "")
		w.Write("a", "file")
		w.Write("b/c", "below")
		w.Write("100% \xff\n\\..", "hostile")
		w.Write(strings.Repeat("ü", 120), "long")
		w.Write(strings.Repeat("%", 120), "too long")
		if err := os.Symlink("/etc/passwd", filepath.Join(w.Dir, "link")); err != nil {
			t.Fatal(err)
		}
		w.Commit("task-1")
		synctest.Wait()
		want := map[string]string{
			"large": large, "empty": "", "a": "file", "b/c": "below", "100%25 %FF%0A%5C..": "hostile",
			strings.Repeat("ü", 120): "long",
		}
		for i := range 50 {
			want[fmt.Sprintf("many/f%02d", i)] = strconv.Itoa(i)
		}
		if diff := cmp.Diff(want, statetest.MirroredFiles(t, target)); diff != "" {
			t.Fatalf("mirrored files after a commit (-want +got):\n%.2000s", diff)
		}
		if m := mirrorMark(t, target); m.Generation != 1 || m.Files != 56 || len(m.Touched) > 0 || m.By != "" ||
			len(m.Skipped) != 1 {
			t.Errorf("mark = %+v, want generation 1, 56 files and one skipped", m)
		}
		w.Checkout()
		w.Remove("a")
		w.Write("a/now", "a directory")
		w.Remove("b")
		w.Write("b", "now a file")
		w.Write("many/f07", "changed")
		target.Calls()
		w.Commit("task-2")
		synctest.Wait()
		puts := 0
		for _, c := range target.Calls() {
			if c.Op == "file" {
				puts++
			}
		}
		delete(want, "a")
		delete(want, "b/c")
		want["a/now"], want["b"], want["many/f07"] = "a directory", "now a file", "changed"
		if diff := cmp.Diff(want, statetest.MirroredFiles(t, target)); diff != "" || puts != 3 {
			t.Errorf("%d files written, want 3; mirrored files (-want +got):\n%.2000s", puts, diff)
		}
		if _, err := history.Restore(t.Context(), w.Store.Repo(), ref, 1, ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := statetest.MirroredFiles(t, target); got["a"] != "file" || got["many/f07"] != "7" || len(got) != 56 {
			t.Errorf("the mirror has %d files after a restore, and a is %q; want 56 files", len(got), got["a"])
		}
		if err := history.Delete(t.Context(), w.Store.Repo(), ref); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := statetest.MirroredFiles(t, target); len(got) != 0 {
			t.Errorf("the mirror of a deleted workspace has %d files, want 0", len(got))
		}
		if err := target.Violations(); err != nil {
			t.Error(err)
		}
	})
}

// TestMirrorNeverDelaysCommits checks that a broken or unresponsive mirror does not delay commits, and that it is
// updated later.
func TestMirrorNeverDelaysCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, target := mem.New(), mem.New()
		w, mirrored := mirroredWorker(t, bucket, target)
		for i, fault := range []func(mem.Call) mem.Fault{
			func(mem.Call) mem.Fault { return mem.Broken },
			func(c mem.Call) mem.Fault {
				if c.Op == "file" {
					return mem.NotApplied
				}
				return mem.OK
			},
		} {
			target.SetFault(fault)
			w.Checkout()
			w.Write("n", strconv.Itoa(i))
			start := time.Now()
			w.Commit(fmt.Sprint("task-", i))
			if d := time.Since(start); d > 0 {
				t.Errorf("a commit with a broken mirror took %v, want no delay", d)
			}
		}
		target.SetFault(statetest.EveryThird())
		w.Checkout()
		w.Write("n", "last")
		w.Commit("task-last")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		mirrored.Close(ctx)
		target.SetFault(nil)
		if got := statetest.MirroredFiles(t, target); got["n"] != "last" {
			t.Errorf("the mirror has %v once the store responds again, want the last commit", got)
		}

		release := make(chan struct{})
		target.SetFault(func(mem.Call) mem.Fault { <-release; return mem.NotApplied })
		stuck, stuckMirror := mirroredWorker(t, bucket, target)
		stuck.Checkout()
		stuck.Write("n", "stuck")
		stuck.Commit("stuck")
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() { <-ctx.Done(); close(release) }()
		start := time.Now()
		stuckMirror.Close(ctx)
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("Close() waited %v for an unresponsive mirror, want a second", d)
		}
		target.SetFault(nil)
		later := mirror.Follow(state.New(bucket, state.Options{}).Repo(), target, mirror.Options{})
		out, err := later.Update(t.Context(), ref)
		if got := statetest.MirroredFiles(t, target); err != nil || out.Generation != 4 || got["n"] != "stuck" {
			t.Errorf("Update() = %+v, %v, want generation 4; the mirror has %v", out, err, got)
		}
	})
}

// TestMirrorInTurn checks that several workers update the same mirror in turn, and that it ends with the newest
// version.
func TestMirrorInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, target := mem.New(), mem.New()
		target.SetFault(func(c mem.Call) mem.Fault {
			if c.Op == "file" { // slow, so that updates overlap
				timer := time.NewTimer(time.Second)
				<-timer.C
			}
			return mem.OK
		})
		var wg sync.WaitGroup
		for worker := range 4 {
			w, mirrored := mirroredWorker(t, bucket, target)
			wg.Go(func() {
				for i := range 5 {
					task := fmt.Sprint("task-", worker, "-", i)
					if _, err := w.Run(task, fmt.Sprint("of-", worker), strconv.Itoa(i)); err != nil {
						t.Errorf("%s: %v", task, err)
					}
				}
				mirrored.Close(t.Context())
			})
		}
		wg.Wait()
		fresh := statetest.OpenWorker(t, bucket)
		fresh.Checkout()
		if diff := cmp.Diff(fresh.Files(), statetest.MirroredFiles(t, target)); diff != "" || len(fresh.Files()) != 4 {
			t.Errorf("mirrored files (-newest +got):\n%s", diff)
		}
		if m := mirrorMark(t, target); m.Generation != 20 || len(m.Touched) > 0 {
			t.Errorf("mark = %+v, want generation 20", m)
		}
	})
}

// TestMirrorTakenOver checks that the mirror ends with the newest version if a worker takes over from a stalled one,
// even if the stalled worker's write is applied last.
func TestMirrorTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			then  mem.Fault     // outcome of the stalled write
			close time.Duration // time limit of the stalled worker's Close
		}{"continues": {mem.OK, time.Hour}, "fails": {mem.NotApplied, time.Hour}, "stops": {mem.OK, 4 * time.Minute}} {
			bucket, target := mem.New(), mem.New()
			first := true
			var mu sync.Mutex
			target.SetFault(func(c mem.Call) mem.Fault {
				mu.Lock()
				late := c.Op == "file" && first
				first = first && !late
				mu.Unlock()
				if !late {
					return mem.OK
				}
				timer := time.NewTimer(5 * time.Minute)
				<-timer.C
				return tc.then
			})
			stalled, stalledMirror := mirroredWorker(t, bucket, target)
			stalled.Checkout()
			stalled.Write("n", statetest.Random(1, 6<<20)) // writes of small files time out sooner
			stalled.Commit("task-1")
			synctest.Wait()
			w, mirrored := mirroredWorker(t, bucket, target)
			w.Checkout()
			w.Write("n", "new")
			w.Commit("task-2")
			mirrored.Close(t.Context())
			ctx, cancel := context.WithTimeout(t.Context(), tc.close)
			stalledMirror.Close(ctx)
			cancel()
			if _, err := mirrored.Update(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
			if got := statetest.MirroredFiles(t, target); got["n"] != "new" {
				t.Errorf("%s: the mirror has %.20q, want the newest version", name, got["n"])
			}
			if m := mirrorMark(t, target); m.Generation != 2 || len(m.Touched) > 0 || m.By != "" {
				t.Errorf("%s: mark = %+v, want generation 2", name, m)
			}
		}
	})
}

// TestMirrorSlowFile checks that the lease is renewed during a write that takes longer than the lease, so that no other
// worker writes the same file.
func TestMirrorSlowFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, target := mem.New(), slowFiles{Objects: mem.New(), puts: new(atomic.Int64)}
		var wg sync.WaitGroup
		w := statetest.NewWorker(t, bucket, ref, state.Options{})
		w.Checkout()
		w.Write("large", statetest.Random(1, 6<<20))
		w.Commit("task-1")
		for range 2 {
			wg.Go(func() {
				m := mirror.Follow(state.New(bucket, state.Options{}).Repo(), target, mirror.Options{})
				if out, err := m.Update(t.Context(), ref); err != nil || out.Generation != 1 {
					t.Errorf("Update() = %+v, %v, want generation 1", out, err)
				}
			})
		}
		wg.Wait()
		if n := target.puts.Load(); n != 1 {
			t.Errorf("the file was written %d times, want once", n)
		}
	})
}

// slowFiles takes a minute to write a megabyte.
type slowFiles struct {
	*mem.Objects
	puts *atomic.Int64
}

func (s slowFiles) PutFile(ctx context.Context, key string, r io.Reader, size int64) error {
	s.puts.Add(1)
	return s.Objects.PutFile(ctx, key, slowly{r}, size)
}

type slowly struct{ io.Reader }

func (s slowly) Read(p []byte) (int, error) {
	n, err := io.ReadFull(s.Reader, p[:min(len(p), 64<<10)])
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	timer := time.NewTimer(time.Minute / 16 * time.Duration(n) / (64 << 10))
	<-timer.C
	return n, err
}

func TestNoMirror(t *testing.T) {
	var none *mirror.Mirror
	if _, err := none.Update(t.Context(), ref); !errors.Is(err, mirror.ErrNotConfigured) {
		t.Errorf("Update() without a mirror = %v, want %v", err, mirror.ErrNotConfigured)
	}
}

// TestMirrorOfLostWorkspace checks that a mirror keeps its files if the workspace is lost, and loses them if the
// workspace was purged.
func TestMirrorOfLostWorkspace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, target := mem.New(), mem.New()
		w, mirrored := mirroredWorker(t, bucket, target)
		w.Checkout()
		w.Write("a", "1")
		w.Commit("task-1")
		w.Checkout()
		w.Write("a", "2")
		w.Commit("task-2")
		mirrored.Close(t.Context())
		bucket.Damage(ref.HeadKey(), statetest.Gone)
		for name, left := range map[string]objects.Objects{"HEAD is lost": bucket, "the bucket is new": mem.New()} {
			_, m := mirroredWorker(t, left, target)
			if _, err := m.Update(t.Context(), ref); !errors.Is(err, objects.ErrCorrupt) {
				t.Errorf("%s: Update() = %v, want %v", name, err, objects.ErrCorrupt)
			}
			if diff := cmp.Diff(map[string]string{"a": "2"}, statetest.MirroredFiles(t, target)); diff != "" {
				t.Errorf("%s: mirrored files (-want +got):\n%s", name, diff)
			}
			m.Close(t.Context())
		}
		purged := mem.New()
		p, m := mirroredWorker(t, purged, target)
		defer m.Close(t.Context())
		statetest.Must(t, p.Store.Repo().RaiseFloor(t.Context(), ref.Tenant, 3))
		if _, err := m.Update(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		if got := statetest.MirroredFiles(t, target); len(got) > 0 {
			t.Errorf("mirrored files of a purged workspace = %v, want none", got)
		}
	})
}
