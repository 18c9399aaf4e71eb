package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/internal/pipeline"
	"github.com/codefleet/codefleet/internal/selection"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/wire"
)

func (a *app) toolsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "tools",
		Short: "List, search and show the tools that programs may call; generate and approve those of MCP servers",
		Long: "List the tools of the settings' servers directory (execution.servers_dir), with their state: local modules,\n" +
			"approved and pending definitions of MCP servers, changed ones, and files that are broken.",
		Args: noArgs,
		RunE: a.do(func(ctx context.Context, _ []string) error { return a.listTools(ctx) }),
	}
	c.AddCommand(a.toolsSearchCommand(), a.toolsShowCommand(), a.toolsGenerateCommand(), a.toolsApproveCommand())
	return c
}

// catalogue reads the catalogue of the settings.
func (a *app) catalogue(ctx context.Context) (*tools.Snapshot, error) {
	c, err := a.load()
	if err != nil {
		return nil, err
	}
	catalogue, err := wire.Catalogue(c)
	if err != nil {
		return nil, err
	}
	return catalogue.Read(ctx)
}

func (a *app) listTools(ctx context.Context) error {
	snap, err := a.catalogue(ctx)
	if err != nil {
		return err
	}
	list := snap.Tools
	if list == nil {
		list = []tools.Tool{}
	}
	err = a.print(list, func(w io.Writer) {
		row(w, "TOOL", "STATE", "WHAT IT DOES")
		for _, t := range list {
			row(w, t.ID(), t.State, t.Summary())
		}
	})
	for _, b := range snap.Broken {
		fmt.Fprintln(a.stderr, "broken:", b)
	}
	for _, f := range snap.Warnings {
		fmt.Fprintf(a.stderr, "warning: %s: %s: %s\n", f.Tool, f.Field, f.Message)
	}
	return err
}

func (a *app) toolsSearchCommand() *cobra.Command {
	r := selection.Request{}
	detail := string(selection.DetailDescription)
	c := &cobra.Command{
		Use:   "search QUERY...",
		Short: "Search the tools as a task's description does; several queries are searched side by side",
		Args:  cobra.MinimumNArgs(1),
		RunE: a.do(func(ctx context.Context, args []string) error {
			snap, err := a.catalogue(ctx)
			if err != nil {
				return err
			}
			r.Queries, r.Detail = args, selection.Detail(detail)
			found, err := pipeline.Index(snap).Select(r)
			if err != nil {
				return usage("%v", err)
			}
			return a.print(found, func(w io.Writer) { showFound(w, found) })
		}),
	}
	c.Flags().BoolVar(&r.Explain, "explain", false, "say what each tool's place is made of")
	c.Flags().StringVar(&detail, "detail", detail, "name, description or full")
	c.Flags().IntVar(&r.Limit, "limit", 0, "tools at most")
	return c
}

func showFound(w io.Writer, found selection.Response) {
	for _, g := range found.Servers {
		for _, h := range g.Tools {
			row(w, fmt.Sprintf("%.2f", h.Score), h.ID, h.Description)
			if why := h.Why; why != nil {
				row(w, "", "", fmt.Sprintf("words %.2f, clause %.2f, server %.2f, vectors %.2f, history %.2f: %s",
					why.Lexical, why.Clause, why.Server, why.Vectors, why.History, strings.Join(why.Terms, ", ")))
			}
		}
	}
	for _, q := range found.Queries {
		line := fmt.Sprintf("%q: confidence %.2f", q.Query, q.Confidence)
		if len(q.UnmatchedTerms) > 0 {
			line += ", no tool knows: " + strings.Join(q.UnmatchedTerms, ", ")
		}
		fmt.Fprintln(w, line)
	}
	fmt.Fprintf(w, "%.0f %% of %d tools\n", 100*found.Share, found.Available)
}

func (a *app) toolsShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show SERVER/TOOL",
		Short: "Show one tool: how a program calls it, what it says of itself, and its state",
		Args:  cobra.ExactArgs(1),
		RunE: a.do(func(ctx context.Context, args []string) error {
			snap, err := a.catalogue(ctx)
			if err != nil {
				return err
			}
			server, name, _ := strings.Cut(args[0], "/")
			t, err := snap.Lookup(server, name)
			if err != nil {
				return &failure{code: exitUsage, message: err.Error(), hint: "codefleet tools"}
			}
			return a.print(t, func(w io.Writer) {
				fmt.Fprintf(w, "%s\n%s\n\n%s\n\nstate: %s\nfile:  %s\n", t.Import(), t.Signature, strings.TrimSpace(t.Description), t.State, t.Path)
				if t.Hash != "" {
					fmt.Fprintf(w, "hash:  %s\n", t.Hash)
				}
			})
		}),
	}
}
