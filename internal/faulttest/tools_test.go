package faulttest_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/pipeline"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/internal/tools/mcp"
	"github.com/codefleet/codefleet/internal/tools/pygen"
	"github.com/codefleet/codefleet/schemas"
)

// ledgerVariable is the environment variable that turns a process into the upstream of these tests. It names the file
// into which the upstream writes a line for each call.
const ledgerVariable = "UPSTREAM_LEDGER"

// upstream serves MCP on standard input and output. Each call of its tool has an effect.
func upstream(ctx context.Context, path string) error {
	type booking struct {
		N int `json:"n"`
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "ledger", Version: "1"}, nil)
	sdk.AddTool(s, &sdk.Tool{Name: "book", Description: "Book a number."},
		func(_ context.Context, _ *sdk.CallToolRequest, in booking) (*sdk.CallToolResult, booking, error) {
			f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err == nil {
				_, err = fmt.Fprintln(f, in.N)
			}
			if err == nil {
				err = f.Close()
			}
			return nil, booking{in.N * in.N}, err
		})
	return s.Run(ctx, &sdk.StdioTransport{})
}

func upstreams(path string) (*mcp.Manager, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	server := mcp.Server{Name: "ledger", Command: self, Env: map[string]string{ledgerVariable: path}}
	return mcp.NewManager([]mcp.Server{server}, mcp.Options{Log: roleLog()})
}

// openTools returns a worker's tools. A call may kill the worker, as environment variables specify.
func openTools(dir string) (t pipeline.Tools, mounts []executor.Mount, stop func(), err error) {
	servers, path := os.Getenv("SERVERS"), os.Getenv("LEDGER")
	if servers == "" {
		return t, nil, func() {}, nil
	}
	versions, err := tools.OpenVersionStore(tools.VersionStoreOptions{
		Source: tools.OpenCatalogue(servers, tools.Options{Check: tools.PythonChecker("")}),
		Dir:    filepath.Join(dir, "catalogue"), Log: roleLog(),
	})
	if err != nil {
		return t, nil, nil, err
	}
	m, err := upstreams(path)
	if err != nil {
		return t, nil, nil, err
	}
	t = pipeline.Tools{Catalogue: versions, Upstream: m.Call, Policy: broker.Policy{Destructive: broker.Allow}}
	if n, err := strconv.Atoi(os.Getenv("CRASH_AFTER_CALL")); err == nil {
		t.Audit = &crashAfterCall{left: n, log: roleLog()}
	}
	if n, err := strconv.Atoi(os.Getenv("CRASH_IN_CALL")); err == nil {
		t.Upstream = crashInCall(m.Call, n)
	}
	mounts = []executor.Mount{{Source: versions.Dir(), Target: executor.DefaultGuest().Catalogue, ReadOnly: true}}
	return t, mounts, m.Close, nil
}

// crashAfterCall kills its process when a call has ended: the result is in the journal, but the program does not have
// it yet.
type crashAfterCall struct {
	left int
	log  *slog.Logger
}

func (*crashAfterCall) Begin(context.Context, broker.AuditRecord) error   { return nil }
func (*crashAfterCall) Decided(context.Context, broker.AuditRecord) error { return nil }

func (c *crashAfterCall) End(ctx context.Context, _ broker.AuditRecord) error {
	if c.left--; c.left > 0 {
		return nil
	}
	if err := signalSelf(syscall.SIGKILL); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// crashInCall kills its process when the server has responded to a call, before the result is in the journal.
func crashInCall(next broker.Upstream, n int) broker.Upstream {
	var calls atomic.Int64
	return func(ctx context.Context, r tools.Request) (tools.Result, error) {
		res, err := next(ctx, r)
		if calls.Add(1) == int64(n) {
			if err := signalSelf(syscall.SIGKILL); err != nil {
				return res, err
			}
			<-ctx.Done()
		}
		return res, err
	}
}

// bookFive is a program that books five numbers and returns the results.
const bookFive = `
from client.mcp_client import ToolError
from servers.ledger import book
result = []
for n in range(1, 6):
    try:
        result.append(book(n)["n"])
    except ToolError as error:
        result.append(str(error).split(" (")[0])
with open(inputs["name"], "w") as f:
    f.write(inputs["name"])
`

const inDoubt = "ledger.book: an earlier run may have made this call"

// A worker is killed after, or during, the third of a task's five mutating calls. The next run replays the calls whose
// results are in the journal, reports a call in doubt as an error, and makes the others.
func TestCallsOfAKilledWorker(t *testing.T) {
	for _, test := range []struct {
		name, crash string
		result      string
		booked      string // numbers in the upstream's ledger
		replayed    int
	}{
		{"after its third call", "CRASH_AFTER_CALL=3", `[1,4,9,16,25]`, "1 2 3 4 5", 3},
		{"during its third call", "CRASH_IN_CALL=3", `[1,4,"` + inDoubt + `",16,25]`, "1 2 3 4 5", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFleet(t)
			env := []string{"SERVERS=" + filepath.Join(f.dir, "servers"), "LEDGER=" + filepath.Join(f.dir, "ledger")}
			f.generate(t)
			task := newTask(state.Ref{Tenant: "acme", Workspace: "files"}, 0)
			crasher := f.work(t, 1, append(env, test.crash)...)
			f.submit(t, task, bookFive, 0)
			if err := crasher.Killed(); err != nil {
				t.Fatal(err)
			}
			f.workers = nil // the successor gets the name and the directory of the killed worker, and cleans up
			f.work(t, 1, env...)
			rec := f.wait(t, task)
			if rec.Run != 2 || rec.Status != schemas.Succeeded || string(rec.Result.Result) != test.result {
				t.Fatalf("run %d ended %s with %s, want run 2 with %s: %+v", rec.Run, rec.Status, rec.Result.Result,
					test.result, rec.Result.Error)
			}
			booked, err := os.ReadFile(filepath.Join(f.dir, "ledger"))
			if got := strings.Join(strings.Fields(string(booked)), " "); got != test.booked || err != nil {
				t.Errorf("the upstream's ledger = %s, %v, want %s", got, err, test.booked)
			}
			replayed := 0
			for _, c := range rec.Result.Tools.Calls {
				if c.Replayed {
					replayed++
				}
			}
			if len(rec.Result.Tools.Calls) != 5 || replayed != test.replayed {
				t.Errorf("the result has %d calls, %d of them replayed, want 5 and %d",
					len(rec.Result.Tools.Calls), replayed, test.replayed)
			}
		})
	}
}

// generate writes the upstream's modules, and approves its tools.
func (f *fleet) generate(t *testing.T) {
	t.Helper()
	m, err := upstreams(filepath.Join(f.dir, "ledger"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	defs, about, err := m.Definitions(t.Context(), "ledger", "", "")
	if err != nil {
		t.Fatal(err)
	}
	p, err := pygen.Generate(pygen.Source{Server: "ledger", About: about, Tools: defs})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(f.dir, "servers")
	if _, err := pygen.Write(dir, p); err != nil {
		t.Fatal(err)
	}
	approvals := tools.Approvals{}
	for _, d := range defs {
		approvals.Approve("ledger", d, "test", time.Now())
	}
	if err := approvals.Save(dir); err != nil {
		t.Fatal(err)
	}
}
