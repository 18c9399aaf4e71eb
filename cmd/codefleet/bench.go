package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/internal/bench"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/errcode"
)

// benchOptions are the flags of bench.
type benchOptions struct {
	Scenario string
	Runs     int
	Data     string
	Plots    string
	Sustain  time.Duration

	Example  string
	Sequence []string
	All      bool
	Verbose  bool
}

func (a *app) benchCommand() *cobra.Command {
	var o benchOptions
	c := &cobra.Command{
		Use: "bench", Short: "Measure what the fleet promises, on this machine", Args: noArgs,
		Long: "Measure what the fleet promises, on this machine, each number beside its yardstick in one run.\n" +
			"Fleets are started for it in a temporary directory. The numbers are explained in docs/benchmarks.md.\n" +
			"-o json prints one object for one scenario, and an array for all.\n\n" +
			"With --example, --sequence or --all it runs examples instead, one after the other in a fleet of their\n" +
			"own, and compares the first execution with the next ones.",
		Example: "  codefleet bench --scenario warm -n 500 -o json\n  codefleet bench --example 01 -n 5\n  codefleet bench --sequence 01,03,01,07 -v\n  codefleet bench --scenario first-answer --sustain 10m --plots docs",
		RunE:    a.do(func(ctx context.Context, _ []string) error { return a.measure(ctx, o) }),
	}
	c.Flags().StringVar(&o.Scenario, "scenario", "", strings.Join(bench.Scenarios(), ", ")+" (default: all)")
	_ = c.RegisterFlagCompletionFunc("scenario", cobra.FixedCompletions(bench.Scenarios(), cobra.ShellCompDirectiveNoFileComp))
	c.Flags().StringVar(&o.Data, "data", "", "directory of data sets for the scenario selection, each {catalogue,queries}.jsonl")
	c.Flags().IntVarP(&o.Runs, "runs", "n", 0, "samples of each number (default: by scenario); how often examples are run (default 1)")
	c.Flags().StringVar(&o.Plots, "plots", "", "directory for plots (SVG), of the scenarios that have some")
	c.Flags().DurationVar(&o.Sustain, "sustain", 0, "how long first-answer lets tasks come at 80 % of what the pool can make (default 10s)")
	c.Flags().StringVar(&o.Example, "example", "", "run one example, by its number (01)")
	c.Flags().StringSliceVar(&o.Sequence, "sequence", nil, "run examples in this order (01,03,01,07)")
	c.Flags().BoolVar(&o.All, "all", false, "run every example")
	c.Flags().BoolVarP(&o.Verbose, "verbose", "v", false, "with examples: each task's stages and output")
	c.MarkFlagsMutuallyExclusive("example", "sequence", "all", "scenario")
	_ = c.RegisterFlagCompletionFunc("example", cobra.FixedCompletions(exampleNumbers(), cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("sequence", cobra.FixedCompletions(exampleNumbers(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (a *app) measure(ctx context.Context, o benchOptions) error {
	if o.Scenario != "" && !slices.Contains(bench.Scenarios(), o.Scenario) {
		return usage("--scenario %s: there are %s", o.Scenario, strings.Join(bench.Scenarios(), ", "))
	}
	if o.Runs < 0 {
		return usage("-n %d: at least 1 sample is needed", o.Runs)
	}
	sequence, err := o.examples()
	if err != nil {
		return usage("%s", err)
	}
	if o.Sustain < 0 {
		return usage("--sustain %s: not a duration above 0", o.Sustain)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	line := a.progress()
	defer line.clear()
	options := bench.Options{
		Scenario: o.Scenario, Runs: o.Runs, Data: o.Data, Plots: o.Plots, Sustain: o.Sustain, Program: self, Version: version, Progress: line.show,
		Settings: func(data string) (*config.Config, error) {
			return config.Load(config.Source{File: a.config, Env: a.env, Flags: []config.Flag{
				{Key: "data", Value: data, Name: "--data"}, {Key: "logging.level", Value: "ERROR", Name: "bench"},
			}})
		},
	}
	if a.config != "" {
		options.Args = []string{"--config", a.config}
	}
	reports, err := measured(ctx, options, sequence, o.Verbose)
	line.clear()
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return &failure{code: errcode.ExitFailed, message: "bench", err: err, hint: "codefleet doctor"}
	}
	return a.showReports(reports, o.Scenario != "" || sequence != nil)
}

// examples are those to run, as often as asked for; none: scenarios are to be measured.
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
	once, err := bench.Sequence(numbers)
	return slices.Repeat(once, max(1, o.Runs)), err
}

func exampleNumbers() []string {
	var numbers []string
	for _, e := range bench.Examples() {
		numbers = append(numbers, e.Number)
	}
	return numbers
}

func measured(ctx context.Context, o bench.Options, sequence []bench.Example, verbose bool) ([]*bench.Report, error) {
	if sequence == nil {
		return bench.Run(ctx, o)
	}
	report, err := bench.RunExamples(ctx, o, sequence, verbose)
	if err != nil {
		return nil, err
	}
	return []*bench.Report{report}, nil
}

// showReports prints one object for one scenario, and an array for all.
func (a *app) showReports(reports []*bench.Report, one bool) error {
	var shape any = reports
	if one {
		shape = reports[0]
	}
	var failed error
	err := a.print(shape, func(w io.Writer) {
		for i, r := range reports {
			if i > 0 {
				fmt.Fprintln(w)
			}
			failed = cmp.Or(failed, r.Text(w))
		}
	})
	return cmp.Or(err, failed)
}
