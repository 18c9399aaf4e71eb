package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/executortest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/pipeline"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/worker"
	"github.com/codefleet/codefleet/schemas"
)

// putHook calls put before each write.
type putHook struct {
	objects.Objects
	put func()
}

func (w putHook) Put(ctx context.Context, key string, data []byte, sum objects.Digest) error {
	w.put()
	return w.Objects.Put(ctx, key, data, sum)
}

// newQueue returns a queue with a server of its own.
func newQueue(t *testing.T) *jobs.Client {
	t.Helper()
	user := embedded.NATSUser{User: "fleet", Password: "p"}
	srv, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{Dir: t.TempDir(), Fleet: user, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	queue, err := jobs.Connect(t.Context(), jobs.Options{
		Server:      jobs.Server{InProcess: srv},
		Credentials: jobs.Credentials{User: user.User, Password: user.Password},
		Log:         quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(queue.Close)
	if err := queue.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	return queue
}

// A worker that drains notices that another one cannot read carried commits.
func TestCarryingDuringADrain(t *testing.T) {
	queue := newQueue(t)
	present := func(name string, reads bool) (stop func()) {
		w := jobs.NewWorker(queue, jobs.WorkerOptions{
			Name: name, Pools: []string{"other"},
			Handler: func(context.Context, *jobs.Job) (*schemas.Result, error) { return nil, errors.New("no task") },
			Hooks:   jobs.Hooks{Info: func() schemas.Worker { return schemas.Worker{ReadsCarried: reads} }},
		})
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		var running sync.WaitGroup
		running.Go(func() { _ = w.Run(ctx, ctx) })
		return func() { cancel(); running.Wait() }
	}
	defer present("new", true)()
	pool, err := executor.NewPool(executortest.Host{}, executor.PoolOptions{
		MinReady: 1, Max: 2, Dir: filepath.Join(t.TempDir(), "b"), Owner: "w", DiskMB: -1, Log: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	busy, release := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(busy); <-release }) // the first write waits, as that of a slow store
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	var carrying worker.Carrying
	accept, drain := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_ = worker.Run(accept, t.Context(), worker.Parts{
			Queue:    jobs.WorkerOptions{Name: "w", Pools: []string{"default"}, Slots: 1},
			Pipeline: pipeline.Parts{Pool: pool, Log: quiet},
			Live: &worker.Live{
				Dir: dir, StatePath: filepath.Join(t.TempDir(), "memory"),
				Ref: state.Ref{Tenant: "acme", Workspace: "main"},
			},
			Join: func(context.Context) (worker.Fleet, error) {
				store := state.New(putHook{mem.New(), once}, state.Options{Log: quiet})
				return worker.Fleet{Queue: queue, Store: store, Carrying: &carrying}, nil
			},
		})
	})
	defer running.Wait()
	defer close(release)
	defer drain()
	select {
	case <-busy:
	case <-time.After(time.Minute):
		t.Fatal("the worker has not imported the live folder for a minute")
	}
	awaitAllowed := func(want bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); carrying.Allowed() != want; <-time.After(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("Allowed() = %v for a minute, want %v", !want, want)
			}
		}
	}
	awaitAllowed(true)
	drain()
	stopOld := present("old", false)
	awaitAllowed(false)
	stopOld()
	awaitAllowed(true) // so the presences were read
}

// A worker is ready only after its live folder is imported, even when a box is ready earlier.
func TestReadyAfterTheLiveFolder(t *testing.T) {
	queue := newQueue(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	ready, box := make(chan error), make(chan struct{})
	var boxOnce, importOnce sync.Once
	// A box exists while the import is running.
	bucket := putHook{mem.New(), func() { importOnce.Do(func() { <-box }) }}
	store := state.New(bucket, state.Options{Log: quiet})
	ref := state.Ref{Tenant: "acme", Workspace: "main"}
	pool, err := executor.NewPool(executortest.Host{}, executor.PoolOptions{
		MinReady: 1, Max: 2, Dir: filepath.Join(t.TempDir(), "b"), Owner: "w", DiskMB: -1, Log: quiet,
		Trace: func(e executor.PoolEvent) {
			if e.Step == "created" {
				boxOnce.Do(func() { close(box) })
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() {
		err := worker.Run(ctx, ctx, worker.Parts{
			Queue:    jobs.WorkerOptions{Name: "w", Pools: []string{"default"}, Slots: 1},
			Pipeline: pipeline.Parts{Pool: pool, Log: quiet},
			Ready: func() {
				info, err := history.ReadInfo(t.Context(), store.Repo(), ref)
				if err == nil && (info.Generation != 1 || info.Files != 1) {
					err = fmt.Errorf("the workspace is %+v, want the file", info)
				}
				ready <- err
			},
			Live: &worker.Live{Dir: dir, StatePath: filepath.Join(t.TempDir(), "memory"), Ref: ref},
			Join: func(context.Context) (worker.Fleet, error) {
				return worker.Fleet{Queue: queue, Store: store}, nil
			},
		})
		if err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		close(ready)
	})
	if err, called := <-ready; err != nil || !called {
		t.Errorf("when the worker is ready: %v, called %v", err, called)
	}
}
