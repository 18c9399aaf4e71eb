package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
)

func (a *app) usageCommand() *cobra.Command {
	var o client.UsageOptions
	var asCSV bool
	c := &cobra.Command{
		Use:   "usage",
		Short: "Show what tasks used, by tenant and day",
		Long: "Show what tasks used by tenant and day (UTC): tasks that ran, box-seconds, tokens of models and\n" +
			"bytes. The counts may lack the last 5 seconds. They are kept for 400 days.",
		Example: "  codefleet usage\n" +
			"  codefleet usage --all --since 2026-11-01 --before 2026-12-01 --csv",
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			for flag, day := range map[string]string{"since": o.Since, "before": o.Before} {
				if _, err := time.Parse(time.DateOnly, day); day != "" && err != nil {
					return usage("--%s %s: want a day, as in 2026-11-23", flag, day)
				}
			}
			if asCSV && a.output == "json" {
				return usage("usage: want --csv or -o json, not both")
			}
			list, err := c.Usage(ctx, o)
			if err != nil {
				return err
			}
			if asCSV {
				return a.usageCSV(list)
			}
			const header = "TENANT\tDAY\tTASKS\tBOX SECONDS\tTOKENS\tBYTES IN\tBYTES OUT\tNETWORK\tWAIT P50\tWAIT P99"
			return listOr(a, list, "no task has run in this time", header, func(u client.TenantUsage) []any {
				return []any{
					u.Tenant, u.Day, u.Tasks, fmt.Sprintf("%.1f", u.BoxSeconds), u.Tokens, u.BytesIn, u.BytesOut,
					u.NetworkBytes, fmt.Sprintf("%.2f s", u.WaitP50S), fmt.Sprintf("%.2f s", u.WaitP99S),
				}
			})
		}),
	}
	c.Flags().StringVar(&o.Since, "since", "", "first `DAY`; default 30 days ago")
	c.Flags().StringVar(&o.Before, "before", "", "`DAY` after the last one; default tomorrow")
	c.Flags().BoolVar(&o.AllTenants, "all", false, "all tenants, for operators")
	c.Flags().BoolVar(&asCSV, "csv", false, "print comma-separated values, with a header")
	return c
}

func (a *app) usageCSV(list []client.TenantUsage) error {
	w := csv.NewWriter(a.stdout)
	rows := [][]string{{
		"tenant", "day", "tasks", "box_seconds", "tokens", "bytes_in", "bytes_out", "network_bytes", "wait_p50_s",
		"wait_p99_s",
	}}
	for _, u := range list {
		row := []string{u.Tenant, u.Day, strconv.Itoa(u.Tasks), strconv.FormatFloat(u.BoxSeconds, 'f', 3, 64)}
		for _, n := range []int{u.Tokens, u.BytesIn, u.BytesOut, u.NetworkBytes} {
			row = append(row, strconv.Itoa(n))
		}
		for _, s := range []float64{u.WaitP50S, u.WaitP99S} {
			row = append(row, strconv.FormatFloat(s, 'f', 3, 64))
		}
		rows = append(rows, row)
	}
	return w.WriteAll(rows)
}
