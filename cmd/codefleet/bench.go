package main

import (
	"context"

	"github.com/spf13/cobra"
)

// benchOptions are the flags of bench.
type benchOptions struct {
	Scenario string
	Runs     int
}

func (a *app) benchCommand() *cobra.Command {
	var o benchOptions
	c := &cobra.Command{
		Use: "bench", Short: "Measure what the fleet promises, on this machine", Args: noArgs,
		RunE: a.do(func(ctx context.Context, _ []string) error { return a.bench(ctx, o) }),
	}
	c.Flags().StringVar(&o.Scenario, "scenario", "", "one scenario (default: all)")
	c.Flags().IntVarP(&o.Runs, "runs", "n", 0, "samples of each number (default: by scenario)")
	return c
}
