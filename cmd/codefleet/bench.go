package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/internal/bench"
	"github.com/codefleet/codefleet/internal/config"
)

// benchOptions are the flags of bench.
type benchOptions struct {
	Scenario string
	Runs     int
	Data     string
}

func (a *app) benchCommand() *cobra.Command {
	var o benchOptions
	c := &cobra.Command{
		Use: "bench", Short: "Measure what the fleet promises, on this machine", Args: noArgs,
		Long: "Measure what the fleet promises, on this machine, each number beside its yardstick in one run.\n" +
			"Fleets are started for it in a temporary directory. The numbers are explained in docs/benchmarks.md.\n" +
			"-o json prints one object for one scenario, and an array for all.",
		RunE: a.do(func(ctx context.Context, _ []string) error { return a.measure(ctx, o) }),
	}
	c.Flags().StringVar(&o.Scenario, "scenario", "", strings.Join(bench.Scenarios(), ", ")+" (default: all)")
	_ = c.RegisterFlagCompletionFunc("scenario", cobra.FixedCompletions(bench.Scenarios(), cobra.ShellCompDirectiveNoFileComp))
	c.Flags().StringVar(&o.Data, "data", "", "directory of data sets for the scenario selection, each {catalogue,queries}.jsonl")
	c.Flags().IntVarP(&o.Runs, "runs", "n", 0, "samples of each number (default: by scenario)")
	return c
}

func (a *app) measure(ctx context.Context, o benchOptions) error {
	if o.Scenario != "" && !slices.Contains(bench.Scenarios(), o.Scenario) {
		return usage("--scenario %s: there are %s", o.Scenario, strings.Join(bench.Scenarios(), ", "))
	}
	if o.Runs < 0 {
		return usage("-n %d: at least 1 sample is needed", o.Runs)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	line := a.progress()
	defer line.clear()
	options := bench.Options{
		Scenario: o.Scenario, Runs: o.Runs, Data: o.Data, Program: self, Version: version, Progress: line.show,
		Settings: func(data string) (*config.Config, error) {
			return config.Load(config.Source{File: a.config, Env: a.env, Flags: []config.Flag{
				{Key: "data", Value: data, Name: "--data"}, {Key: "logging.level", Value: "ERROR", Name: "bench"},
			}})
		},
	}
	if a.config != "" {
		options.Args = []string{"--config", a.config}
	}
	reports, err := bench.Run(ctx, options)
	line.clear()
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return &failure{code: exitFailed, message: "bench", err: err, hint: "codefleet doctor"}
	}
	return a.showReports(reports, o.Scenario != "")
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
