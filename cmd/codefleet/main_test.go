package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/executor/executortest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

func TestMain(m *testing.M) {
	embedded.S3Main()
	testscript.Main(m, map[string]func(){
		"codefleet": main, "crm-process": crmProcess, "far-worker": farWorker,
		"wiki-server": wikiServer,
	})
}

// TestScripts runs the commands as a user does, each script in its own working and home directory. The scripts have
// these commands in addition to testscript's:
//
//	code N COMMAND ARGS...      run a command and check its exit code
//	id VAR                      set VAR to the last standard output, without white space around it
//	handle VAR                  set VAR to the first task_id in the last standard output
//	mcp ...                     call a tool as an MCP client does, see callTool
//	token                       set TOKEN to the fleet's token
//	await TEXT COMMAND ARGS...  run a command until its standard output contains TEXT
//	up [ARGS...]                start a fleet, wait until it is ready, and set HTTP to its address
//	down                        stop the fleet with SIGTERM and check that it exits without an error
//	model FILE...               start a model for the next fleet; each request gets the next file as its response
//	embedder                    start an embedding model for the next fleet, and write its settings
//	later N [expired]           make N commits and collect garbage, see later
//	blocks                      check the code blocks of the first version's documents, see block
//	download PATH               print the response to a request, see download
//	collector                   receive the traces of the next fleet in the file "traces"
//	metrics                     print the fleet's metrics
//	[!] leaks FILE...           check whether files contain planted values, see leaks
//	[!] places PLACE...         check where the fleet's data contain values, see places
//	registry FILE IMAGE         serve an archive as an image of a registry, and set REGISTRY to its address
func TestScripts(t *testing.T) {
	p := scripts(t, executortest.FindRunsc(t))
	p.Dir = "testdata/script"
	testscript.Run(t, p)
}

// scripts returns the parameters of scripts that start fleets.
func scripts(t *testing.T, runsc string) testscript.Params {
	t.Helper()
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	readPython(t, repo)
	return testscript.Params{
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir+"/home")
			e.Setenv("XDG_DATA_HOME", e.WorkDir) // the paths of sockets must be short
			e.Setenv("CODEFLEET_EXECUTION_RUNSC", runsc)
			// Booting more boxes would take most of a script's time.
			e.Setenv("CODEFLEET_OPTIMIZATIONS_SANDBOX_POOL_SIZE", "1")
			// Without this, a binary built with the race detector waits a second before it exits.
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			e.Setenv("REPO", repo)
			e.Values[fleetKey{}] = &fleet{}
			return os.Mkdir(e.WorkDir+"/home", 0o700)
		},
		Condition: func(name string) (bool, error) {
			if name != "gvisor" {
				return false, fmt.Errorf("unknown condition %s", name)
			}
			return runsc != "", nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": code, "id": id, "await": await, "up": startFleet, "down": stopFleet, "model": startModel,
			"embedder": startEmbedder, "mcp": callTool, "handle": handle, "token": token,
			"blocks": runBlocks, "later": later,
			"download": download, "collector": startCollector, "leaks": leaks, "places": places,
			"metrics":  fleetMetrics,
			"registry": startRegistry,
		},
	}
}

// readPython reads the Python files that scripts run, which tells the go command to repeat the test when they change.
func readPython(t *testing.T, repo string) {
	t.Helper()
	for _, pattern := range []string{"clients/python/*", "clients/python/*/*.py", "examples/*"} {
		names, err := filepath.Glob(filepath.Join(repo, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			_, _ = os.ReadFile(name) // a directory is an error
		}
	}
}

func code(ts *testscript.TestScript, _ bool, args []string) {
	if got := exitText(ts.Exec(args[1], args[2:]...)); got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

func id(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// await runs a command until its output contains a text: `await TEXT COMMAND…`.
func await(ts *testscript.TestScript, _ bool, args []string) {
	for end := time.Now().Add(ingesttest.WaitTimeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		ts.Check(ts.Exec(args[1], args[2:]...))
		if strings.Contains(ts.ReadFile("stdout"), args[0]) {
			return
		}
	}
	ts.Fatalf("no %q in the output:\n%s", args[0], ts.ReadFile("stdout"))
}

type fleetKey struct{}

// fleet is the `codefleet up` process of a script; cmd is nil while none is running.
type fleet struct{ cmd *exec.Cmd }

func startFleet(ts *testscript.TestScript, _ bool, args []string) {
	args = append([]string{"up", "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--s3", "127.0.0.1:0"}, args...)
	cmd := exec.Command("codefleet", args...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{
		"PATH", "HOME", "TMPDIR", "XDG_DATA_HOME", "CODEFLEET_EXECUTION_RUNSC",
		"CODEFLEET_OPTIMIZATIONS_SANDBOX_POOL_SIZE", "GORACE", "OPENAI_BASE_URL", "OPENAI_API_KEY",
		"CODEFLEET_TELEMETRY_ENDPOINT",
	} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	log, err := os.OpenFile(ts.MkAbs("up.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	ts.Check(err)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	f, ok := ts.Value(fleetKey{}).(*fleet)
	if !ok {
		ts.Fatalf("the script's environment has no fleet value")
	}
	f.cmd = cmd
	ts.Defer(func() {
		if f.cmd != nil { // SIGKILL at once would leave the disks of the boxes mounted
			_ = cmd.Process.Signal(syscall.SIGTERM)
			defer time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() }).Stop()
			_ = cmd.Wait()
		}
		log.Close()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if addr, ok := strings.CutPrefix(lines.Text(), "http "); ok {
			ts.Setenv("HTTP", strings.TrimPrefix(strings.TrimSpace(addr), "http://"))
		}
		if lines.Text() == "ready" {
			return
		}
	}
	ts.Fatalf("up ended before it was ready: %s", ts.ReadFile("up.log"))
}

func stopFleet(ts *testscript.TestScript, _ bool, _ []string) {
	f, ok := ts.Value(fleetKey{}).(*fleet)
	if !ok || f.cmd == nil {
		ts.Fatalf("no fleet is running")
	}
	ts.Check(f.cmd.Process.Signal(syscall.SIGTERM))
	err := f.cmd.Wait()
	f.cmd = nil
	if err != nil {
		ts.Fatalf("up ended with %v, want nil: %s", err, ts.ReadFile("up.log"))
	}
}
