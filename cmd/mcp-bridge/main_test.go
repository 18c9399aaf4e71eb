package main

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mem"
)

// asBridge is an environment variable that makes the test binary run as mcp-bridge.
const asBridge = "CODEFLEET_TEST_BE_MCP_BRIDGE"

func TestMain(m *testing.M) {
	if os.Getenv(asBridge) != "" {
		main()
	}
	os.Exit(m.Run())
}

func command(fleet, token string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asBridge+"=1", "CODEFLEET_FLEET=", "CODEFLEET_URL="+fleet, "CODEFLEET_TOKEN="+token)
	cmd.Stderr = os.Stderr
	return cmd
}

// start runs a bridge over HTTP and returns its address.
func start(t *testing.T, fleet string, args ...string) (url string, cmd *exec.Cmd) {
	t.Helper()
	cmd = command(fleet, "", append([]string{"--http", "127.0.0.1:0"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the bridge may have exited
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("read the bridge's address: %v, want nil", err)
	}
	return strings.TrimSpace(line), cmd
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func dial(ctx context.Context, t *testing.T, transport mcp.Transport) *mcp.ClientSession {
	t.Helper()
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx, transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cs.Close() }) // the bridge may have exited
	return cs
}

func call(t *testing.T, cs *mcp.ClientSession, tool string, args map[string]any) map[string]any {
	t.Helper()
	r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("CallTool(%s) = %v, want nil", tool, err)
	}
	got, _ := r.StructuredContent.(map[string]any)
	return got
}

// TestKilledBridge kills a bridge while a call waits for a long task. The task continues, and its id is valid over HTTP
// and at other bridges, over HTTP and stdio.
func TestKilledBridge(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	first, killed := start(t, f.URL)
	second, _ := start(t, f.URL)
	over := func(url string) *mcp.StreamableClientTransport {
		return &mcp.StreamableClientTransport{
			Endpoint:   url,
			HTTPClient: &http.Client{Transport: bearer(ingesttest.Token)}, MaxRetries: -1,
		}
	}
	cs := dial(t.Context(), t, over(first))
	broken := make(chan error, 1)
	go func() {
		_, err := cs.CallTool(t.Context(), &mcp.CallToolParams{
			Name:      "execute_task",
			Arguments: map[string]any{"code": "block", "idempotency_key": "k"},
		})
		broken <- err
	}()
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var task client.Record
	for end := time.Now().Add(ingesttest.WaitTimeout); task.TaskID == ""; <-time.After(10 * time.Millisecond) {
		list, err := c.List(t.Context(), client.ListOptions{Status: []client.Status{client.Running}})
		if err != nil || time.Now().After(end) {
			t.Fatalf("List = %d running tasks, %v, want one", len(list), err)
		}
		if len(list) == 1 {
			task = list[0]
		}
	}
	written := errors.New("written")
	if _, err := c.Watch(t.Context(), task.TaskID, 0, func(e client.Event) error {
		if e.Stream == "stdout" {
			return written
		}
		return nil
	}); !errors.Is(err, written) {
		t.Fatalf("Watch = %v, want output of the task", err)
	}
	if err := killed.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-broken; err == nil {
		t.Error("CallTool at a killed bridge = nil, want an error")
	}

	next := dial(t.Context(), t, over(second))
	if got := call(t, next, "get_task", map[string]any{
		"task_id": task.TaskID,
		"wait_ms": 0,
	}); got["status"] != "running" || got["output"] != "blocking\n" {
		t.Errorf("get_task at the second bridge = %v, want a running task with output", got)
	}
	if got := call(t, next, "submit_task", map[string]any{
		"code":            "block",
		"idempotency_key": "k",
	}); got["task_id"] != task.TaskID {
		t.Errorf("submit_task with the same key = task %v, want %s", got["task_id"], task.TaskID)
	}
	stdio := dial(t.Context(), t, &mcp.CommandTransport{Command: command(f.URL, ingesttest.Token, "--transport",
		"stdio")})
	if got := call(t, stdio, "cancel_task", map[string]any{"task_id": task.TaskID}); got["cancelled"] != true {
		t.Errorf("cancel_task over stdio = %v, want cancelled", got)
	}
	if rec, err := c.Wait(t.Context(), task.TaskID); err != nil || rec.Status != client.Cancelled {
		t.Errorf("Wait = %s, %v, want cancelled, nil", rec.Status, err)
	}
}

// TestStartsWithoutObjectStore starts a bridge while the fleet's object store fails every request. The tools that need
// no object store work; the others fail until it responds.
func TestStartsWithoutObjectStore(t *testing.T) {
	var down atomic.Bool
	down.Store(true)
	store := mem.New()
	f := ingesttest.Start(t, 1, func(o *ingest.Options, _ *jobs.Options) {
		o.Workspaces = state.New(store, state.Options{Retry: objects.RetryPolicy{Attempts: 1}})
	})
	store.SetFault(func(mem.Call) mem.Fault {
		if down.Load() {
			return mem.NotApplied
		}
		return mem.OK
	})
	url, _ := start(t, f.URL)
	cs := dial(t.Context(), t, &mcp.StreamableClientTransport{
		Endpoint: url, HTTPClient: &http.Client{Transport: bearer(ingesttest.Token)}, MaxRetries: -1,
	})
	if got := call(t, cs, "execute_task", map[string]any{"code": "print 42"}); got["status"] != "succeeded" {
		t.Errorf("execute_task without an object store = %v, want succeeded", got)
	}
	save := func() string {
		t.Helper()
		r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{
			Name: "save_state", Arguments: map[string]any{"state_data": map[string]any{"step": 1}},
		})
		if err != nil || len(r.Content) == 0 {
			t.Fatalf("CallTool(save_state) = %+v, %v, want a result", r, err)
		}
		text, _ := r.Content[0].(*mcp.TextContent)
		return text.Text
	}
	for _, want := range []string{"the object store does not respond", `"success":true`} {
		if got := save(); !strings.Contains(got, want) {
			t.Errorf("save_state = %s, want %q", got, want)
		}
		down.Store(false)
	}
}

// TestUsage checks that a wrong command line exits with code 2 and an explanation, and that SIGTERM ends the bridge
// without an error.
func TestUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"--transport smoke: want one of":                        {"--transport", "smoke"},
		"mcp.profile":                                           {"--profile", "huge"},
		"--http has no effect with --transport stdio":           {"--transport", "stdio", "--http", "127.0.0.1:0"},
		"not defined: --no (mcp-bridge --help lists the flags)": {"--no"},
	} {
		cmd := command("http://127.0.0.1:1", "", args...)
		cmd.Stderr = nil
		var e *exec.ExitError
		if _, err := cmd.Output(); !errors.As(err, &e) || e.ExitCode() != 2 ||
			!strings.Contains(string(e.Stderr), want) || strings.Contains(string(e.Stderr), "usage: ") {
			t.Errorf("mcp-bridge %v = %v, want exit code 2 and %q without the prefix \"usage:\"", args, err, want)
		}
	}
	f := ingesttest.Start(t, 0, nil)
	url, cmd := start(t, f.URL, "--transport", "sse")
	if !strings.HasSuffix(url, "/sse") {
		t.Errorf("address %s, want the SSE endpoint", url)
	}
	cs := dial(t.Context(), t, &mcp.SSEClientTransport{
		Endpoint:   url,
		HTTPClient: &http.Client{Transport: bearer(ingesttest.Token)},
	})
	if got := call(t, cs, "list_tasks", nil); got["tasks"] == nil {
		t.Errorf("list_tasks over SSE = %v, want tasks", got)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("Wait after SIGTERM = %v, want nil", err)
	}
}
