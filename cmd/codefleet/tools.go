package main

import (
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
	var flags toolFlags
	c := &cobra.Command{
		Use:   "tools",
		Short: "List, search and show the tools that programs may call; generate, approve and publish them",
		Long: "List the fleet's tools with their states: local modules, registered tools of your tenant,\n" +
			"approved, pending and changed definitions of MCP servers, and broken modules. Without a\n" +
			"fleet, or with --local, list the tools of the servers directory in the settings\n" +
			"(execution.servers_dir).",
		RunE: a.do(func(ctx context.Context, _ []string) error { return a.listTools(ctx, flags) }),
	}
	c.Flags().StringVar(&flags.server, "server", "", "only tools of this `SERVER`")
	c.PersistentFlags().BoolVar(&flags.local, "local", false,
		"use the servers directory of the settings instead of the fleet")
	return listGroup(c,
		a.toolsSearchCommand(&flags), a.toolsShowCommand(&flags), a.toolsGenerateCommand(), a.toolsApproveCommand(),
		a.toolsLintCommand(), a.toolsPublishCommand(),
	)
}

func (a *app) listTools(ctx context.Context, flags toolFlags) error {
	o := client.ToolsOptions{Server: flags.server}
	if a.output == "json" {
		o.Detail = client.DetailFull
	}
	found, err := fromTools(ctx, a, flags, func(s toolSource) (client.ToolList, error) { return s.Tools(ctx, o) })
	if err != nil {
		return err
	}
	err = a.print(found.Tools, func(w io.Writer) {
		row(w, "TOOL", "STATE", "DESCRIPTION")
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

func (a *app) toolsSearchCommand(flags *toolFlags) *cobra.Command {
	o := client.SearchToolsOptions{}
	detail := string(client.DetailDescription)
	c := &cobra.Command{
		Use:   "search QUERY...",
		Short: "Search the tools as the fleet does for a task description",
		Long: "Search the tools as the fleet does for a task description: by words, by embeddings, and\n" +
			"by the tools that your tenant's earlier tasks used. Without a fleet, or with --local, the\n" +
			"search uses words only. Each argument is a query.",
		Args: cobra.MinimumNArgs(1),
		RunE: a.do(func(ctx context.Context, args []string) error {
			switch o.Detail = client.Detail(detail); o.Detail {
			case client.DetailName, client.DetailDescription, client.DetailFull:
			default:
				return usage("--detail %s: %v", detail, selection.ErrDetail)
			}
			found, err := fromTools(ctx, a, *flags, func(s toolSource) (client.ToolSearch, error) {
				return s.SearchTools(ctx, o, args...)
			})
			if err != nil {
				return err
			}
			return a.print(found, func(w io.Writer) { showFound(w, found, o.Detail == client.DetailFull) })
		}),
	}
	c.Flags().BoolVar(&o.Explain, "explain", false, "print how the score of each tool was computed")
	c.Flags().StringVar(&detail, "detail", detail, "name, description or full")
	c.Flags().IntVar(&o.Limit, "limit", 0, "maximum `NUMBER` of tools for each query")
	requirePositive(c, "limit")
	completeFlag(c, "detail", string(client.DetailName), string(client.DetailDescription), string(client.DetailFull))
	return c
}

// showFound prints the found tools, best first. full adds each tool's import, signature and whole description.
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
			row(w, "", "", t.Import)
			row(w, "", "", t.Signature)
			for line := range strings.Lines(rest) {
				row(w, "", "", strings.TrimRight(line, "\n"))
			}
		}
		if why := t.Why; why != nil {
			line := fmt.Sprintf(
				"words %.2f, clause %.2f, server %.2f, vectors %.2f, name %.2f, history %.2f, embeddings %.3f: %s",
				why.Lexical, why.Clause, why.Server, why.Vectors, why.Name, why.History, why.Dense,
				strings.Join(why.Terms, ", "))
			if why.OtherOperation {
				line += "; score lowered, because the tool does another operation"
			}
			row(w, "", "", line)
		}
	}
	for _, q := range found.Queries {
		line := fmt.Sprintf("%q: confidence %.2f", q.Query, q.Confidence)
		if len(q.UnmatchedTerms) > 0 {
			line += ", no tool matches: " + strings.Join(q.UnmatchedTerms, ", ")
		}
		fmt.Fprintln(w, line)
	}
	if found.Degraded != "" {
		fmt.Fprintf(w, "without embeddings: %s\n", found.Degraded)
	}
	fmt.Fprintf(w, "%.0f %% of %s\n", 100*found.Share, text.Count(found.Available, "tool"))
}

func (a *app) toolsShowCommand(flags *toolFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "show SERVER[/TOOL]",
		Short: "Show a tool, or a server and its tools",
		Args:  cobra.ExactArgs(1),
		RunE: a.do(func(ctx context.Context, args []string) error {
			server, name, ok := strings.Cut(args[0], "/")
			if !ok {
				return a.showServer(ctx, toolFlags{local: flags.local, server: args[0]})
			}
			t, err := fromTools(ctx, a, *flags, func(s toolSource) (client.Tool, error) {
				return s.ReadTool(ctx, server, name)
			})
			if err != nil {
				return err
			}
			return a.print(t, func(w io.Writer) { showTool(w, t) })
		}),
		ValidArgsFunction: a.completeTools(flags),
	}
}

// showServer prints how a server describes itself, and its tools.
func (a *app) showServer(ctx context.Context, flags toolFlags) error {
	list, err := fromTools(ctx, a, flags, func(s toolSource) (client.ToolList, error) {
		return s.Tools(ctx, client.ToolsOptions{Server: flags.server, Detail: client.DetailFull})
	})
	if err != nil {
		f := *explain(err)
		if f.hint == unknownHint() { // the argument may be the name of a tool
			f.hint = "codefleet tools search " + flags.server
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
			quote(w, "description", s.Description)
			quote(w, "instructions", s.Instructions)
		}
		for _, t := range list.Tools {
			row(w, t.ID, t.State, firstSentence(t.Description))
		}
	})
}

// quote prints untrusted text with a mark before each line, so that no line looks like the command's own output.
func quote(w io.Writer, title, text string) {
	if text == "" {
		return
	}
	fmt.Fprintf(w, "%s:\n", title)
	for line := range strings.Lines(text) {
		fmt.Fprintf(w, "    │ %s\n", strings.TrimRight(line, "\n"))
	}
}

func showTool(w io.Writer, t client.Tool) {
	fmt.Fprintf(w, "%s\n%s\n\n%s\n\nstate: %s\n", t.Import, t.Signature,
		strings.TrimSpace(cmp.Or(t.Description, "(no description)")), t.State)
	if len(t.InputSchema) > 0 {
		annotations := tools.Annotations{}
		if t.Annotations != nil {
			annotations = tools.Annotations(*t.Annotations)
		}
		fmt.Fprintf(w, "declared effects: %s\n", annotations.Effects())
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

func showSchema(w io.Writer, title string, schema json.RawMessage) {
	if len(schema) > 0 {
		fmt.Fprintf(w, "\n%s (JSON Schema):\n%s\n", title, text.Printable(string(indented(schema))))
	}
}

// firstSentence returns the first sentence of a text as one truncated line.
func firstSentence(s string) string {
	first, _, more := strings.Cut(s, ". ")
	if more {
		first += "."
	}
	return text.Truncate(text.OneLine(first), 100)
}

// completeTools completes the id of a tool.
func (a *app) completeTools(flags *toolFlags) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, err := fromTools(c.Context(), a, *flags, func(s toolSource) (client.ToolList, error) {
			return s.Tools(c.Context(), client.ToolsOptions{})
		})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return mapSlice(list.Tools, func(t client.Tool) cobra.Completion {
			return text.Printable(t.ID + "\t" + t.Description)
		}), cobra.ShellCompDirectiveNoFileComp
	}
}
