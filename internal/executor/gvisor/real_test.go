package gvisor_test

import (
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/executortest"
	"github.com/codefleet/codefleet/internal/executor/gvisor"
)

// engine returns the path of runsc, or skips the test.
func engine(tb testing.TB) string {
	tb.Helper()
	return executortest.Runsc(tb)
}

// newDriver returns a driver, and checks at the end of the test that it leaves nothing behind.
func newDriver(tb testing.TB) *gvisor.Driver {
	tb.Helper()
	return newDriverIn(tb, shortDir(tb))
}

// newDriverIn is like newDriver, with the driver's state directory.
func newDriverIn(tb testing.TB, dir string) *gvisor.Driver {
	tb.Helper()
	d, err := gvisor.New(gvisor.Options{Runsc: engine(tb), Dir: dir})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Errorf("Close = %v, want nil", err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			tb.Errorf("files left in the state directory: %v, %v, want none", left, err)
		}
	})
	return d
}

// shortDir returns a temporary directory whose path is short enough for sockets.
func shortDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "cf") //nolint:usetesting // the path of TempDir contains the name of the test
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func newBox(tb testing.TB, d *gvisor.Driver, spec executor.Spec) executor.Box {
	tb.Helper()
	if spec.Name == "" {
		spec.Name = "w0"
	}
	if spec.Owner == "" {
		spec.Owner = "test"
	}
	if spec.Workspace == "" {
		spec.Workspace = workspace(tb)
	}
	if spec.Env == nil {
		spec.Env = []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}
	}
	box, err := d.Create(tb.Context(), spec)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := box.Destroy(context.WithoutCancel(tb.Context())); err != nil {
			tb.Errorf("Destroy = %v, want nil", err)
		}
	})
	return box
}

// views is what a program prints as the sorted names of an empty workspace.
const views = "['client', 'servers']\n"

// workspace returns a directory that the programs of a box can write to.
func workspace(tb testing.TB) string {
	tb.Helper()
	dir := shortDir(tb)
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, 65534, 65534); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// python runs code in the box and returns its output and exit code.
func python(tb testing.TB, box executor.Box, code string) (stdout, stderr string, exit int) {
	tb.Helper()
	s, err := box.Exec(tb.Context(), []string{"/usr/bin/python3", "-I", "-S", "-c", code})
	if err != nil {
		tb.Fatal(err)
	}
	s.Stdin().Close()
	var out, errs []byte
	var wg sync.WaitGroup
	wg.Go(func() { out, _ = io.ReadAll(s.Stdout()) })
	wg.Go(func() { errs, _ = io.ReadAll(s.Stderr()) })
	wg.Wait()
	exit, err = s.Wait()
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(string(out)), strings.TrimSpace(string(errs)), exit
}

// startPool runs a pool over the driver until the test ends, and waits until it is ready.
func startPool(tb testing.TB, d executor.Driver, opts executor.PoolOptions) *executor.Pool {
	tb.Helper()
	if opts.Dir == "" {
		opts.Dir = shortDir(tb)
	}
	if opts.Owner == "" {
		opts.Owner = "test"
	}
	p, err := executor.NewPool(d, opts)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	tb.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			tb.Errorf("Run = %v, want nil", err)
		}
	})
	select {
	case <-p.Ready():
	case err := <-done:
		done <- err
		tb.Fatalf("Run = %v before the pool was ready, want it to continue", err)
	}
	return p
}

func acquire(tb testing.TB, p *executor.Pool, tenant string, limits executor.Limits) *executor.AcquiredBox {
	tb.Helper()
	box, err := p.Acquire(tb.Context(), executor.Key{Tenant: tenant}, limits, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return box
}

func run(tb testing.TB, box *executor.AcquiredBox, code string) executor.Verdict {
	tb.Helper()
	v, err := box.Run(tb.Context(), executor.Program{TaskID: "task", Code: code}, executor.Hooks{})
	if err != nil {
		tb.Fatal(err)
	}
	return v
}
