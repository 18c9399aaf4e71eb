package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/bench"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/process"
)

const (
	idleClients   = 1000
	activeClients = 200
	// sessionVersion is the last protocol version whose clients keep a session and a stream open.
	sessionVersion = "2025-11-25"
	// connectEvery is the interval between new clients, which keeps them below the tenant's rate limit.
	connectEvery = 10 * time.Millisecond
)

// mcp measures what the MCP bridge adds to a task, and how much memory a client takes.
func (b *run) mcp(ctx context.Context) (err error) {
	f, stop, err := b.StartFleet(ctx, func(*config.Config) {}, process.RunWorker)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	dir := b.NewDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file := filepath.Join(dir, "fleet.json")
	if err := f.File.Write(file); err != nil {
		return err
	}
	if err := b.stdioTask(ctx, file); err != nil {
		return err
	}
	return b.manyClients(ctx, file, f.File.Token)
}

// stdioTask measures a task through `codefleet mcp` beside the same task through the Go client. Both use the HTTP
// interface.
func (b *run) stdioTask(ctx context.Context, file string) error {
	c, err := bench.Connect(ctx, file)
	if err != nil {
		return err
	}
	defer c.Close()
	cmd := exec.CommandContext(ctx, b.Program, "mcp", "--fleet", file)
	session, err := connect(ctx, &sdk.CommandTransport{Command: cmd}, "")
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }() // the measurement is done
	direct := bench.Repeated("Go client", c, client.Task{Code: bench.SmallestProgram})
	bridged := bench.Timed("execute_task over stdio",
		func(ctx context.Context) error { return execute(ctx, session) })
	if err := b.SideBySide(ctx, bench.Spaced(b.N), direct, bridged); err != nil {
		return err
	}
	b.AtMost("M1", "execute_task over stdio − Go client", b.Median("execute_task over stdio")-b.Median("Go client"), 3,
		"ms")
	return nil
}

func connect(ctx context.Context, t sdk.Transport, version string) (*sdk.ClientSession, error) {
	c := sdk.NewClient(&sdk.Implementation{Name: "codefleet bench", Version: "1"}, nil)
	return c.Connect(ctx, t, &sdk.ClientSessionOptions{ProtocolVersion: version})
}

// execute runs the smallest program and checks that it ran.
func execute(ctx context.Context, s *sdk.ClientSession) error {
	r, err := s.CallTool(ctx, &sdk.CallToolParams{
		Name: "execute_task", Arguments: map[string]any{"code": bench.SmallestProgram},
	})
	if err != nil {
		return err
	}
	if got, _ := r.StructuredContent.(map[string]any); got["output"] != bench.SmallestOutput {
		return fmt.Errorf("execute_task returned %v, want the output %q", got, bench.SmallestOutput)
	}
	return nil
}

// manyClients measures a bridge's memory with idle clients, and the rate of many simultaneous calls.
func (b *run) manyClients(ctx context.Context, file, token string) (err error) {
	bridge, err := bench.StartChild(
		ctx, b.NewDir(), nil, b.Program, "mcp", "--transport", "http", "--http", "127.0.0.1:0", "--fleet", file,
	)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bridge.Stop()) }()
	url, err := bufio.NewReader(bridge.Stdout).ReadString('\n')
	if err != nil {
		return fmt.Errorf("start codefleet mcp: %w", err)
	}
	h := &http.Client{Transport: &authorized{token: token, next: &http.Transport{MaxIdleConnsPerHost: idleClients}}}
	dial := func() (*sdk.ClientSession, error) {
		return connect(ctx, &sdk.StreamableClientTransport{
			Endpoint: strings.TrimSpace(url), HTTPClient: h,
		}, sessionVersion)
	}
	warm, err := dial()
	if err == nil {
		err = execute(ctx, warm)
	}
	if err != nil {
		return err
	}
	before := bench.Resident(bridge.PID())
	sessions, err := b.dialMany(ctx, dial)
	if err != nil {
		return err
	}
	b.Add("a client over HTTP, idle", "KB", (bench.Resident(bridge.PID())-before)*1024/idleClients)
	began := time.Now()
	var g errgroup.Group
	var mu sync.Mutex
	for _, s := range sessions[:activeClients] {
		g.Go(func() error {
			callBegan := time.Now()
			err := execute(ctx, s)
			mu.Lock()
			defer mu.Unlock()
			b.Add(fmt.Sprintf("a call, with %d at once", activeClients), "ms", bench.Since(callBegan))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	b.Add(fmt.Sprintf("%d calls at once", activeClients), "tasks/s", activeClients/time.Since(began).Seconds())
	b.Summarise()
	b.AtMost("M2", fmt.Sprintf("the bridge's memory for each of %d idle clients over HTTP", idleClients),
		b.Median("a client over HTTP, idle"), 100, "KB")
	return nil
}

// dialMany connects the idle clients.
func (b *run) dialMany(ctx context.Context, dial func() (*sdk.ClientSession, error)) ([]*sdk.ClientSession, error) {
	var mu sync.Mutex
	var sessions []*sdk.ClientSession
	var g errgroup.Group
	tick := time.NewTicker(connectEvery)
	defer tick.Stop()
	for i := range idleClients {
		if i%100 == 0 {
			b.Progress(fmt.Sprintf("mcp: %d of %d clients", i, idleClients))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), g.Wait())
		}
		g.Go(func() error {
			s, err := dial()
			mu.Lock()
			defer mu.Unlock()
			sessions = append(sessions, s)
			return err
		})
	}
	err := g.Wait()
	return sessions, err
}

// authorized adds a bearer token to requests.
type authorized struct {
	token string
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (a *authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+a.token)
	return a.next.RoundTrip(r)
}
