package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/selection"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
)

func (a *app) toolsCommand() *cobra.Command {
	var from toolsFrom
	list := func(c *cobra.Command) *cobra.Command {
		c.Flags().StringVar(&from.server, "server", "", "only tools of this `SERVER`")
		c.Args = noArgs
		c.RunE = a.do(func(ctx context.Context, _ []string) error { return a.listTools(ctx, from) })
		return c
	}
	c := list(&cobra.Command{
		Use:   "tools",
		Short: "List, search and show the tools that programs may call; generate, approve and publish them",
		Long: "List the tools of the fleet with their state: local modules, tools that a process of\n" +
			"your tenant registered, approved, pending and changed definitions of MCP servers, and\n" +
			"broken modules. Without a fleet, or with --local, the tools are those of the settings'\n" +
			"servers directory (execution.servers_dir).",
	})
	c.PersistentFlags().BoolVar(&from.local, "local", false,
		"use the servers directory of the settings, not the fleet")
	c.AddCommand(list(&cobra.Command{Use: "list", Short: "List the tools"}), a.toolsSearchCommand(&from),
		a.toolsShowCommand(&from),
		a.toolsGenerateCommand(), a.toolsApproveCommand(), a.toolsLintCommand(), a.toolsPublishCommand())
	return c
}

func (a *app) listTools(ctx context.Context, from toolsFrom) error {
	o := client.ToolsOptions{Server: from.server}
	if a.output == "json" {
		o.Detail = client.DetailFull
	}
	var found client.ToolList
	err := a.fromTools(ctx, from, func(t toolSource) (err error) {
		found, err = t.Tools(ctx, o)
		return err
	})
	if err != nil {
		return err
	}
	err = a.print(found.Tools, func(w io.Writer) {
		row(w, "TOOL", "STATE", "WHAT IT DOES")
		for _, t := range found.Tools {
			row(w, t.ID, t.State, firstSentence(t.Description))
		}
	})
	for _, b := range found.Broken {
		fmt.Fprintf(a.stderr, "broken: %s:%d: %s\n", b.Path, b.Line, b.Message)
	}
	for _, f := range found.Warnings {
		fmt.Fprintf(a.stderr, "warning: %s: %s: %s\n", f.Tool, f.Field, f.Message)
	}
	return err
}

func (a *app) toolsSearchCommand(from *toolsFrom) *cobra.Command {
	o := client.SearchToolsOptions{}
	detail := string(client.DetailDescription)
	c := &cobra.Command{
		Use:   "search QUERY...",
		Short: "Search the tools as a task's description does",
		Long: "Search the tools as a task's description does: by words, by the fleet's embeddings, and\n" +
			"by what your tenant's tasks used before. Without a fleet, or with --local, it searches\n" +
			"by words only. Each argument is a query.",
		Args: cobra.MinimumNArgs(1),
		RunE: a.do(func(ctx context.Context, args []string) error {
			if o.Limit < 0 {
				return usage("--limit %d: want at least 1", o.Limit)
			}
			switch o.Detail = client.Detail(detail); o.Detail {
			case client.DetailName, client.DetailDescription, client.DetailFull:
			default:
				return usage("--detail %s: %v", detail, selection.ErrDetail)
			}
			var found client.ToolSearch
			err := a.fromTools(ctx, *from, func(t toolSource) (err error) {
				found, err = t.SearchTools(ctx, o, args...)
				return err
			})
			if err != nil {
				return err
			}
			return a.print(found, func(w io.Writer) { showFound(w, found, o.Detail == client.DetailFull) })
		}),
	}
	c.Flags().BoolVar(&o.Explain, "explain", false, "explain the score of each tool")
	c.Flags().StringVar(&detail, "detail", detail, "name, description or full")
	c.Flags().IntVar(&o.Limit, "limit", 0, "maximum `NUMBER` of tools")
	details := []string{string(client.DetailName), string(client.DetailDescription), string(client.DetailFull)}
	_ = c.RegisterFlagCompletionFunc("detail", cobra.FixedCompletions(details, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// showFound prints tools, best first; full adds how each is called.
func showFound(w io.Writer, found client.ToolSearch, full bool) {
	var all []client.ToolMatch
	for _, g := range found.Servers {
		all = append(all, g.Tools...)
	}
	slices.SortStableFunc(all, func(a, b client.ToolMatch) int { return cmp.Compare(b.Score, a.Score) })
	for _, t := range all {
		first, rest, _ := strings.Cut(t.Description, "\n")
		row(w, fmt.Sprintf("%.2f", t.Score), t.ID, first)
		if full {
			row(w, "", "", t.Signature)
			for line := range strings.Lines(rest) {
				row(w, "", "", strings.TrimRight(line, "\n"))
			}
		}
		if why := t.Why; why != nil {
			row(w, "", "", fmt.Sprintf(
				"words %.2f, clause %.2f, server %.2f, vectors %.2f, history %.2f, embeddings %.3f: %s",
				why.Lexical, why.Clause, why.Server, why.Vectors, why.History, why.Dense, strings.Join(why.Terms, ", "),
			))
		}
	}
	for _, q := range found.Queries {
		line := fmt.Sprintf("%q: confidence %.2f", q.Query, q.Confidence)
		if len(q.UnmatchedTerms) > 0 {
			line += ", unknown to all tools: " + strings.Join(q.UnmatchedTerms, ", ")
		}
		fmt.Fprintln(w, line)
	}
	if found.Degraded != "" {
		fmt.Fprintf(w, "without embeddings: %s\n", found.Degraded)
	}
	fmt.Fprintf(w, "%.0f %% of %d tools\n", 100*found.Share, found.Available)
}

func (a *app) toolsShowCommand(from *toolsFrom) *cobra.Command {
	return &cobra.Command{
		Use:   "show SERVER[/TOOL]",
		Short: "Show a tool, or a server and its tools",
		Args:  cobra.ExactArgs(1),
		RunE: a.do(func(ctx context.Context, args []string) error {
			server, name, ok := strings.Cut(args[0], "/")
			if !ok {
				return a.showServer(ctx, toolsFrom{local: from.local, server: args[0]})
			}
			var t client.Tool
			err := a.fromTools(ctx, *from, func(s toolSource) (err error) {
				t, err = s.ReadTool(ctx, server, name)
				return err
			})
			if err != nil {
				return err
			}
			return a.print(t, func(w io.Writer) { showTool(w, t) })
		}),
		ValidArgsFunction: a.completeTools(from),
	}
}

// showServer prints a server's description of itself, and its tools.
func (a *app) showServer(ctx context.Context, from toolsFrom) error {
	var list client.ToolList
	err := a.fromTools(ctx, from, func(t toolSource) (err error) {
		list, err = t.Tools(ctx, client.ToolsOptions{Server: from.server, Detail: client.DetailFull})
		return err
	})
	if err != nil {
		f := *explain(err)
		if f.hint == unknownHint { // it may be the name of a tool
			f.hint = "codefleet tools search " + from.server
		}
		return &f
	}
	return a.print(list, func(w io.Writer) {
		for _, s := range list.Servers {
			for _, line := range [][2]string{{"title:", s.Title}, {"version:", s.Version}} {
				if line[1] != "" {
					row(w, line[0], line[1])
				}
			}
			quote(w, "its description", s.Description)
			quote(w, "its instructions", s.Instructions)
		}
		for _, t := range list.Tools {
			row(w, t.ID, t.State, firstSentence(t.Description))
		}
	})
}

// quote prints untrusted text so that none of its lines looks like ours.
func quote(w io.Writer, what, text string) {
	if text == "" {
		return
	}
	fmt.Fprintf(w, "%s:\n", what)
	for line := range strings.Lines(text) {
		fmt.Fprintf(w, "    │ %s\n", strings.TrimRight(line, "\n"))
	}
}

func showTool(w io.Writer, t client.Tool) {
	fmt.Fprintf(w, "%s\n%s\n\n%s\n\nstate: %s\n", t.Import, t.Signature,
		strings.TrimSpace(cmp.Or(t.Description, "It has no description.")), t.State)
	if len(t.InputSchema) > 0 {
		claims := tools.Annotations{}
		if t.Annotations != nil {
			claims = tools.Annotations(*t.Annotations)
		}
		fmt.Fprintf(w, "claims: %s\n", claims.Effects())
	}
	if t.State != "registered" {
		fmt.Fprintf(w, "file:  %s\n", t.Path)
	}
	if t.Hash != "" {
		fmt.Fprintf(w, "hash:  %s\n", t.Hash)
	}
	showSchema(w, "arguments", t.InputSchema)
	showSchema(w, "result", t.OutputSchema)
}

// showSchema prints a schema of arguments or results.
func showSchema(w io.Writer, what string, schema json.RawMessage) {
	var b bytes.Buffer
	if len(schema) > 0 && json.Indent(&b, schema, "", "  ") == nil {
		fmt.Fprintf(w, "\n%s (JSON Schema):\n%s\n", what, text.Printable(b.String()))
	}
}

// firstSentence returns the first sentence of a text, in one line of a list.
func firstSentence(s string) string {
	first, _, more := strings.Cut(s, ". ")
	if more {
		first += "."
	}
	return text.Truncate(text.OneLine(first), 100)
}

// completeTools completes the id of a tool.
func (a *app) completeTools(from *toolsFrom) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var ids []string
		err := a.fromTools(c.Context(), *from, func(t toolSource) error {
			list, err := t.Tools(c.Context(), client.ToolsOptions{})
			for _, tool := range list.Tools {
				ids = append(ids, tool.ID+"\t"+tool.Description)
			}
			return err
		})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}
