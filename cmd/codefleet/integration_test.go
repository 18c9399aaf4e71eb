package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/codefleet/codefleet/internal/executor/executortest"
)

// TestIntegration runs the scripts that need real MCP servers and a browser driver from npm, and Chromium.
// CODEFLEET_TEST_NPM names the directory into which internal/tools/toolstest/npm/install.sh has installed the packages.
// The scripts have two commands in addition to those of TestScripts:
//
//	expand FILE...     expand environment variables in files
//	killserver NAME    kill -9 the fleet's child processes whose command line contains NAME
func TestIntegration(t *testing.T) {
	npm, noSkip := os.Getenv("CODEFLEET_TEST_NPM"), os.Getenv("CODEFLEET_TEST_NO_SKIP") != ""
	runsc := executortest.FindRunsc(t)
	switch {
	case npm == "" && noSkip:
		t.Fatal("CODEFLEET_TEST_NPM is not set: run make test-integration")
	case runsc == "" && noSkip:
		t.Fatal("runsc is not installed: run make bin/runsc")
	case npm == "" || runsc == "":
		t.Skip("the npm servers or runsc are missing: run make test-integration")
	}
	p := scripts(t, runsc)
	p.Dir = "testdata/integration"
	setup := p.Setup
	p.Setup = func(e *testscript.Env) error {
		e.Setenv("NPM", npm)
		e.Setenv("SCREENSHOTS", os.Getenv("CODEFLEET_SCREENSHOTS"))
		e.Setenv("NODE", filepath.Join(npm, "node_modules/.bin/node"))
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		e.Setenv("PORT", strconv.Itoa(l.Addr().(*net.TCPAddr).Port)) //nolint:forcetypeassert // of a TCP listener
		if err := l.Close(); err != nil {
			return err
		}
		return setup(e)
	}
	p.Cmds["expand"], p.Cmds["killserver"] = expand, killServer
	testscript.Run(t, p)
}

func expand(ts *testscript.TestScript, _ bool, files []string) {
	for _, name := range files {
		text := os.Expand(ts.ReadFile(name), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
}

func killServer(ts *testscript.TestScript, _ bool, args []string) {
	f, ok := ts.Value(fleetKey{}).(*fleet)
	if !ok || f.cmd == nil {
		ts.Fatalf("no fleet is running")
	}
	killed := 0
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(f.cmd.Process.Pid), "-f", args[0]).Output()
	ts.Check(err)
	for line := range strings.FieldsSeq(string(out)) {
		pid, err := strconv.Atoi(line)
		ts.Check(err)
		ts.Check(syscall.Kill(pid, syscall.SIGKILL))
		killed++
	}
	if killed == 0 {
		ts.Fatalf("the fleet has no child process %s", args[0])
	}
}
