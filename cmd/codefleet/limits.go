package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/schemas"
)

func (a *app) limitsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "limits [TENANT]",
		Short: "Show or set a tenant's limits and its share of the fleet",
		Long: "Show the limits of a tenant, or list the tenants whose limits were set at run time. All other\n" +
			"tenants have the limits of the settings (tenants.NAME).",
		Args: atMostOne,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			if len(args) == 1 {
				info, err := c.Limits(ctx, args[0])
				if err != nil {
					return err
				}
				return a.showLimits(info)
			}
			all, err := c.AllLimits(ctx)
			if err != nil {
				return err
			}
			cells := func(i client.TenantLimitsInfo) []any {
				return []any{i.Tenant, strings.Join(limitTexts(i.Set), ", ")}
			}
			return listOr(a, all, "no limits were set at run time", "TENANT\tSET", cells)
		}),
	}
	c.AddCommand(a.limitsSetCommand(), a.limitsResetCommand())
	return c
}

func (a *app) limitsSetCommand() *cobra.Command {
	var in client.TenantLimits
	var weight, maxRunning, backlog int
	var taskRate, tokenRate string
	var toolRates []string
	c := &cobra.Command{
		Use:   "set TENANT",
		Short: "Set limits of a tenant, without a restart",
		Long: "Set limits of a tenant. They replace those of the settings, in the whole fleet and without a\n" +
			"restart, until `codefleet limits reset`. Limits that are not given do not change. A rate is a\n" +
			"number per second, minute or hour, such as 10/s, 600/m or 1000/h.",
		Example: "  codefleet limits set acme --weight 3 --max-running 8\n" +
			"  codefleet limits set acme --task-rate 600/m --tool-rate 'crm/*=10/s'",
		Args: oneTenant,
	}
	f := c.Flags()
	f.IntVar(&weight, "weight", 0, "share of the slots in relation to other tenants, from 1 to 1000")
	f.IntVar(&maxRunning, "max-running", 0, "`NUMBER` of tasks at once, per task pool and priority")
	f.IntVar(&backlog, "backlog", 0, "`NUMBER` of unfinished tasks; above it, tasks are refused")
	f.StringVar(&taskRate, "task-rate", "", "tasks that may start per period; others stay queued")
	f.StringVar(&tokenRate, "token-rate", "", "model tokens per period; further tasks that need a model wait")
	f.StringSliceVar(&toolRates, "tool-rate", nil,
		"`TOOL=RATE`: calls of a tool that may begin per period; further ones wait (may be repeated)")
	c.RunE = a.withFleet(func(ctx context.Context, fleet *client.Client, args []string) error {
		given := 0
		var wrong error
		for name, set := range map[string]func(){
			"weight": func() { in.Weight = &weight }, "max-running": func() { in.MaxRunning = &maxRunning },
			"backlog": func() { in.Backlog = &backlog }, "task-rate": func() { in.TaskRate = schemas.Rate(taskRate) },
			"token-rate": func() { in.TokenRate = schemas.Rate(tokenRate) },
			"tool-rate": func() {
				in.ToolRates = map[string]schemas.Rate{}
				for _, s := range toolRates {
					tool, rate, ok := strings.Cut(s, "=")
					if _, twice := in.ToolRates[tool]; !ok || twice {
						wrong = usage("--tool-rate %s: want TOOL=RATE, once for each tool", s)
					}
					in.ToolRates[tool] = schemas.Rate(rate)
				}
			},
		} {
			if f.Changed(name) {
				set()
				given++
			}
		}
		if wrong != nil {
			return wrong
		}
		if given == 0 {
			return usage("limits set: want at least one limit").try("codefleet limits set --help")
		}
		if path, err := in.Check(); err != nil {
			// The flag of /max_running is --max-running, that of /tool_rates is --tool-rate.
			flag := strings.TrimSuffix(strings.ReplaceAll(strings.TrimPrefix(path, "/"), "_", "-"), "s")
			return usage("--%s %v", flag, err).try("codefleet limits set --help")
		}
		info, err := fleet.ChangeLimits(ctx, args[0], in)
		if err != nil {
			return err
		}
		a.noteUnknownTenant(ctx, fleet, args[0])
		return a.showLimits(info)
	})
	return c
}

func (a *app) limitsResetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reset TENANT",
		Short: "Return to the limits of the settings",
		Args:  oneTenant,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			info, err := c.SetLimits(ctx, args[0], client.TenantLimits{})
			if err != nil {
				return err
			}
			return a.showLimits(info)
		}),
	}
}

func oneTenant(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage("limits %s: want one tenant, got %d", c.Name(), len(args)).try("codefleet limits")
	}
	return nil
}

func (a *app) showLimits(info client.TenantLimitsInfo) error {
	return a.print(info, func(w io.Writer) {
		row(w, "tenant", info.Tenant)
		row(w, "limits", strings.Join(limitTexts(info.Limits), ", "))
		if set := limitTexts(info.Set); len(set) > 0 {
			row(w, "set at run time", strings.Join(set, ", "))
		}
	})
}

// limitTexts returns a text for each limit that is set.
func limitTexts(l client.TenantLimits) (texts []string) {
	for _, v := range []struct {
		name  string
		value *int
	}{{"weight", l.Weight}, {"max running", l.MaxRunning}, {"backlog", l.Backlog}} {
		if v.value != nil {
			texts = append(texts, fmt.Sprintf("%s %d", v.name, *v.value))
		}
	}
	if l.TaskRate != "" {
		texts = append(texts, "tasks "+string(l.TaskRate))
	}
	if l.TokenRate != "" {
		texts = append(texts, "tokens "+string(l.TokenRate))
	}
	for _, tool := range slices.Sorted(maps.Keys(l.ToolRates)) {
		texts = append(texts, tool+" "+string(l.ToolRates[tool]))
	}
	return texts
}
