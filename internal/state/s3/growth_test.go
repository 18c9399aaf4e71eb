package s3_test

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
)

var growthCommits = flag.Int("growth.commits", 12_000, "commits of BenchmarkGrowth")

// BenchmarkGrowth measures what a long history costs: many commits of one file of 10 bytes each.
//
//	go test -run '^$' -bench Growth -benchtime 1x ./internal/state/s3
func BenchmarkGrowth(b *testing.B) {
	for b.Loop() {
		growth(b, newBench(b))
	}
}

func growth(b *testing.B, w *bench) {
	b.Helper()
	n := *growthCommits
	step := n / 12
	var first, last time.Duration
	start := time.Now()
	for i := range n {
		w.edit(i)
		if (i+1)%step != 0 {
			continue
		}
		last = time.Since(start) / time.Duration(step)
		if first == 0 {
			first = last
		}
		b.Logf("%6d commits: %v each", i+1, last)
		start = time.Now()
	}
	b.ReportMetric(ms(first), "first-commit-ms")
	b.ReportMetric(ms(last), "last-commit-ms")
	b.ReportMetric(w.bytes()/float64(n), "B/commit")
	for _, r := range []struct {
		name  string
		store *state.Store
	}{{"cached", w.store}, {"cold", w.another()}} {
		start = time.Now()
		if log, err := history.Log(b.Context(), r.store.Repo(), w.ref, 1000); err != nil || len(log) != min(n, 1000) {
			b.Fatal(len(log), err)
		}
		b.ReportMetric(ms(time.Since(start)), "log-"+r.name+"-ms")
		start = time.Now()
		if diff, err := history.Diff(b.Context(), r.store.Repo(), w.ref, 1, 0); err != nil || len(diff) < n {
			b.Fatal(len(diff), err)
		}
		b.ReportMetric(ms(time.Since(start)), "diff-"+r.name+"-ms")
	}
	w.collect("clean", maintenance.GCOptions{})
	moved := maintenance.GCOptions{Grace: 1, Retention: maintenance.Retention{All: 1, Daily: 1}}
	for range 3 { // what the compaction of one run frees, the next one marks
		w.collect("clean-old", moved)
	}
	b.ReportMetric(w.bytes()/float64(n), "cleaned-B/commit")
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// edit commits one file.
func (b *bench) edit(i int) {
	b.Helper()
	edits := func(yield func(state.Edit, error) bool) {
		yield(state.Edit{
			Path: fmt.Sprintf("d%02d/f%06d", i%100, i), Kind: state.File,
			Content: strings.NewReader(fmt.Sprintf("%010d", i)),
		}, nil)
	}
	opts := state.EditOptions{Base: state.Newest, Message: "put"}
	if _, err := b.store.Edit(b.Context(), b.ref, opts, iter.Seq2[state.Edit, error](edits)); err != nil {
		b.Fatal(err)
	}
}

// bytes returns how much is stored.
func (b *bench) bytes() (sum float64) {
	b.Helper()
	for info, err := range b.s3.List(b.Context(), "acme/", "") {
		if err != nil {
			b.Fatal(err)
		}
		sum += float64(info.Size)
	}
	return sum
}

// collect measures the time and the heap of one run of garbage collection by another worker.
func (b *bench) collect(name string, opts maintenance.GCOptions) {
	b.Helper()
	store := b.another()
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	ctx, cancel := context.WithTimeout(b.Context(), 3*time.Minute)
	defer cancel()
	peak := make(chan uint64)
	go func() {
		var most uint64
		for ctx.Err() == nil {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapInuse)
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
		peak <- most
	}()
	start := time.Now()
	out, err := maintenance.CollectGarbage(ctx, store.Repo(), b.ref.Tenant, opts)
	took := time.Since(start)
	cancel()
	heap := float64(int64(<-peak)-int64(before.HeapInuse)) / (1 << 20)
	b.Logf("%s: %v, heap +%.0f MB, %+v, %v", name, took, heap, out, err)
	b.ReportMetric(took.Seconds(), name+"-s")
	b.ReportMetric(heap, name+"-MB")
}
