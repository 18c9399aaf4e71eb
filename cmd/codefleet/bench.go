package main

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/internal/bench"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/errcode"
)

// benchOptions are the flags of bench.
type benchOptions struct {
	Scenario string
	Runs     int

	Example  string
	Sequence []string
	All      bool
	Verbose  bool
}

func (a *app) benchCommand() *cobra.Command {
	var o benchOptions
	scenarios := bench.Names(bench.Scenarios())
	c := &cobra.Command{
		Use: "bench", Short: "Measure the fleet's promised numbers on this machine",
		Long: "Measure the fleet's promised numbers on this machine, most of them next to a yardstick\n" +
			"from the same run. The command starts its own fleets in a temporary directory.\n" +
			"docs/benchmarks.md explains the numbers. With -o json, one scenario is printed as an\n" +
			"object, all scenarios as an array.\n\n" +
			"With --example, --sequence or --all the command runs examples instead, one after the\n" +
			"other in one fleet, and compares the first execution with later ones.",
		Example: "  codefleet bench --scenario warm -n 500 -o json\n" +
			"  codefleet bench --example 01 -n 5\n" +
			"  codefleet bench --sequence 01,03,01,07 -v",
	}
	c.RunE = a.do(func(ctx context.Context, _ []string) error {
		if c.Flags().Changed("runs") && o.Runs < 1 {
			return usage("-n %d: want at least 1", o.Runs)
		}
		if o.Verbose && o.Example == "" && len(o.Sequence) == 0 && !o.All {
			return usage("-v prints what examples do: give --example, --sequence or --all, too")
		}
		return a.measure(ctx, o)
	})
	c.Flags().StringVar(&o.Scenario, "scenario", "", strings.Join(scenarios, ", ")+" (default: all)")
	completeFlag(c, "scenario", scenarios...)
	c.Flags().IntVarP(&o.Runs, "runs", "n", 0,
		"samples per number (default: the scenario's), or runs per example (default 1)")
	c.Flags().StringVar(&o.Example, "example", "", "run one example, by its number (01)")
	c.Flags().StringSliceVar(&o.Sequence, "sequence", nil, "run examples in this order (01,03,01,07)")
	c.Flags().BoolVar(&o.All, "all", false, "run every example")
	c.Flags().BoolVarP(&o.Verbose, "verbose", "v", false, "print the stages and output of each example")
	c.MarkFlagsMutuallyExclusive("example", "sequence", "all", "scenario")
	completeFlag(c, "example", exampleNumbers()...)
	completeFlag(c, "sequence", exampleNumbers()...)
	return c
}

func (a *app) measure(ctx context.Context, o benchOptions) error {
	if names := bench.Names(bench.Scenarios()); o.Scenario != "" && !slices.Contains(names, o.Scenario) {
		return usage("--scenario %s: want one of %s", o.Scenario, strings.Join(names, ", "))
	}
	sequence, err := o.examples()
	if err != nil {
		return usage("%s", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	line := a.progress()
	defer line.clear()
	options := bench.Options{
		Scenario: o.Scenario, Runs: o.Runs, Program: self, Version: version, Progress: line.show,
		Settings: func(data string) (*config.Config, error) {
			return config.Load(config.Source{File: a.config, Env: a.env, Flags: []config.Flag{
				{Key: "data", Value: data, Name: "--data"}, {Key: "logging.level", Value: "ERROR", Name: "bench"},
			}})
		},
	}
	if a.config != "" {
		options.Args = []string{"--config", a.config}
	}
	reports, err := runBench(ctx, options, sequence, o.Verbose)
	line.clear()
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return &failure{code: errcode.ExitFailed, message: "run the benchmark", err: err, hint: "codefleet doctor"}
	}
	if a.output == "json" {
		return bench.WriteJSON(a.stdout, reports, o.Scenario != "" || sequence != nil)
	}
	return bench.WriteText(a.stdout, reports)
}

// examples returns the examples to run, repeated -n times. It returns nil if the command measures scenarios.
func (o benchOptions) examples() ([]bench.Example, error) {
	numbers := o.Sequence
	switch {
	case o.Example != "":
		numbers = []string{o.Example}
	case o.All:
		numbers = exampleNumbers()
	case len(numbers) == 0:
		return nil, nil
	}
	sequence, err := bench.Sequence(numbers)
	return slices.Repeat(sequence, max(1, o.Runs)), err
}

func exampleNumbers() []string {
	return mapSlice(bench.Examples(), func(e bench.Example) string { return e.Number })
}

// runBench runs the examples of the sequence or, if it is nil, measures the scenarios.
func runBench(ctx context.Context, o bench.Options, sequence []bench.Example, verbose bool) ([]*bench.Report, error) {
	if sequence == nil {
		return bench.Run(ctx, o, bench.Scenarios())
	}
	report, err := bench.RunExamples(ctx, o, sequence, verbose)
	if err != nil {
		return nil, err
	}
	return []*bench.Report{report}, nil
}
