package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/internal/assembly/tooling"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
)

func (a *app) toolsApproveCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "approve [SERVER[/TOOL]...] | --all",
		Args:  cobra.ArbitraryArgs,
		Short: "Show the new and changed definitions of MCP tools, and approve the named ones",
		Long: "Show the new and changed definitions of MCP tools. With names, approve them: SERVER/TOOL\n" +
			"selects one tool; SERVER or SERVER/* selects all new and changed tools of the server.",
		RunE: a.do(func(ctx context.Context, args []string) error {
			c, err := a.loadTools()
			if err != nil {
				return err
			}
			dir, err := tooling.ServersDir(c)
			if err != nil {
				return err
			}
			listing, err := readCatalogue(ctx, c)
			if err != nil {
				return err
			}
			for _, id := range args {
				if err := checkSelector(listing, id); err != nil {
					return unknownTool(err)
				}
			}
			return a.approve(dir, listing, args, all)
		}),
	}
	c.Flags().BoolVar(&all, "all", false, "approve all definitions")
	return c
}

// checkSelector returns an error unless the name is SERVER/TOOL, SERVER or SERVER/*, with a known server and tool.
func checkSelector(listing *tools.Listing, name string) error {
	server, tool, named := strings.Cut(name, "/")
	if !named || tool == "*" {
		return listing.CheckServer(server)
	}
	_, err := listing.Lookup(server, tool)
	return err
}

// selects reports whether one of the names, in the forms that checkSelector accepts, selects the tool.
func selects(list []string, t tools.Tool) bool {
	return slices.ContainsFunc(list, func(name string) bool {
		return name == t.ID() || strings.TrimSuffix(name, "/*") == t.Server
	})
}

// pendingTool is a new or changed definition, as `tools approve` prints it.
type pendingTool struct {
	Tool     string      `json:"tool"`
	State    tools.State `json:"state"`
	Changes  []string    `json:"changes"`  // since the approved definition
	Approved bool        `json:"approved"` // whether this command approves it

	Signature   string   `json:"signature"`
	Effects     string   `json:"effects"` // declared by the server
	Description string   `json:"description"`
	Warnings    []string `json:"warnings,omitempty"`
}

// approve prints the new and changed definitions of the tools that ids select, or of all tools if ids is empty. With
// ids or all, it also approves them.
func (a *app) approve(dir string, listing *tools.Listing, ids []string, all bool) error {
	approvals, err := tools.LoadApprovals(dir)
	if err != nil {
		return err
	}
	list, approve := []pendingTool{}, all || len(ids) > 0
	for _, t := range listing.Tools {
		if t.State != tools.Pending && t.State != tools.Changed || len(ids) > 0 && !selects(ids, t) {
			continue
		}
		r := pendingTool{
			Tool: t.ID(), State: t.State, Approved: approve,
			Changes:   approvals.Difference(t.Server, t.Definition()),
			Signature: t.Signature, Effects: t.Annotations.Effects(), Description: t.Description,
		}
		for _, f := range listing.Warnings {
			if f.Tool == t.ID() {
				r.Warnings = append(r.Warnings, f.Field+": "+f.Message)
			}
		}
		if approve {
			approvals.Approve(t.Server, t.Definition(), a.lookup("USER"), time.Now())
		}
		list = append(list, r)
	}
	if approve && len(list) > 0 {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := approvals.Save(dir); err != nil {
			return err
		}
	}
	return a.print(list, func(w io.Writer) { a.showPending(w, list) })
}

func (a *app) showPending(w io.Writer, list []pendingTool) {
	if len(list) == 0 {
		fmt.Fprintln(w, "nothing waits for approval")
	}
	approved := 0
	for _, r := range list {
		state := string(r.State)
		if r.Approved {
			state += " → approved"
			approved++
		}
		fmt.Fprintf(w, "%s (%s)\n", r.Tool, state)
		for _, change := range r.Changes {
			fmt.Fprintf(w, "    %s\n", change)
		}
		if r.State == tools.Pending {
			fmt.Fprintf(w, "    %s\n    declared effects: %s\n", r.Signature, r.Effects)
			for _, line := range firstLines(r.Description) {
				fmt.Fprintf(w, "    │ %s\n", line)
			}
		}
		for _, warning := range r.Warnings {
			fmt.Fprintf(w, "    warning: %s\n", warning)
		}
	}
	if approved > 0 {
		fmt.Fprintf(w, "%d approved; programs can call them from the next task on\n", approved)
	}
	if waiting := len(list) - approved; waiting > 0 {
		fmt.Fprintf(w, "%d pending. %s\n", waiting, a.withFlags("Show a whole definition with codefleet tools show "+
			"SERVER/TOOL; approve it with codefleet tools approve SERVER/TOOL, or all tools of a server with "+
			"codefleet tools approve SERVER"))
	}
}

// firstLines returns the first lines of a description, each truncated.
func firstLines(s string) []string {
	const maxLines, width = 4, 200
	var out []string
	for line := range strings.Lines(strings.TrimSpace(s)) {
		if len(out) == maxLines {
			return append(out, "…")
		}
		out = append(out, text.Truncate(text.OneLine(line), width))
	}
	return out
}
