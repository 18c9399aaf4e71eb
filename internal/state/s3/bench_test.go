package s3_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/s3"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// The benchmarks measure workspaces on a real gateway on the loopback interface. They report medians, and the peak
// memory of the process so far.
//
//	go test -run '^$' -bench . -benchtime 10x ./internal/state/s3

const benchFiles = 10_000

type bench struct {
	*testing.B
	store *state.Store
	ref   state.Ref
	s3    *s3.Objects
	opts  func() state.Options
	times []time.Duration
	n     int
}

func newBench(b *testing.B) *bench {
	b.Helper()
	bucket := open(b, gateway(b))
	cached := func() state.Options { return state.Options{CacheDir: b.TempDir()} }
	return &bench{
		B: b, s3: bucket, store: state.New(bucket, cached()), opts: cached,
		ref: state.Ref{Tenant: "acme", Workspace: "bench"},
	}
}

// another returns a store with an empty cache.
func (b *bench) another() *state.Store { return state.New(b.s3, b.opts()) }

func (b *bench) tree(store *state.Store, dir string, ref state.Ref) *state.Tree {
	b.Helper()
	t, err := store.Tree(dir, ref)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { t.Close() })
	return t
}

func (b *bench) checkout(store *state.Store, t *state.Tree) {
	b.Helper()
	if _, err := store.Checkout(b.Context(), t, nil); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) commit(store *state.Store, t *state.Tree) state.Commit {
	b.Helper()
	b.n++
	c, err := store.Commit(b.Context(), t, state.CommitOptions{TaskID: "task-" + strconv.Itoa(b.n), Attempt: 1})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// time measures one operation of the loop. The loop body has stopped the timer for its preparations.
func (b *bench) time(op func()) {
	b.StartTimer()
	start := time.Now()
	op()
	b.times = append(b.times, time.Since(start))
}

func (b *bench) report() {
	slices.Sort(b.times)
	b.ReportMetric(float64(b.times[len(b.times)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(peakMB(b.B), "peak-MB")
}

// peakMB returns the peak resident memory of this process.
func peakMB(b *testing.B) float64 {
	b.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip("no /proc")
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				b.Fatal(err)
			}
			return float64(kb) / 1024
		}
	}
	return 0
}

// many writes 10,000 files of 1 KiB into 100 directories.
func many(b *testing.B, dir string) {
	b.Helper()
	content := []byte(statetest.Random(3, 1<<20))
	for i := range benchFiles {
		sub := filepath.Join(dir, fmt.Sprintf("d%02d", i%100))
		if i < 100 {
			if err := os.Mkdir(sub, 0o755); err != nil {
				b.Fatal(err)
			}
		}
		at := i * 64
		data := fmt.Appendf(nil, "%8d", i)
		data = append(data, content[at:at+1016]...)
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%05d", i)), data, 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFirstPush(b *testing.B) {
	w := newBench(b)
	b.ResetTimer()
	for b.Loop() {
		b.StopTimer()
		w.n++
		ref := state.Ref{Tenant: fmt.Sprintf("t%d", w.n), Workspace: "main"}
		store := w.another()
		clone := b.TempDir()
		t := w.tree(store, clone, ref)
		w.checkout(store, t)
		many(b, clone)
		w.time(func() { w.commit(store, t) })
	}
	w.report()
}

func (b *bench) filled() (*state.Tree, string) {
	dir := b.TempDir()
	t := b.tree(b.store, dir, b.ref)
	b.checkout(b.store, t)
	many(b.B, dir)
	b.commit(b.store, t)
	b.checkout(b.store, t)
	b.commit(b.store, t)
	return t, dir
}

func BenchmarkNoChangePush(b *testing.B) {
	w := newBench(b)
	t, _ := w.filled()
	b.ResetTimer()
	for b.Loop() {
		b.StopTimer()
		w.checkout(w.store, t)
		w.time(func() {
			if !w.commit(w.store, t).NoChange {
				b.Fatal("Commit() of an unchanged tree made a version")
			}
		})
	}
	w.report()
}

func BenchmarkOneFilePush(b *testing.B) {
	w := newBench(b)
	t, dir := w.filled()
	b.ResetTimer()
	for b.Loop() {
		b.StopTimer()
		w.checkout(w.store, t)
		if err := os.WriteFile(filepath.Join(dir, "d07/f00007"), []byte(strconv.Itoa(w.n)), 0o644); err != nil {
			b.Fatal(err)
		}
		w.time(func() { w.commit(w.store, t) })
	}
	w.report()
}

func BenchmarkColdPull(b *testing.B) {
	w := newBench(b)
	w.filled()
	b.ResetTimer()
	for b.Loop() {
		b.StopTimer()
		store := w.another()
		t := w.tree(store, b.TempDir(), w.ref)
		w.time(func() { w.checkout(store, t) })
	}
	w.report()
}

func BenchmarkNoChangePull(b *testing.B) {
	w := newBench(b)
	t, _ := w.filled()
	w.checkout(w.store, t)
	w.commit(w.store, t)
	b.ResetTimer()
	for b.Loop() {
		b.StopTimer()
		w.time(func() { w.checkout(w.store, t) })
		w.commit(w.store, t)
	}
	w.report()
}

func large(b *testing.B, path string, size int64) {
	b.Helper()
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{9}), size)
	if err = errors.Join(err, f.Close()); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkLargeFile(b *testing.B) {
	const size = 256 << 20
	for _, c := range []struct {
		name string
		pull bool
		edit bool
	}{{"push", false, false}, {"pull", true, false}, {"change8", false, true}} {
		b.Run(c.name, func(b *testing.B) {
			w := newBench(b)
			b.ResetTimer()
			for b.Loop() {
				b.StopTimer()
				w.n++
				ref := state.Ref{Tenant: fmt.Sprintf("t%d", w.n), Workspace: "main"}
				store := w.another()
				dir := b.TempDir()
				t := w.tree(store, dir, ref)
				w.checkout(store, t)
				large(b, filepath.Join(dir, "large"), size)
				push := func() { w.commit(store, t) }
				if !c.pull && !c.edit {
					w.time(push)
					continue
				}
				push()
				if c.edit {
					w.checkout(store, t)
					f, err := os.OpenFile(filepath.Join(dir, "large"), os.O_WRONLY, 0)
					if err != nil {
						b.Fatal(err)
					}
					f.WriteAt([]byte("8 bytes!"), size/2)
					f.Close()
					w.time(push)
					continue
				}
				other := w.another()
				copied := w.tree(other, b.TempDir(), ref)
				w.time(func() { w.checkout(other, copied) })
			}
			w.report()
		})
	}
}
