package main

import (
	"io"
	"strings"
	"testing"
)

// TestHintsHaveFlags checks that the commands in a hint concern what the command line concerned.
func TestHintsHaveFlags(t *testing.T) {
	for _, c := range []struct{ args, hint, want string }{
		{"workspace cat x", "codefleet workspace ls", "codefleet workspace ls"},
		{
			"--fleet f.json workspace cat x -w A", "codefleet workspace ls -r and codefleet workspace rm, or more",
			"codefleet workspace ls --fleet f.json --workspace A -r and " +
				"codefleet workspace rm --fleet f.json --workspace A, or more",
		},
		{"workspace log -w A", "codefleet workspace list", "codefleet workspace list"}, // takes no workspace
		{
			"workspace rm -w A", "codefleet workspace rm --workspace A --all",
			"codefleet workspace rm --workspace A --all",
		},
		{
			"workspace log --workspace A", "codefleet workspace log  (lists the kept versions)",
			"codefleet workspace log --workspace A  (lists the kept versions)",
		},
		{
			"workspace check -w $(x)", "see `codefleet workspace check`",
			"see `codefleet workspace check --workspace '$(x)'`",
		},
		{"up --config c.yaml --workspace d", "codefleet config check", "codefleet config check --config c.yaml"},
		{"run --fleet f.json x", "start one with `codefleet up`", "start one with `codefleet up`"},
		{"run --config c.yaml x", "start one with `codefleet up`", "start one with `codefleet up --config c.yaml`"},
		{"tasks --fleet f.json", "codefleet status ID", "codefleet status --fleet f.json ID"},
		{"tasks --fleet f.json", withID("codefleet status ID", "x"), "codefleet status --fleet f.json x"},
		{"tasks --fleet f.json", "codefleet is a program", "codefleet is a program"},
	} {
		a := &app{stdout: io.Discard, stderr: io.Discard}
		command, rest, err := a.root().Find(strings.Fields(c.args))
		if err != nil {
			t.Fatal(err)
		}
		if err := command.ParseFlags(rest); err != nil {
			t.Fatal(err)
		}
		a.executed = command
		if got := a.withFlags(c.hint); got != c.want {
			t.Errorf("%s: hint %q, want %q", c.args, got, c.want)
		}
	}
}
