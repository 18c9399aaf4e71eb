package main

import (
	"context"
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
		Short: "Check the MCP tools against the fleet",
		Args:  noArgs,
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
	_ = c.RegisterFlagCompletionFunc("tool",
		cobra.FixedCompletions(bridge.CheckedTools(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

// mcpTested is what `mcp test -o json` prints.
type mcpTested struct {
	Passed int              `json:"passed"`
	Total  int              `json:"total"`
	Tools  []bridge.Checked `json:"tools"`
}

func (a *app) mcpTest(ctx context.Context, tools []string, verbose bool) error {
	found, err := client.Locate(a.fleet)
	if err != nil {
		return noFleet(err)
	}
	found.RetryFor = patience
	var done mcpTested
	o := bridge.Options{Fleet: found, Version: version, Log: slog.New(slog.DiscardHandler)}
	err = bridge.Check(ctx, o, tools, func(c bridge.Checked) {
		done.Total++
		mark := "✗"
		if c.OK {
			done.Passed++
			mark = "✓"
		}
		done.Tools = append(done.Tools, c)
		if a.output == "text" {
			fmt.Fprintf(a.stdout, "%s %-22s %s (%.0f ms)\n", mark, c.Tool, c.Message, c.MS)
			if verbose {
				fmt.Fprintf(a.stdout, "    call    %s\n    answer  %s\n", c.Args, c.Answer)
			}
		}
	})
	if err != nil {
		return markCall(err)
	}
	if err := a.print(done, func(w io.Writer) { fmt.Fprintf(w, "%d/%d\n", done.Passed, done.Total) }); err != nil {
		return err
	}
	if done.Passed < done.Total {
		return &failure{code: errcode.ExitFailed, message: "some tools do not work", hint: "codefleet doctor"}
	}
	return nil
}
