// Package ingesttest starts a fleet for tests of its interfaces: an embedded queue, the HTTP interface and a worker.
// The worker runs the commands of Run instead of Python programs; everything else is real.
package ingesttest

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing" //nolint:depguard // a fixture of tests
	"time"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/logtest"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/schemas"
)

// Tokens that a Fleet accepts.
const (
	Token    = "token-of-default"  // tenant default, all scopes
	Other    = "token-of-other"    // tenant other, submit, read, approve and tools
	Agent    = "token-of-agent"    // tenant default, submit and read
	ReadOnly = "token-read-only"   // tenant default, read
	Operator = "token-of-operator" // no tenant, operator
)

// Credentials of the tenant default's NATS user.
const (
	NATSUser     = "default"
	NATSPassword = "password-of-default"
)

// Fleet is a running fleet of a test. It ends with the test.
type Fleet struct {
	URL  string // address of the HTTP interface
	NATS *embedded.NATS
	Jobs *jobs.Client
	HTTP *httptest.Server
	Log  *logtest.Log

	Objects *mem.Objects // the store of the workspaces

	Ingest *ingest.Server
}

// Start starts a fleet. workers is how many tasks run at once; 0 means that none run. change, if not nil, may change
// the options of the HTTP interface and of the queue.
func Start(tb testing.TB, workers int, change func(*ingest.Options, *jobs.Options)) *Fleet {
	tb.Helper()
	f := &Fleet{Log: &logtest.Log{}}
	log := slog.New(slog.NewJSONHandler(f.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	quiet := slog.New(slog.DiscardHandler)
	var err error
	if f.NATS, err = embedded.StartNATS(tb.Context(), embedded.NATSOptions{
		Dir:     tb.TempDir(),
		Log:     quiet,
		Tenants: map[string]embedded.NATSUser{"default": {User: NATSUser, Password: NATSPassword}},
	}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(f.NATS.Close)
	user := f.NATS.Fleet()
	queue := jobs.Options{
		Server:      jobs.Server{URL: f.NATS.URL()},
		Credentials: jobs.Credentials{User: user.User, Password: user.Password},
		Log:         quiet,
	}
	f.Objects = mem.New()
	options := ingest.Options{
		Telemetry: ingest.Telemetry{Log: log}, Workspaces: state.New(f.Objects, state.Options{}), Artifacts: Files{
			"out/a.csv": "1,2\n", "out/dot.png": PNG, "out/large.png": PNG + strings.Repeat("x", 2<<20),
		},
		Access: ingest.Access{Tokens: []ingest.Token{
			token("default", Token, "default", "submit", "read", "approve", "tools", "operator"),
			token("other", Other, "other", "submit", "read", "approve", "tools"),
			token("agent", Agent, "default", "submit", "read"), token("reader", ReadOnly, "default", "read"),
			token("operator", Operator, "", "operator"),
		}},
	}
	if change != nil {
		change(&options, &queue)
	}
	if f.Jobs, err = jobs.Connect(tb.Context(), queue); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(f.Jobs.Close)
	if err := f.Jobs.Provision(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	if workers > 0 {
		f.work(tb, workers)
	}
	following, stop := context.WithCancel(tb.Context())
	var wg sync.WaitGroup
	wg.Go(func() { f.Jobs.FollowTokens(following) })
	tb.Cleanup(func() { stop(); wg.Wait() })
	f.Ingest = ingest.New(options)
	f.Ingest.Join(f.Jobs)
	f.HTTP = httptest.NewServer(documented(tb, f.Ingest.Handler()))
	tb.Cleanup(f.HTTP.Close)
	tb.Cleanup(f.Ingest.Drain)
	f.URL = f.HTTP.URL
	return f
}

func token(name, secret, tenant string, scopes ...string) ingest.Token {
	return ingest.Token{Name: name, SHA256: sha256.Sum256([]byte(secret)), Tenant: tenant, Scopes: scopes}
}

func (f *Fleet) work(tb testing.TB, slots int) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	w := jobs.NewWorker(f.Jobs, jobs.WorkerOptions{Name: "test-worker", Slots: slots, Handler: Run})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Run(ctx, ctx); err != nil {
			tb.Errorf("Run of the worker = %v, want nil", err)
		}
	})
	tb.Cleanup(func() { cancel(); wg.Wait() })
}

// Run is the handler of the worker. The first word of a task's code is a command: "print" prints the rest, "files"
// returns artifacts, "image" returns images, "fail" fails, "refuse" ends blocked, "large" fails with a result whose
// parts are long, "die" fails permanently, as if the fleet had failed, "block" runs until it is cancelled, "call" does
// so, too, after a tool's server has reported progress, and "ask" requests the approval of one call for each further
// word and prints the decisions. "block" and "call" print the rest first. Run prints any other code, and a description.
func Run(ctx context.Context, j *jobs.Job) (*schemas.Result, error) {
	r := &schemas.Result{
		Status: schemas.Succeeded, Artifacts: []schemas.Artifact{}, Code: j.Task.Code, GeneratedBy: "caller",
	}
	r.Tools.Selected, r.Tools.Calls = []string{}, []schemas.ToolCall{}
	r.Workspace = schemas.WorkspaceChange{Name: j.Record.Workspace, Changed: []string{}, Conflicts: []string{}}
	j.Emit(ctx, schemas.Progress{Stage: "run"})
	word, rest, _ := strings.Cut(j.Task.Code, " ")
	switch word {
	case "print":
		r.Output = rest + "\n"
	case "files":
		r.Output = "files\n"
		r.Artifacts = []schemas.Artifact{
			{Path: "out/a.csv", Bytes: 4, MediaType: "text/csv"},
			{Path: "gone.txt", Bytes: 4, MediaType: "text/plain"},
			{Path: "short.html", Bytes: 400, MediaType: "text/html\r\nX-Evil: 1"},
		}
	case "image":
		r.Artifacts = []schemas.Artifact{
			{Path: "out/dot.png", Bytes: int64(len(PNG)), MediaType: "image/png"},
			{Path: "out/a.csv", Bytes: 4, MediaType: "image/png"},
			{Path: "out/large.png", Bytes: 2 << 20, MediaType: "image/png"},
		}
		r.Result = json.RawMessage(`{"shot":{"path":"tool-results/shot.png","media_type":"image/png","bytes":70}}`)
	case "fail":
		r.Status, r.Error = schemas.Failed, &schemas.Error{
			Code: "program_error", Message: "ValueError: " + rest, Line: 1,
		}
	case "refuse":
		r.Status, r.Error = schemas.Blocked, &schemas.Error{Code: errcode.Refused, Message: "refused"}
	case "large":
		large(r)
	case "die":
		return nil, jobs.Permanent(errors.New("the fleet failed"))
	case "call", "block":
		if word == "call" {
			j.Emit(ctx, schemas.Progress{Stage: "tool", Text: strings.TrimSpace("wiki/export: 1 of 3: page 1 " + rest)})
		}
		j.Emit(ctx, schemas.Progress{Stream: "stdout", Text: strings.TrimSpace("blocking "+rest) + "\n"})
		<-ctx.Done()
		r.Status, r.Error = schemas.Cancelled, &schemas.Error{
			Code: errcode.Cancelled, Message: "the task was cancelled",
		}
	case "ask":
		for arg := range strings.FieldsSeq(rest) {
			a, err := j.RequestApproval(ctx, Question(arg))
			if err != nil {
				return nil, err
			}
			r.Output += strings.TrimSpace(a.State+" "+a.By+" "+a.Reason) + "\n"
		}
	default:
		r.Output = j.Task.Code + j.Task.Description + "\n"
	}
	if r.Output != "" {
		j.Emit(ctx, schemas.Progress{Stream: "stdout", Text: r.Output})
	}
	return r, nil
}

// large makes the task fail, with a result whose parts are longer than what clients print.
func large(r *schemas.Result) {
	r.Status, r.Error = schemas.Failed, &schemas.Error{
		Code: errcode.Exception, Message: strings.Repeat("message ", 1000), Cause: strings.Repeat("cause\n", 1000),
		Hint: strings.Repeat("hint ", 1000), Line: 1,
	}
	r.Output = strings.Repeat("\x1b\"ü\n", 10_000)
	r.Stderr = strings.Repeat("\x01stderr\n", 10_000)
	r.Code = strings.Repeat("code\n", 10_000)
	r.Result = json.RawMessage(`"` + strings.Repeat("result", 10_000) + `"`)
	for i := range 500 {
		name := fmt.Sprintf("out/%0100d", i)
		r.Artifacts = append(r.Artifacts, schemas.Artifact{Path: name, Bytes: 4, MediaType: "text/csv"})
		r.Workspace.Changed = append(r.Workspace.Changed, name)
		r.Workspace.Conflicts = append(r.Workspace.Conflicts, name)
		r.Tools.Selected = append(r.Tools.Selected, "server/"+name)
		r.Guardrails = append(r.Guardrails, schemas.Finding{Rule: "files", Line: i, Level: "warning", Message: name})
	}
}

// Question returns a call of crm/drop with an argument, which expires in a minute.
func Question(arg string) schemas.Approval {
	sum := sha256.Sum256([]byte(arg))
	return schemas.Approval{
		Call:      base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").EncodeToString(sum[:])[:10],
		Server:    "crm",
		Tool:      "drop",
		Signature: "drop(who)", Effects: "read-only",
		Arguments: json.RawMessage(strconv.Quote(arg)),
		ArgsHash:  hex.EncodeToString(sum[:]),
		ArgsBytes: len(arg),
		ExpiresAt: time.Now().Add(time.Minute),
	}
}

// PNG is the beginning of an image.
const PNG = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"

// Files are the artifacts of every task, by path.
type Files map[string]string

// Artifact implements ingest.Artifacts.
func (f Files) Artifact(_ context.Context, _ schemas.Record, path string) (io.ReadCloser, error) {
	if path == "short.html" {
		return io.NopCloser(strings.NewReader("<script>")), nil // shorter than the result says
	}
	text, ok := f[path]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

// WaitTimeout bounds how long tests wait for an event that must happen.
const WaitTimeout = time.Minute

// AwaitSubmission waits until the submission of a task that has ended is kept, which happens after its end.
func (f *Fleet) AwaitSubmission(tb testing.TB, id string) {
	tb.Helper()
	f.AwaitSubmitted(tb, id, func(err error) bool { return err == nil })
}

// AwaitSubmitted waits until reading the submission of a task that has ended leads to a wanted error.
func (f *Fleet) AwaitSubmitted(tb testing.TB, id string, wanted func(error) bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), WaitTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := f.Jobs.Wait(ctx, "default", id); err != nil {
			tb.Fatal(err)
		}
		_, _, err := f.Jobs.Submitted(ctx, "default", id)
		if wanted(err) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tb.Fatalf("the submission of task %s leads to %v", id, err)
		}
	}
}
