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

// python is the interpreter that boxes use, by its absolute path: what is called python3 on PATH may
// be a wrapper that takes ten times as long.
func python() string { return executor.DefaultGuest().Python }

// runPython runs a program in the interpreter, on the host, without any sandbox.
func runPython(ctx context.Context) error {
	return expect(exec.CommandContext(ctx, python(), "-c", program), "42\n")
}

// runEngine lets the sandbox's engine run Python once, in a sandbox that is made for it.
func (b *bench) runEngine(ctx context.Context, code, output string) error {
	args := []string{"--network=none", "--ignore-cgroups"}
	if os.Geteuid() != 0 {
		args = append(args, "--rootless")
	}
	return expect(exec.CommandContext(ctx, b.runsc, append(args, "do", python(), "-c", code)...), output)
}

func expect(cmd *exec.Cmd, output string) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", cmd.Args[0], err, out)
	}
	if string(out) != output {
		return fmt.Errorf("%s printed %q, not %q", cmd.Args[0], out, output)
	}
	return nil
}

var importLine = regexp.MustCompile(`(?m)^(?:import|from) (\w+)`)

// runnerImports is a program that imports what the runner in a box imports, and does nothing.
func runnerImports() (string, error) {
	var sent struct {
		Sources [][2]string `json:"sources"`
	}
	const length = 4
	if err := json.Unmarshal(runner.Source(runner.Boot{})[length:], &sent); err != nil {
		return "", fmt.Errorf("read the runner: %w", err)
	}
	texts := runner.Argv(python())
	for _, s := range sent.Sources {
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
