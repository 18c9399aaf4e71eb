// Command bench runs measurements for the project's own developers: the fleet beside other programs, the selection on
// data sets, and many clients. `codefleet bench` measures on any user's host what the fleet promises. The reports of
// both programs have the same shape. docs/benchmarks.md explains the numbers.
//
//	make build yardsticks
//	go run ./test/bench --scenario workspace -n 3
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/codefleet/codefleet/internal/bench"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/embedded"
)

// flags are the command line.
type flags struct {
	bench.Options
	options
	config string
	output string // text or json
}

// options are the options of this program's scenarios.
type options struct {
	data    string        // directory of the selection's data sets; if empty, they are not measured
	plots   string        // directory to which plots are written; if empty, none are written
	sustain time.Duration // how long first-answer submits tasks at a steady rate
}

// run measures one scenario.
type run struct {
	*bench.Bench
	options
	sizes sizes
}

func (o options) scenarios() []bench.Scenario {
	scenario := func(name string, samples int, noSandbox bool,
		measure func(*run, context.Context) error,
	) bench.Scenario {
		return bench.Scenario{
			Name: name, Samples: samples, NoSandbox: noSandbox,
			Measure: func(b *bench.Bench, ctx context.Context) error {
				return measure(&run{Bench: b, options: o, sizes: sizes{smallFiles, largeSize, manyFiles}}, ctx)
			},
		}
	}
	return []bench.Scenario{
		scenario("imports", 200, false, (*run).imports),
		scenario("workspace", 5, true, (*run).workspace),
		scenario("selection", 200, true, (*run).selection),
		scenario("mcp", 100, false, (*run).mcp),
		scenario("first-answer", 100, false, (*run).firstAnswer),
	}
}

func main() {
	embedded.S3Main() // does not return in the process that serves S3 for a fleet
	childMain()       // does not return in the process that the scenario workspace measures
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func measure(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	o.Settings = o.settings
	if o.config != "" {
		o.Args = []string{"--config", o.config}
	}
	o.Progress = func(what string) { fmt.Fprintln(os.Stderr, what) }
	reports, err := bench.Run(ctx, o.Options, o.scenarios())
	if err != nil {
		return err
	}
	if o.output == "json" {
		return bench.WriteJSON(os.Stdout, reports, o.Scenario != "")
	}
	return bench.WriteText(os.Stdout, reports)
}

// settings returns the user's settings. The default runsc is the one beside codefleet.
func (o flags) settings(data string) (*config.Config, error) {
	c, err := config.Load(config.Source{File: o.config, Env: os.Environ(), Flags: []config.Flag{
		{Key: "data", Value: data, Name: "data"}, {Key: "logging.level", Value: "ERROR", Name: "bench"},
	}})
	if err == nil && c.Execution.Runsc == "" {
		c.Execution.Runsc = filepath.Join(filepath.Dir(o.Program), "runsc")
	}
	return c, err
}

func parse(args []string) (flags, error) {
	var o flags
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&o.Scenario, "scenario", "", strings.Join(bench.Names(o.scenarios()), ", ")+" (default: all)")
	f.IntVar(&o.Runs, "n", 0, "samples of each number (default: by scenario)")
	f.StringVar(&o.output, "o", "text", "output: text or json")
	f.StringVar(&o.config, "config", "", "configuration file")
	f.StringVar(&o.Program, "codefleet", filepath.Join("bin", "codefleet"), "the program to measure")
	f.StringVar(&o.data, "data", "", "directory of data sets for selection, each with {catalogue,queries}.jsonl")
	f.StringVar(&o.plots, "plots", "", "directory for the plots (SVG) of first-answer")
	f.DurationVar(&o.sustain, "sustain", 10*time.Second,
		"how long first-answer submits tasks at 80 % of the rate at which boxes are created")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	path, err := filepath.Abs(o.Program)
	if o.Program = path; err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return o, fmt.Errorf("find codefleet (run make build): %w", err)
	}
	return o, nil
}
