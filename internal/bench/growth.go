package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/s3"
)

// growthStep is the default of Options.growthStep.
const growthStep = 1000

// grown is a workspace with a long history.
type grown struct {
	*Bench
	bucket  *s3.Objects
	ref     state.Ref
	commits int
}

// growth measures what a long history costs: each commit adds a file of 10 bytes.
func (b *Bench) growth(ctx context.Context) (err error) {
	server, err := embedded.StartS3(ctx, embedded.S3Options{
		Dir: b.NewDir(), Addr: "127.0.0.1:0", AccessKey: "bench", SecretKey: "bench-secret", Bucket: "bench",
		NoSync: true, // the time of a flush does not depend on the history
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	transport := s3.NewTransport()
	defer transport.CloseIdleConnections() // the server would wait for them
	bucket, err := s3.Open(s3.Options{
		Endpoint: "http://" + server.Endpoint(), Bucket: "bench", AccessKey: "bench", SecretKey: "bench-secret",
		Transport: transport,
	})
	if err != nil {
		return err
	}
	g := &grown{Bench: b, bucket: bucket, ref: state.Ref{Tenant: "bench", Workspace: "main"}}
	for _, measure := range []func(context.Context) error{g.commit, g.read, g.collect} {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	b.Summarise()
	return nil
}

// open returns the store of a new worker, without anything in its cache.
func (g *grown) open() *state.Store { return state.New(g.bucket, state.Options{CacheDir: g.NewDir()}) }

// commit makes the commits of each sample, and measures them.
func (g *grown) commit(ctx context.Context) error {
	t := Table{Title: "commits", Columns: []string{"commits", "ms each", "bytes stored for each"}}
	store, step := g.open(), cmp.Or(g.growthStep, growthStep)
	var each []float64
	var before float64
	for range g.N {
		g.Progress(fmt.Sprintf("growth: commit %d of %d", g.commits, g.N*step))
		start := time.Now()
		for range step {
			if err := g.edit(ctx, store); err != nil {
				return err
			}
		}
		each = append(each, Since(start)/float64(step))
		bytes, err := g.stored(ctx)
		if err != nil {
			return err
		}
		t.Rows = append(t.Rows, []string{
			strconv.Itoa(g.commits), fmt.Sprintf("%.2f", each[len(each)-1]),
			fmt.Sprintf("%.0f", (bytes-before)/float64(step)),
		})
		before = bytes
	}
	g.Add("commit", "ms", each...)
	g.Tables = append(g.Tables, t)
	g.AtMost("G1", "last commits ÷ first commits", each[len(each)-1]/each[0], 1.2, "×")
	return nil
}

// edit commits one file.
func (g *grown) edit(ctx context.Context, store *state.Store) error {
	edits := func(yield func(state.Edit, error) bool) {
		yield(state.Edit{
			Path: fmt.Sprintf("d%02d/f%06d", g.commits%100, g.commits), Kind: state.File,
			Content: strings.NewReader(fmt.Sprintf("%010d", g.commits)),
		}, nil)
	}
	_, err := store.Edit(ctx, g.ref, state.EditOptions{Base: state.Newest}, edits)
	g.commits++
	return err
}

// stored returns how many bytes are in the object store.
func (g *grown) stored(ctx context.Context) (bytes float64, err error) {
	for info, err := range g.bucket.List(ctx, g.ref.Tenant+"/", "") {
		if err != nil {
			return 0, err
		}
		bytes += float64(info.Size)
	}
	return bytes, nil
}

// read measures reads by a worker without a cache.
func (g *grown) read(ctx context.Context) error {
	g.Progress("growth: history")
	const limit = 1000
	start := time.Now()
	if _, err := history.Log(ctx, g.open().Repo(), g.ref, limit); err != nil {
		return err
	}
	g.AtMost("G2", "log of 1,000 commits", Since(start), 300, "ms")
	start = time.Now()
	if _, err := history.Diff(ctx, g.open().Repo(), g.ref, 1, 0); err != nil {
		return err
	}
	g.AtMost("G3", "diff from the first version", Since(start), 1000, "ms")
	store, dir := g.open(), g.NewDir()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	tree, err := store.Tree(dir, g.ref)
	if err != nil {
		return err
	}
	start = time.Now()
	_, err = store.Checkout(ctx, tree, nil)
	g.Add("checkout of all files", "ms", Since(start))
	return errors.Join(err, tree.Close())
}

// collect measures garbage collection: a pass that keeps every version, and what is left when all but the newest
// versions have expired.
func (g *grown) collect(ctx context.Context) error {
	g.Progress("growth: garbage collection")
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	stop, most := make(chan struct{}), make(chan float64)
	go func() { most <- peakHeap(stop) }()
	start := time.Now()
	_, err := maintenance.CollectGarbage(ctx, g.open().Repo(), g.ref.Tenant, maintenance.GCOptions{})
	took := time.Since(start)
	close(stop)
	heap := <-most - float64(before.HeapInuse)
	if err != nil {
		return err
	}
	g.AtMost("G4", "garbage collection", took.Seconds(), 30, "s")
	g.AtMost("G5", "its heap", heap/(1<<20), 150, "MB")
	expired := maintenance.GCOptions{Grace: 1, Retention: maintenance.Retention{All: 1, Daily: 1}}
	for range 3 { // a pass removes what the previous one has marked
		if _, err := maintenance.CollectGarbage(ctx, g.open().Repo(), g.ref.Tenant, expired); err != nil {
			return err
		}
	}
	left, err := g.stored(ctx)
	g.AtMost("G6", "bytes left for each commit", left/float64(g.commits), 2048, "bytes")
	return err
}

// peakHeap returns the largest heap in bytes until stop is closed.
func peakHeap(stop <-chan struct{}) (most float64) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		most = max(most, float64(now.HeapInuse))
		select {
		case <-ticker.C:
		case <-stop:
			return most
		}
	}
}
