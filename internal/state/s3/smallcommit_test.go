package s3_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// distant delays each request, like a distant store, and counts the requests.
type distant struct {
	next     http.RoundTripper
	delay    time.Duration
	requests atomic.Int64
}

func (d *distant) RoundTrip(r *http.Request) (*http.Response, error) {
	d.requests.Add(1)
	wait := time.NewTimer(d.delay)
	defer wait.Stop()
	select {
	case <-wait.C:
		return d.next.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// BenchmarkSmallCommit commits one changed file, in turns: stored, carried by HEAD, and one small swap without a
// workspace, which is one round trip. It reports medians, and the requests of a commit.
func BenchmarkSmallCommit(b *testing.B) {
	for _, delay := range []time.Duration{0, 20 * time.Millisecond} {
		b.Run(delay.String(), func(b *testing.B) {
			opts := gateway(b)
			far := &distant{next: opts.Transport, delay: delay}
			opts.Transport = far
			bucket := open(b, opts)
			w := &bench{B: b, s3: bucket}
			times := map[string][]time.Duration{}
			requests := map[string]int64{}
			measure := func(name string, op func()) {
				before := far.requests.Load()
				start := time.Now()
				op()
				times[name] = append(times[name], time.Since(start))
				requests[name] += far.requests.Load() - before
			}
			commit := func(name string, o state.Options) func() {
				o.CacheDir = b.TempDir()
				store := state.New(bucket, o)
				if o.Carry != nil {
					stop := store.Repo().StartFolding()
					b.Cleanup(func() { stop(context.WithoutCancel(b.Context())) }) // the context has ended
				}
				dir := b.TempDir()
				tree := w.tree(store, dir, state.Ref{Tenant: name, Workspace: "main"})
				return func() {
					w.checkout(store, tree)
					content := strconv.Itoa(w.n) + statetest.Random(1, 1000)
					if err := os.WriteFile(filepath.Join(dir, "f"), []byte(content), 0o644); err != nil {
						b.Fatal(err)
					}
					measure(name, func() { w.commit(store, tree) })
				}
			}
			stored, carried := commit("stored", state.Options{}), commit("carried", statetest.Carrying)
			etag := ""
			stored()
			carried()
			clear(times)
			clear(requests)
			for b.Loop() {
				stored()
				carried()
				measure("trip", func() {
					var err error
					etag, err = bucket.CompareAndSwap(b.Context(), "trip/HEAD", etag, []byte(strconv.Itoa(w.n)))
					if err != nil {
						b.Fatal(err)
					}
				})
			}
			median := func(name string) float64 {
				slices.Sort(times[name])
				return float64(times[name][len(times[name])/2].Microseconds()) / 1000
			}
			for name := range times {
				b.ReportMetric(median(name), name+"-ms")
				if name != "trip" { // during a trip, carried objects may be stored in the background
					b.ReportMetric(float64(requests[name])/float64(len(times[name])), name+"-requests")
				}
			}
			b.ReportMetric(median("stored")/median("trip"), "stored÷trip")
			b.ReportMetric(median("carried")/median("trip"), "carried÷trip")
		})
	}
}
