package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/errcode"
)

func (a *app) mcpTestCommand() *cobra.Command {
	var tools []string
	var verbose bool
	c := &cobra.Command{
		Use:   "test",
		Short: "Check the MCP tools with the fleet, or with a temporary one",
		RunE: a.do(func(ctx context.Context, _ []string) error {
			for _, t := range tools {
				if !slices.Contains(bridge.CheckedTools(), t) {
					return usage("--tool %s: want one of %s", t, strings.Join(bridge.CheckedTools(), ", "))
				}
			}
			return a.mcpTest(ctx, tools, verbose)
		}),
	}
	c.Flags().StringArrayVar(&tools, "tool", nil, "only the tool `NAME` (may be repeated)")
	c.Flags().BoolVar(&verbose, "verbose", false, "show each call and its result")
	completeFlag(c, "tool", bridge.CheckedTools()...)
	return c
}

// fleetForTest finds a fleet, or starts one for this command as `run` does.
func (a *app) fleetForTest(ctx context.Context) (options client.Options, stop func(), err error) {
	r := &foreground{a: a, line: a.progress()}
	if options, err = a.locate(); err == nil && !r.stale() {
		return options, func() {}, nil
	}
	if err != nil && !errors.Is(err, client.ErrNoFleet) {
		return options, nil, noFleet(err)
	}
	if err := r.startFleet(ctx); err != nil {
		r.close()
		return options, nil, err
	}
	if r.private == nil { // another command has started one in the meantime
		if options, err = a.locate(); err != nil {
			r.close()
			return options, nil, noFleet(err)
		}
		return options, r.close, nil
	}
	return client.Options{URL: r.private.File.URL, Token: r.private.File.Token}, r.close, nil
}

// mcpReport is what `mcp test -o json` prints.
type mcpReport struct {
	Passed int                  `json:"passed"`
	Total  int                  `json:"total"`
	Tools  []bridge.CheckResult `json:"tools"`
}

// checkResponds returns an error if the fleet does not respond or refuses the caller.
func checkResponds(ctx context.Context, options client.Options) error {
	c, err := client.New(ctx, options)
	if err != nil {
		return noFleet(err)
	}
	defer c.Close()
	_, err = c.WhoAmI(ctx)
	return markCall(err)
}

func (a *app) mcpTest(ctx context.Context, tools []string, verbose bool) error {
	options, stop, err := a.fleetForTest(ctx)
	if err != nil {
		return err
	}
	defer stop()
	options.RetryFor = retryTime
	if err := checkResponds(ctx, options); err != nil {
		return err
	}
	var report mcpReport
	stopNote := afterClaimTime(func() {
		fmt.Fprintln(a.stderr, "note: no tool has responded yet: the test's task may wait for a slot ("+
			a.withFlags("codefleet tasks")+")")
	})
	defer stopNote()
	o := bridge.Options{Fleet: options, Version: version, Log: slog.New(slog.DiscardHandler)}
	err = bridge.Check(ctx, o, tools, func(c bridge.CheckResult) {
		stopNote()
		report.Total++
		mark := "✗"
		if c.OK {
			report.Passed++
			mark = "✓"
		}
		report.Tools = append(report.Tools, c)
		if a.output == "text" {
			fmt.Fprintf(a.stdout, "%s %-22s %s (%.0f ms)\n", mark, c.Tool, c.Message, c.MS)
			if verbose {
				fmt.Fprintf(a.stdout, "    call    %s\n    result  %s\n", c.Args, c.Result)
			}
		}
	})
	if err != nil {
		return markCall(err)
	}
	err = a.print(report, func(w io.Writer) { fmt.Fprintf(w, "%d/%d\n", report.Passed, report.Total) })
	if err == nil && report.Passed < report.Total {
		return &failure{code: errcode.ExitFailed, message: "some MCP tools failed", hint: report.hint()}
	}
	return err
}

// hint says what to do about the tools that failed.
func (r mcpReport) hint() string {
	for _, c := range r.Tools {
		if c.TaskID != "" {
			return "codefleet why " + c.TaskID
		}
	}
	return "codefleet doctor"
}
