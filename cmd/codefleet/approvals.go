package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
)

func (a *app) approvalsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "approvals",
		Short: "List the tool calls that wait for approval",
		Long: "List the tool calls of running tasks that wait for a person's approval, under the policy\n" +
			"`approve` of the settings (tools.destructive, tools.policy). Secrets in their arguments\n" +
			"are redacted. Approve or deny them with `codefleet approve`. Definitions of tools are\n" +
			"accepted with `codefleet tools approve`.",
		Args: noArgs,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := c.Approvals(ctx)
			if err != nil {
				return err
			}
			return a.print(orEmpty(list), func(w io.Writer) {
				if len(list) == 0 {
					fmt.Fprintln(w, "no tool call waits for approval")
					return
				}
				row(w, "TASK", "CALL", "TOOL", "LEFT", "ARGUMENTS")
				for _, q := range list {
					row(w, q.TaskID, q.Call, q.Server+"/"+q.Tool, short(time.Until(q.ExpiresAt)), string(q.Arguments))
				}
			})
		}),
	}
}

func (a *app) approveCommand() *cobra.Command {
	var deny, all bool
	var reason string
	c := &cobra.Command{
		Use:   "approve ID [CALL...]",
		Short: "Approve or deny tool calls of a task",
		Long: "Approve tool calls of a task: the named ones, or all that wait now. With --deny the\n" +
			"program gets an error instead of the tool's result and continues. The first answer to a\n" +
			"call counts. The token needs the scope approve; its name is kept in the task's record\n" +
			"and in the audit.",
		Example: "  codefleet approvals\n" +
			"  codefleet approve a2wntt52fwmbq3ezlg6zelfsfu\n" +
			"  codefleet approve a2wntt52fwmbq3ezlg6zelfsfu qz4hbe2n7a --deny --reason 'not on a Friday'",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return &failure{
					code: errcode.ExitUsage, message: "approve: want the id of a task",
					hint: "codefleet approvals",
				}
			}
			return nil
		},
		ValidArgsFunction: a.completeApprovals,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			if deny && all {
				return usage("--all-of-tool goes with an approval, not with --deny")
			}
			if len(reason) > 500 {
				return usage("--reason: %d bytes, at most 500", len(reason))
			}
			calls := args[1:]
			if len(calls) == 0 {
				calls = []string{""}
			}
			var rec client.Record
			for _, call := range calls {
				var err error
				if rec, err = c.Answer(ctx, args[0], client.Answer{
					Call: call, Approve: !deny, AllOfTool: all, Reason: reason,
				}); err != nil {
					return err
				}
			}
			return a.print(rec, func(w io.Writer) { showApprovals(w, rec) })
		}),
	}
	c.Flags().BoolVar(&deny, "deny", false, "deny the calls")
	c.Flags().BoolVar(&all, "all-of-tool", false, "approve every further call of the same tool in this task, too")
	c.Flags().StringVar(&reason, "reason", "", "`TEXT` that the program and the task's record get")
	return c
}

// showApprovals lists the calls of a task that needed approval.
func showApprovals(w io.Writer, r client.Record) {
	for _, q := range r.Approvals {
		text := q.State
		switch {
		case q.By != "":
			text += " by " + q.By + " " + ago(q.AnsweredAt)
		case q.State == "pending":
			text = fmt.Sprintf("pending, expires in %s: codefleet approve %s %s",
				short(time.Until(q.ExpiresAt)), r.TaskID, q.Call)
		}
		if q.AllOfTool {
			text += ", with all further calls of the tool"
		}
		row(w, "call "+q.Call, q.Server+"/"+q.Tool+": "+text)
	}
}

// completeApprovals completes the ids of tasks with pending calls, then those calls.
func (a *app) completeApprovals(
	c *cobra.Command, args []string, typed string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), time.Second)
	defer cancel()
	fleet, err := a.connect(ctx, -1)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer fleet.Close()
	list, err := fleet.Approvals(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []cobra.Completion
	for _, q := range list {
		word := q.TaskID
		if len(args) > 0 {
			if word = q.Call; q.TaskID != args[0] {
				continue
			}
		}
		if strings.HasPrefix(word, typed) {
			words = append(words, cobra.CompletionWithDesc(word, q.Server+"/"+q.Tool))
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
