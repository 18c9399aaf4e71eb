package faulttest_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/schemas"
)

var (
	upgradeFrom = flag.String("upgrade.from", "", "directory of the old build in TestUpgrade; empty skips the test")
	upgradeTo   = flag.String("upgrade.to", "", "directory of the new build in TestUpgrade")
)

// binaryRole runs one of the fleet's binaries until ctx ends, and then sends it SIGTERM. The process is ready when it
// has printed its address, or at once if it is a worker. If it exits with an error, the role ends with exit code 1.
func binaryRole(ctx context.Context, ready func()) error {
	name := os.Getenv("BINARY")
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv("BUILD"), name), "--config", os.Getenv("CONFIG"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	log, err := os.OpenFile(os.Getenv("LOG"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	if name != "worker" {
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("%s printed no address: %w: %s", name, errors.Join(err, cmd.Wait()), text)
		}
	}
	ready()
	if err := cmd.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	return nil
}

// part is a process of one of the fleet's binaries, with the link to the build from which it starts.
type part struct {
	*faulttest.Process
	name, build string
}

// binaries is a fleet of the real binaries: an HTTP interface, an MCP bridge and workers.
type binaries struct {
	*fleet
	ingest, bridge part
	workers        []part
	operator       *client.Client
	options        client.Options // of the tenant
	mcpURL         string
}

const (
	tenantToken   = "token-of-the-tenant"
	operatorToken = "token-of-the-operator"
	rolledWorkers = 3
)

// startBinaries starts the binaries of a build.
func startBinaries(t *testing.T, f *fleet, build string) *binaries {
	t.Helper()
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return hex.EncodeToString(sum[:])
	}
	vars := map[string]string{}
	for _, v := range f.env {
		name, value, _ := strings.Cut(v, "=")
		vars[name] = value
	}
	httpAddr, mcpAddr := freeAddr(t), freeAddr(t)
	conf := filepath.Join(f.dir, "config.yaml")
	text := fmt.Sprintf(`
nats: {url: 'nats://%s', user: %s, password: %s}
s3: {endpoint: 'http://%s', bucket: %s, access_key: %s, secret_key: %s}
http: {addr: '%s'}
mcp: {addr: '%s'}
auth: {operators: [{name: operator, sha256: %s, scopes: [operator]}]}
tenants: {acme: {max_running: 16, tokens: [{name: acme, sha256: %s, scopes: [read, submit]}]}}
queue: {ack_wait: %s}
worker: {slots: 2, drain: 2s}
execution: {runsc: '%s'}
logging: {level: WARNING, format: text}
`, strings.ReplaceAll(vars["NATS_ADDR"], ",", ",nats://"), embedded.FleetUser, password,
		vars["S3_ADDR"], bucket, bucket, password,
		httpAddr, mcpAddr, hash(operatorToken), hash(tenantToken), os.Getenv("ACK_WAIT"), vars["RUNSC"])
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &binaries{
		fleet: f, mcpURL: "http://" + mcpAddr + "/mcp",
		options: client.Options{
			URL: "http://" + httpAddr, Token: tenantToken, Source: source, RetryFor: time.Minute,
		},
	}
	start := func(name, binary string) part {
		link := filepath.Join(f.dir, "build-"+name)
		if err := os.Symlink(build, link); err != nil {
			t.Fatal(err)
		}
		env := append(slices.Clone(f.env), "BINARY="+binary, "BUILD="+link, "CONFIG="+conf, "HOME="+f.dir,
			"LOG="+p.log(name), "CODEFLEET_DATA="+filepath.Join(f.dir, name), "CODEFLEET_WORKER_NAME="+name,
			"CODEFLEET_URL="+p.options.URL)
		return part{faulttest.Start(t, "binary", env...), name, link}
	}
	p.ingest = start("ingest", "ingest")
	p.bridge = start("bridge", "mcp-bridge")
	for i := range rolledWorkers {
		p.workers = append(p.workers, start("w"+strconv.Itoa(i), "worker"))
	}
	t.Cleanup(func() {
		for _, w := range append(slices.Clone(p.workers), p.bridge, p.ingest) {
			if err := w.Stop(time.Minute); err != nil {
				t.Error(err)
			}
		}
		for _, w := range append(slices.Clone(p.workers), p.bridge, p.ingest) {
			text, err := os.ReadFile(p.log(w.name))
			if err != nil || t.Failed() || strings.Contains(string(text), "panic") {
				t.Errorf("log of %s: %v\n%s", w.name, err, text)
			}
		}
	})
	options := p.options
	options.Token = operatorToken
	var err error
	if p.operator, err = client.New(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	for _, w := range p.workers {
		p.awaitWorker(t, w.name)
	}
	return p
}

func (p *binaries) log(name string) string { return filepath.Join(p.dir, name+".log") }

// worker returns the fleet's running worker with this name, or false if there is none.
func (p *binaries) worker(t *testing.T, name string) (schemas.Worker, bool) {
	t.Helper()
	fleet, err := p.operator.Fleet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(fleet.Workers, func(w schemas.Worker) bool { return w.Name == name && w.State == "running" })
	if i < 0 {
		return schemas.Worker{}, false
	}
	return fleet.Workers[i], true
}

// awaitWorker waits until a worker serves tasks, and returns its version.
func (p *binaries) awaitWorker(t *testing.T, name string) (version string) {
	t.Helper()
	eventually(t, "worker "+name, func(context.Context) error {
		w, ok := p.worker(t, name)
		if version = w.Version; !ok || w.Boxes["ready"] == 0 {
			return errors.New("no box is ready")
		}
		return nil
	})
	return version
}

// roll restarts every part once with a build, in the order of docs/deploy.md: workers first, then interfaces. Every
// second worker is drained by an operator's order, the others by SIGTERM.
func (p *binaries) roll(t *testing.T, build string) {
	t.Helper()
	restart := func(w part) {
		if err := errors.Join(os.Remove(w.build), os.Symlink(build, w.build)); err != nil {
			t.Fatal(err)
		}
		if err := w.Restart(time.Minute)(t.Context(), nil); err != nil {
			t.Errorf("roll %s: %v", w.name, err)
		}
	}
	for i, w := range p.workers {
		how := "SIGTERM"
		if was, _ := p.worker(t, w.name); i%2 == 0 && was.Drains { // older builds obey SIGTERM only
			how = "an order"
			if _, err := p.operator.DrainWorker(t.Context(), w.name); err != nil {
				t.Fatal(err)
			}
			eventually(t, "drain of "+w.name, func(context.Context) error {
				if now, ok := p.worker(t, w.name); ok && now.Started.Equal(was.Started) {
					return errors.New("it still runs")
				}
				return nil
			})
		}
		restart(w)
		t.Logf("%s drained by %s, and runs version %s", w.name, how, p.awaitWorker(t, w.name))
	}
	restart(p.ingest)
	restart(p.bridge)
}

// rollQueue restarts the NATS servers, one after the other.
func (p *binaries) rollQueue(t *testing.T) {
	t.Helper()
	for _, n := range p.nodes {
		if err := errors.Join(n.Restart(time.Minute)(t.Context(), nil), p.caughtUp(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

// load is what callers did while the parts were restarted.
type load struct {
	mu       sync.Mutex
	tasks    []submitted
	waits    []time.Duration // of submissions
	repeated atomic.Int64    // calls over MCP that were interrupted and repeated
	paths    map[state.Ref]string
}

func (l *load) add(task submitted, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tasks, l.waits = append(l.tasks, task), append(l.waits, wait)
}

// workspaces is the number of workspaces of tasks over HTTP.
const workspaces = 16

func workspaceOf(i int) state.Ref {
	return state.Ref{Tenant: "acme", Workspace: "http" + strconv.Itoa(i)}
}

// submitOverHTTP submits tasks until ctx ends, at most 24 of them at a time. One in four outlives worker.drain.
func (p *binaries) submitOverHTTP(ctx context.Context, t *testing.T, l *load) {
	c, err := client.New(t.Context(), p.options)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	rng := rand.New(rand.NewPCG(p.seed, 2))
	var pending []submitted
	await := func(n int) {
		for len(pending) > n {
			p.wait(t, pending[0])
			pending = pending[1:]
		}
	}
	for i := 0; ctx.Err() == nil; i++ {
		ref, sleepS := workspaceOf(rng.IntN(4)), rng.Float64()/4
		if i%4 == 0 {
			ref, sleepS = workspaceOf(4+i/4%(workspaces-4)), 5 // alone in its workspace, so that it has no conflict
		}
		task := newTask(ref, i)
		began := time.Now()
		rec, err := c.Submit(t.Context(), client.Submission{
			Workspace: ref.Workspace, IdempotencyKey: task.name,
			Task: client.Task{
				Code: fmt.Sprintf(counting, l.paths[ref]), Retry: &client.Retry{Attempts: 1},
				Inputs: fmt.Appendf(nil, `{"name": %q, "sleep_s": %f}`, task.name, sleepS),
			},
		})
		if err != nil || rec.TaskID != task.id {
			t.Errorf("Submit(%s) = task %s, %v, want %s", task.name, rec.TaskID, err, task.id)
			return
		}
		l.add(task, time.Since(began))
		pending = append(pending, task)
		await(24)
	}
	await(0)
}

// bearer adds the tenant's token to requests.
type bearer struct{}

func (bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+tenantToken)
	return http.DefaultTransport.RoundTrip(r)
}

// callOverMCP runs tasks as an agent does, one after the other, until ctx ends. If a call is interrupted, it
// repeats the call with the same idempotency key.
func (p *binaries) callOverMCP(ctx context.Context, t *testing.T, l *load) {
	ref := state.Ref{Tenant: "acme", Workspace: "mcp"}
	for i := 0; ctx.Err() == nil; i++ {
		name := "call-" + strconv.Itoa(i)
		began := time.Now()
		var out struct {
			TaskID string `json:"task_id"`
		}
		eventually(t, "call "+name, func(ctx context.Context) error {
			res, err := p.call(ctx, map[string]any{
				"code": fmt.Sprintf(counting, l.paths[ref]), "workspace": ref.Workspace, "idempotency_key": name,
				"inputs": map[string]any{"name": name, "sleep_s": 0.1}, "wait_ms": 3000,
			})
			if err == nil && res.IsError {
				err = fmt.Errorf("execute_task: %v", res.StructuredContent)
			}
			if err == nil {
				content, _ := json.Marshal(res.StructuredContent) // it was decoded from JSON
				err = json.Unmarshal(content, &out)
			}
			if err != nil {
				l.repeated.Add(1)
			}
			return err
		})
		task := submitted{ref: ref, name: name, id: out.TaskID}
		l.add(task, time.Since(began))
		p.wait(t, task)
	}
}

// call calls execute_task in a session of its own.
func (p *binaries) call(ctx context.Context, args map[string]any) (*sdk.CallToolResult, error) {
	session, err := sdk.NewClient(&sdk.Implementation{Name: "faulttest", Version: "1"}, nil).Connect(ctx,
		&sdk.StreamableClientTransport{Endpoint: p.mcpURL, HTTPClient: &http.Client{Transport: bearer{}}}, nil)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	return session.CallTool(ctx, &sdk.CallToolParams{Name: "execute_task", Arguments: args})
}

// TestUpgrade runs a fleet of the real binaries, while callers submit tasks over HTTP and MCP. It restarts each binary
// with a new build, then the NATS servers, then each binary with the old build and with the new one again. Every task
// has one attempt, so a restart that counts as an attempt ends the task as dead.
//
//	make test-upgrade FROM=HEAD~1
func TestUpgrade(t *testing.T) {
	if *upgradeFrom == "" {
		t.Skip("needs two builds: make test-upgrade")
	}
	t.Setenv("ACK_WAIT", "30s")
	f := newFleetWithNodes(t, 3)
	if !f.sandboxed {
		t.Fatal("gVisor is missing: this test needs root and runsc")
	}
	p := startBinaries(t, f, *upgradeFrom)
	l := &load{paths: map[state.Ref]string{{Tenant: "acme", Workspace: "mcp"}: counterFile}}
	for i := range workspaces {
		l.paths[workspaceOf(i)] = []string{counterFile, counterKeys}[i%2]
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var callers sync.WaitGroup
	callers.Go(func() { p.submitOverHTTP(ctx, t, l) })
	callers.Go(func() { p.callOverMCP(ctx, t, l) })
	eventually(t, "load", func(context.Context) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.tasks) < 30 {
			return fmt.Errorf("%d tasks are submitted", len(l.tasks))
		}
		return nil
	})
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"to the new build", func() { p.roll(t, *upgradeTo) }},
		{"of the NATS servers", func() { p.rollQueue(t) }},
		{"back to the old build", func() { p.roll(t, *upgradeFrom) }},
		{"to the new build again", func() { p.roll(t, *upgradeTo) }},
	} {
		began := time.Now()
		step.do()
		t.Logf("roll %s: %.1f s", step.name, time.Since(began).Seconds())
	}
	end()
	callers.Wait()
	v := f.audit(t, l.tasks, l.paths)
	drained := f.auditAttempts(t, v)
	slices.Sort(l.waits)
	n := len(l.waits)
	t.Logf("%d tasks, %v, %d runs drained; submissions waited p50 %v, p99 %v, max %v; %d MCP calls made again",
		n, v, drained, l.waits[n/2], l.waits[n*99/100], l.waits[n-1], l.repeated.Load())
	for _, problem := range v.problems {
		t.Error(problem)
	}
	if drained == 0 {
		t.Error("no run was drained, want some: the load does not outlive worker.drain")
	}
}

// auditAttempts checks that every run but the last of each task was drained, which counts no attempt, and returns the
// number of these runs.
func (f *fleet) auditAttempts(t *testing.T, v *verdict) (drained int) {
	t.Helper()
	for _, rec := range f.everyRecord(t) {
		if !rec.Status.Terminal() {
			continue
		}
		for _, a := range rec.Attempts[:max(0, len(rec.Attempts)-1)] {
			if a.Outcome != "drained" {
				v.problem("run %d of task %s (%s) ended %s, want drained: %s", a.Run, rec.EventID, rec.TaskID,
					a.Outcome, a.Error)
				continue
			}
			drained++
		}
	}
	return drained
}
