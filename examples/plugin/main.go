// Command plugin is a worker with a plugin: programs that import a module of its list are refused, and
// every result says which rules it was held to.
//
//	codefleet up --data /tmp/fleet &
//	CODEFLEET_DATA=/tmp/house CODEFLEET_WORKER_POOLS=house go run ./examples/plugin --fleet /tmp/fleet/fleet.json &
//	codefleet --fleet /tmp/fleet/fleet.json run --pool house --code 'import ctypes'
//
// It has a pool of its own, for the worker within `up` has no plugins and takes tasks of the default one.
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

// house are the rules of the house.
type house struct {
	forbidden []string // modules, with what is below them
}

func (house) Name() string { return "house" }

// Validate refuses programs that import what is forbidden.
func (h house) Validate(_ context.Context, _ plugin.Task, p plugin.Program) error {
	for _, i := range p.Imports {
		for _, module := range h.forbidden {
			if i.Module == module || strings.HasPrefix(i.Module, module+".") {
				return &plugin.Refusal{
					Code: "import_refused", Message: "programs of this fleet do not import " + module,
					Hint: "do without it, or ask the operator of the fleet", Line: i.Line,
				}
			}
		}
	}
	return nil
}

// Result adds a label, and hides what looks like the key of a service in what the program printed.
func (house) Result(_ context.Context, _ plugin.Task, r *plugin.Result) error { //nolint:unparam // as the hook has it
	r.Labels["house-rules"] = "2026-1"
	r.Output = key.ReplaceAllString(r.Output, "[key]")
	return nil
}

func main() {
	os.Exit(workermain.Main(house{forbidden: []string{"fractions", "ctypes"}}))
}
