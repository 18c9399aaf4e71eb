package executor_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/executortest"
)

// TestHookThatPanics checks that a panic in a tool call or in the service of a connection does not end the worker: the
// program gets an error that it can handle, and the log has the stack.
func TestHookThatPanics(t *testing.T) {
	var logged bytes.Buffer
	pool, stop := hostPool(t, slog.New(slog.NewTextHandler(&logged, nil)))
	box := acquireHost(t, pool)
	const code = `
import os, urllib.request
from client.mcp_client import call_mcp_tool, ToolError
try: call_mcp_tool("s", "t")
except ToolError as e: result = [e.code, e.message]
try: urllib.request.urlopen("http://example.com")
except OSError: result.append("no connection")
`
	v, err := box.Run(t.Context(), executor.Program{TaskID: "t7", Code: code}, executor.Hooks{
		Call:    func(context.Context, executor.Call) (executor.CallResult, error) { panic("broker bug") },
		Network: func(context.Context, net.Conn) { panic("proxy bug") },
	})
	const want = `["internal","this call makes the fleet panic, which is a bug: see the fleet's log","no connection"]`
	if err != nil || string(v.Result) != want {
		t.Errorf("Run() = %+v, %v, %v, want the result %s", v, v.Error, err, want)
	}
	box.Release()
	stop() // the log is complete
	for _, part := range []string{"task_id=t7", `panic="broker bug"`, `panic="proxy bug"`, "panic_test.go"} {
		if !strings.Contains(logged.String(), part) {
			t.Errorf("log = %s, want %s in it", &logged, part)
		}
	}
}

// TestCheckThatPanics checks that a box whose program still runs, because a hook has panicked, gets no other program.
func TestCheckThatPanics(t *testing.T) {
	pool, _ := hostPool(t, nil)
	first := acquireHost(t, pool)
	func() {
		defer first.Release()
		defer func() {
			if recover() == nil {
				t.Error("Run does not panic")
			}
		}()
		program := executor.Program{TaskID: "t", Code: "while True: pass"}
		_, _ = first.Run(t.Context(), program, executor.Hooks{Facts: func(executor.Facts) { panic("guardrail bug") }})
	}()
	second := acquireHost(t, pool)
	if v, err := second.Run(t.Context(), executor.Program{TaskID: "t", Code: "1"}, executor.Hooks{}); err != nil ||
		string(v.Result) != "1" || second.BoxID() == first.BoxID() {
		t.Errorf("the next program in box %s after %s = %+v, %v, want the result 1 from another box",
			second.BoxID(), first.BoxID(), v, err)
	}
	second.Release()
}

// hostPool runs a pool with one box on this host until stop is called or the test ends.
func hostPool(t *testing.T, log *slog.Logger) (pool *executor.Pool, stop func()) {
	t.Helper()
	pool, err := executor.NewPool(executortest.Host{}, executor.PoolOptions{
		MinReady: -1, Max: 1, Dir: filepath.Join(t.TempDir(), "b"), Owner: "w", DiskMB: -1, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan error, 1)
	go func() { stopped <- pool.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("pool.Run() = %v, want nil", err)
		}
	})
	t.Cleanup(stop)
	return pool, stop
}

func acquireHost(t *testing.T, pool *executor.Pool) *executor.AcquiredBox {
	t.Helper()
	box, err := pool.Acquire(t.Context(), executor.Key{Tenant: "a"}, executor.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return box
}
