// Command plugin runs a worker with a plugin that refuses programs which import forbidden modules, redacts API keys in
// the output, and labels every result with the version of its rules.
//
//	codefleet up --data /tmp/fleet &
//	CODEFLEET_DATA=/tmp/house CODEFLEET_WORKER_POOLS=house go run ./examples/plugin --fleet /tmp/fleet/fleet.json &
//	codefleet --fleet /tmp/fleet/fleet.json run --pool house --code 'import ctypes'
//
// It serves a separate task pool, because the worker of `codefleet up` serves the default task pool without plugins.
package main

import (
	"context"
	"os"
	"regexp"
	"strings"

	"github.com/codefleet/codefleet/plugin"
	"github.com/codefleet/codefleet/plugin/workermain"
)

var key = regexp.MustCompile(`\bsk-[A-Za-z0-9]{8,}`)

// house is the plugin.
type house struct {
	forbidden []string // modules, with their submodules
}

func (house) Name() string { return "house" }

// Validate refuses programs that import a forbidden module.
func (h house) Validate(_ context.Context, _ plugin.Task, p plugin.Program) error {
	for _, i := range p.Imports {
		for _, module := range h.forbidden {
			if i.Module == module || strings.HasPrefix(i.Module, module+".") {
				return &plugin.Refusal{
					Code: "import_refused", Message: "programs of this fleet must not import " + module,
					Hint: "write the program without it, or ask the operator of the fleet", Line: i.Line,
				}
			}
		}
	}
	return nil
}

// Result adds a label, and redacts what looks like an API key in the output.
func (house) Result(_ context.Context, _ plugin.Task, r *plugin.Result) error { //nolint:unparam // an interface
	r.Labels["house-rules"] = "2026-1"
	r.Output = key.ReplaceAllString(r.Output, "[key]")
	return nil
}

func main() {
	os.Exit(workermain.Main(house{forbidden: []string{"fractions", "ctypes"}}))
}
