// Command plugin runs a worker with a plugin that refuses programs that import forbidden modules, redacts API keys in
// the output, and labels every result with the version of the plugin's rules.
//
//	codefleet up --data /tmp/fleet &
//	CODEFLEET_DATA=/tmp/house CODEFLEET_WORKER_POOLS=house go run ./examples/plugin --fleet /tmp/fleet/fleet.json &
//	codefleet --fleet /tmp/fleet/fleet.json run --pool house --code 'import ctypes'
//
// The worker serves its own task pool, because the worker of `codefleet up` serves the default one without plugins.
package main

import (
	"context"
	"os"
	"regexp"
	"strings"

	"github.com/codefleet/codefleet/plugin"
	"github.com/codefleet/codefleet/plugin/workermain"
)

var apiKey = regexp.MustCompile(`\bsk-[A-Za-z0-9]{8,}`)

// house is a plugin with an organisation's house rules.
type house struct {
	forbidden []string // modules that programs must not import, nor their submodules
}

func (house) Name() string { return "house" }

// Validate refuses programs that import a forbidden module.
func (h house) Validate(_ context.Context, _ plugin.Task, p plugin.Program) error {
	for _, i := range p.Imports {
		for _, module := range h.forbidden {
			if i.Module == module || strings.HasPrefix(i.Module, module+".") {
				return &plugin.Refusal{
					Code: "import_refused", Message: "programs of this fleet must not import " + module,
					Hint: "write the program without it, or ask the fleet's operator", Line: i.Line,
				}
			}
		}
	}
	return nil
}

// Result adds a label, and redacts text in the output that looks like an API key.
func (house) Result(_ context.Context, _ plugin.Task, r *plugin.Result) error { //nolint:unparam // an interface
	r.Labels["house-rules"] = "2026-1"
	r.Output = apiKey.ReplaceAllString(r.Output, "[key]")
	return nil
}

func main() {
	os.Exit(workermain.Main(house{forbidden: []string{"fractions", "ctypes"}}))
}
