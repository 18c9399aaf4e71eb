package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/runner"
)

// Python returns the absolute path of the interpreter that boxes use. The python3 on PATH may be a wrapper that takes
// ten times as long.
func Python() string { return executor.DefaultGuest().Python }

// runPython runs the smallest program in the host's interpreter, without a sandbox.
func runPython(ctx context.Context) error {
	return Expect(exec.CommandContext(ctx, Python(), "-c", SmallestProgram), SmallestOutput)
}

// RunEngine runs Python code in a sandbox that the engine creates for it, and checks the output.
func (b *Bench) RunEngine(ctx context.Context, code, output string) error {
	args := []string{"--network=none", "--ignore-cgroups"}
	if os.Geteuid() != 0 {
		args = append(args, "--rootless")
	}
	return Expect(exec.CommandContext(ctx, b.runsc, append(args, "do", Python(), "-c", code)...), output)
}

// Expect runs a command and checks its output.
func Expect(cmd *exec.Cmd, output string) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", cmd.Args[0], err, out)
	}
	if string(out) != output {
		return fmt.Errorf("%s printed %q, want %q", cmd.Args[0], out, output)
	}
	return nil
}

var importLine = regexp.MustCompile(`(?m)^(?:import|from) (\w+)`)

// runnerImports returns a program that imports the same modules as the runner in a box, and does nothing else.
func runnerImports() (string, error) {
	var frame struct {
		Sources [][2]string `json:"sources"` // name and text
	}
	const prefix = 4 // size of the frame's length field, in bytes
	if err := json.Unmarshal(runner.Source(runner.Boot{})[prefix:], &frame); err != nil {
		return "", fmt.Errorf("read the runner: %w", err)
	}
	texts := runner.Argv(Python())
	for _, s := range frame.Sources {
		texts = append(texts, s[1])
	}
	var modules []string
	for _, m := range importLine.FindAllStringSubmatch(strings.Join(texts, "\n"), -1) {
		if m[1] != "codefleet" && !slices.Contains(modules, m[1]) {
			modules = append(modules, m[1])
		}
	}
	slices.Sort(modules)
	return "import " + strings.Join(modules, ", "), nil
}
