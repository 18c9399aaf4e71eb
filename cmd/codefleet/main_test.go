package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/codefleet/codefleet/internal/embedded"
)

func TestMain(m *testing.M) {
	embedded.S3Main()
	testscript.Main(m, map[string]func(){"codefleet": main})
}

// TestScripts runs the commands as a user does, each script in a directory and a home of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir+"/home")
			return os.Mkdir(e.WorkDir+"/home", 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": code},
	})
}

// code runs a program and checks its exit code: code N program args...
func code(ts *testscript.TestScript, _ bool, args []string) {
	want := args[0]
	err := ts.Exec(args[1], args[2:]...)
	if got := exitText(err); got != want {
		ts.Fatalf("exit code %s, want %s", got, want)
	}
}
