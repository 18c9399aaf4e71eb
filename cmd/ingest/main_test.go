package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/internal/logtest"
)

func TestMain(m *testing.M) {
	embedded.S3Main()
	os.Exit(m.Run())
}

var environment = []string{"HOME=/nonexistent"}

func startNATS(t *testing.T) *embedded.NATS {
	t.Helper()
	n, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{
		Dir: t.TempDir(),
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// start runs ingest. It returns the address that ingest prints, and a function that stops it and returns its exit code.
func start(t *testing.T, args ...string) (url string, end func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, w := io.Pipe()
	var log bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, args, environment, w, &log)
		w.Close()
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("ingest exited with code %d, want an address: %s", <-code, log.String())
	}
	return strings.TrimSpace(line), func() int { cancel(); return <-code }
}

// await waits until ok returns true. It fails the test after 30 seconds.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit, every := time.After(30*time.Second), time.NewTicker(20*time.Millisecond)
	defer every.Stop()
	for !ok() {
		select {
		case <-every.C:
		case <-limit:
			t.Fatalf("waited 30s in vain, want %s", what)
		}
	}
}

func TestServesWithSettings(t *testing.T) {
	n := startNATS(t)
	dir := t.TempDir()
	t.Chdir(dir)
	sum := sha256.Sum256([]byte("a-token-of-the-test"))
	conf := "nats: {url: '" + n.URL() + "', user: " + n.Fleet().User + ", password: '" + n.Fleet().Password + "'}\n" +
		"http: {addr: '127.0.0.1:0'}\ntenants: {acme: {tokens: [{name: ci, sha256: " + hex.EncodeToString(sum[:]) +
		"}]}}\n"
	if err := os.WriteFile("config.yaml", []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	url, end := start(t, "--config", filepath.Join(dir, "config.yaml"))
	c, err := client.New(t.Context(), client.Options{URL: url, Token: "a-token-of-the-test"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if r, err := c.Submit(t.Context(), client.Submission{Task: client.Task{Code: "print(6*7)"}}); err != nil ||
		r.Tenant != "acme" || r.Status != client.Queued {
		t.Errorf("Submit = %+v, %v, want a queued task of acme", r, err)
	}
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("metrics without a token = %d, want 401", resp.StatusCode)
	}
	if code := end(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestJoinsAFleet(t *testing.T) {
	n := startNATS(t)
	t.Chdir(t.TempDir())
	file := config.FleetFile{
		URL: "http://127.0.0.1:1", Token: "of-up", Tenant: "default",
		NATS: config.FleetNATS{URL: n.URL(), User: n.Fleet().User, Password: n.Fleet().Password},
		S3:   config.FleetS3{Endpoint: "http://127.0.0.1:1", Bucket: "b", AccessKey: "k", SecretKey: "s"},
	}
	if err := file.Write("fleet.json"); err != nil {
		t.Fatal(err)
	}
	url, end := start(t, "--fleet", "fleet.json", "--http", "127.0.0.1:0")
	c, err := client.New(t.Context(), client.Options{URL: url, Token: "of-up"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if fleet, err := c.Fleet(t.Context()); err != nil || len(fleet.Workers) != 0 {
		t.Errorf("Fleet = %+v, %v, want no workers", fleet, err)
	}
	if code := end(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestRefusesToStart(t *testing.T) {
	t.Chdir(t.TempDir())
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := os.WriteFile("open.yaml", []byte("auth: {enabled: false}\nnats: {url: 'nats://127.0.0.1:1'}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args []string
		code int
		want string
	}{
		"flag":                       {[]string{"--nonsense"}, 2, "not defined: --nonsense (ingest --help"},
		"argument":                   {[]string{"now"}, 2, `unexpected argument "now"`},
		"no queue":                   {nil, 2, "address of the queue is missing"},
		"no file":                    {[]string{"--config", "absent.yaml"}, 2, "absent.yaml"},
		"bad fleet file":             {[]string{"--fleet", "open.yaml"}, 2, "open.yaml"},
		"no fleet file, no settings": {[]string{"--fleet", "absent.json", "--config", "absent.yaml"}, 2, "absent.yaml"},
		"no token":                   {[]string{"--nats", "nats://127.0.0.1:1"}, 2, "no token is set"},
		"port in use":                {[]string{"--config", "open.yaml", "--http", ln.Addr().String()}, 2, "is in use"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, log bytes.Buffer
			if code := run(t.Context(), tt.args, environment, &out, &log); code != tt.code ||
				!strings.Contains(log.String(), tt.want) || out.Len() > 0 {
				t.Errorf("exit code %d, output %q, log %q, want %d, no output and a log with %q", code, out.String(),
					log.String(), tt.code, tt.want)
			}
			if strings.Contains(log.String(), "ingest: usage:") {
				t.Errorf("log %q, want the error without the prefix \"usage:\"", log.String())
			}
		})
	}
}

func TestHelp(t *testing.T) {
	var log bytes.Buffer
	if code := run(t.Context(), []string{"-h"}, environment, io.Discard, &log); code != 0 ||
		!strings.Contains(log.String(), "\n  --fleet FILE\n") {
		t.Errorf("-h: exit code %d, log %q, want 0 and the flags with two dashes", code, log.String())
	}
	var out bytes.Buffer
	log.Reset()
	if code := run(t.Context(), []string{"--version"}, environment, &out, &log); code != 0 || log.Len() > 0 ||
		!strings.HasPrefix(out.String(), "ingest dev (go") {
		t.Errorf("--version: exit code %d, output %q, log %q, want 0 and ingest dev", code, out.String(), log.String())
	}
}

// TestWaitsForQueueUntilStopped also checks that ingest does not warn of the settings of a model, although only the
// workers have its key.
func TestWaitsForQueueUntilStopped(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("config.yaml", []byte("auth: {enabled: false}\nhttp: {addr: '127.0.0.1:0'}\n"+
		"llm: {model: m}\ntenants: {default: {token_rate: 5/s}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	code, log := make(chan int, 1), &logtest.Log{}
	go func() { code <- run(ctx, []string{"--nats", "nats://127.0.0.1:1"}, environment, io.Discard, log) }()
	await(t, "a log line about NATS", func() bool { return strings.Contains(log.String(), "waiting for NATS") })
	cancel()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d, want 0: %s", got, log.String())
	}
	if strings.Contains(log.String(), "doubtful setting") {
		t.Errorf("log %q, want no warnings", log.String())
	}
}

// TestWaitsForFleetFile starts the program before fleet.json exists, and rewrites the file with another token.
func TestWaitsForFleetFile(t *testing.T) {
	n := startNATS(t)
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	code, log := make(chan int, 1), &logtest.Log{}
	go func() {
		code <- run(ctx, []string{"--fleet", "fleet.json", "--http", "127.0.0.1:0"}, environment, w, log)
		w.Close()
	}()
	await(t, "a log line about fleet.json", func() bool {
		return strings.Contains(log.String(), "ingest: waiting for fleet.json")
	})
	write := func(token string) {
		t.Helper()
		file := config.FleetFile{
			URL: "http://127.0.0.1:1", Token: token, Tenant: "default",
			NATS: config.FleetNATS{URL: n.URL(), User: n.Fleet().User, Password: n.Fleet().Password},
			S3:   config.FleetS3{Endpoint: "http://127.0.0.1:1", Bucket: "bucket", AccessKey: "k", SecretKey: "s"},
		}
		if err := file.Write("fleet.json"); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("ingest exited with code %d, want an address: %s", <-code, log.String())
	}
	url := strings.TrimSpace(line)
	status := func(token string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/whoami", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := status("first"); got != 200 {
		t.Errorf("GET with the first token = %d, want 200", got)
	}
	// Until the process has read the tokens that operators created, it does not know whether a token is one of them.
	await(t, "401 for the second token", func() bool { return status("second") == 401 })
	write("second")
	await(t, "200 for the second token", func() bool { return status("second") == 200 })
	if got := status("first"); got != 401 {
		t.Errorf("GET with the first token after the second = %d, want 401", got)
	}
	cancel()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d, want 0", got)
	}
}

// startS3 starts an object store behind a relay that refuses connections.
func startS3(t *testing.T) (config.FleetS3, *faulttest.Relay) {
	t.Helper()
	s3, err := embedded.StartS3(t.Context(), embedded.S3Options{
		Dir: t.TempDir(), Addr: "127.0.0.1:0", AccessKey: "key", SecretKey: "secret", Bucket: "bucket", NoSync: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s3.Close(); err != nil {
			t.Error(err)
		}
	})
	relay := faulttest.StartRelay(t, s3.Endpoint())
	relay.Set(faulttest.Refuse)
	return config.FleetS3{
		Endpoint: "http://" + relay.Addr(), Bucket: "bucket", AccessKey: "key", SecretKey: "secret",
	}, relay
}

// TestStartsBeforeTheQueue starts the program before its queue and its object store. It responds at once, serves
// tasks when the queue responds, and workspaces when the object store responds.
func TestStartsBeforeTheQueue(t *testing.T) {
	n := startNATS(t)
	relay := faulttest.StartRelay(t, strings.TrimPrefix(n.URL(), "nats://"))
	relay.Set(faulttest.Refuse)
	s3, store := startS3(t)
	t.Chdir(t.TempDir())
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	file := config.FleetFile{
		URL: "http://127.0.0.1:1", Token: "of-up", Tenant: "default",
		NATS: config.FleetNATS{URL: relay.Through(n.URL()), User: n.Fleet().User, Password: n.Fleet().Password},
		S3:   s3,
	}
	if err := file.Write("fleet.json"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	code, log := make(chan int, 1), &logtest.Log{}
	go func() {
		code <- run(ctx, []string{"--fleet", "fleet.json", "--http", addr}, environment, io.Discard, log)
	}()
	awaitGet := func(path, want string) (header http.Header) {
		t.Helper()
		await(t, fmt.Sprintf("GET %s = %s", path, want), func() bool {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer of-up")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			header = resp.Header
			return err == nil && strings.HasPrefix(fmt.Sprint(resp.StatusCode, " ", string(body)), want)
		})
		return header
	}
	const starting = `503 {"code":"unavailable","message":"this process is starting: the queue does not respond yet"`
	awaitGet("/healthz", "200")
	for _, path := range []string{"/readyz", "/v1/tasks", "/metrics"} {
		if header := awaitGet(path, starting); header.Get("Retry-After") != "1" {
			t.Errorf("GET %s: header %v, want Retry-After: 1", path, header)
		}
	}
	const queueDown = `503 {"code":"unavailable","message":"the queue does not respond"`
	const storeDown = `503 {"code":"unavailable","message":"the object store does not respond"`
	relay.Set(faulttest.Forward)
	awaitGet("/readyz", storeDown)
	awaitGet("/v1/tasks", "200")
	relay.Set(faulttest.Refuse) // the queue moves to another address
	awaitGet("/readyz", queueDown)
	file.NATS.URL = n.URL()
	if err := file.Write("fleet.json"); err != nil {
		t.Fatal(err)
	}
	awaitGet("/readyz", storeDown)
	store.Set(faulttest.Forward)
	awaitGet("/readyz", "200")
	awaitGet("/v1/workspaces", "200")
	cancel()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d, want 0", got)
	}
}
