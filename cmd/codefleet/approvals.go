package main

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/text"
)

func (a *app) approvalsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "approvals",
		Short: "List the tool calls that wait for approval",
		Long: "List the tool calls of running tasks that wait for a person's approval, because the\n" +
			"settings tools.destructive or tools.policy say `approve`. Secrets in their arguments are\n" +
			"redacted. Approve or deny a call with `codefleet approve`. To accept the definition of a\n" +
			"tool, use `codefleet tools approve`.",
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			calls, err := c.Approvals(ctx)
			if err != nil {
				return err
			}
			const header = "TASK\tCALL\tTOOL\tEXPIRES IN\tARGUMENTS"
			return listOr(a, calls, "no tool call waits for approval", header, func(q client.PendingApproval) []any {
				return []any{
					q.TaskID, q.Call, q.Server + "/" + q.Tool, duration(time.Until(q.ExpiresAt)),
					string(text.UnescapeHTML(q.Arguments)),
				}
			})
		}),
	}
}

func (a *app) approveCommand() *cobra.Command {
	var deny, allOfTool bool
	var reason string
	c := &cobra.Command{
		Use:   "approve ID [CALL...]",
		Short: "Approve or deny tool calls of a task",
		Long: "Approve the given tool calls of a task, or all its calls that are waiting. With --deny,\n" +
			"the program gets an error instead of the tool's result and continues. Only the first\n" +
			"decision about a call counts. The token needs the scope approve; the task's record and the\n" +
			"audit records keep the token's name.",
		Example: "  codefleet approvals\n" +
			"  codefleet approve a2wntt52fwmbq3ezlg6zelfsfu\n" +
			"  codefleet approve a2wntt52fwmbq3ezlg6zelfsfu qz4hbe2n7a --deny --reason 'not on a Friday'",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return usage("approve: want a task id").try("codefleet approvals")
			}
			if slices.Contains(args[1:], "") { // an empty name stands for all pending calls of the task
				return usage("approve: a CALL argument is empty").try("codefleet approvals")
			}
			return nil
		},
		ValidArgsFunction: a.complete(completeApprovals),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			if len(reason) > 500 {
				return usage("--reason is %d bytes; the limit is 500", len(reason))
			}
			calls := args[1:]
			if len(calls) == 0 {
				calls = []string{""}
			}
			var rec client.Record
			for _, call := range calls {
				var err error
				if rec, err = c.Decide(ctx, args[0], client.Decision{
					Call: call, Approve: !deny, AllOfTool: allOfTool, Reason: reason,
				}); err != nil {
					return err
				}
			}
			return a.print(rec, func(w io.Writer) { a.showApprovals(w, rec) })
		}),
	}
	c.Flags().BoolVar(&deny, "deny", false, "deny the calls")
	c.Flags().BoolVar(&allOfTool, "all-of-tool", false, "also approve all later calls of the same tool in this task")
	c.Flags().StringVar(&reason, "reason", "", "`TEXT` to pass to the program and keep in the task's record")
	c.MarkFlagsMutuallyExclusive("deny", "all-of-tool")
	return c
}

// showApprovals prints the tool calls of a task that needed approval.
func (a *app) showApprovals(w io.Writer, r client.Record) {
	for _, q := range r.Approvals {
		text := q.State
		switch {
		case q.By != "":
			text += " by " + q.By + " " + ago(q.AnsweredAt)
		case q.State == "pending":
			text = "pending, expires in " + duration(time.Until(q.ExpiresAt)) + ": " +
				a.withFlags("codefleet approve "+r.TaskID+" "+q.Call)
		}
		if q.AllOfTool {
			text += ", with all later calls of the tool"
		}
		row(w, "call "+q.Call, q.Server+"/"+q.Tool+": "+text)
	}
}

// completeApprovals completes the first argument with the tasks that have pending calls, and later arguments with the
// pending calls of that task.
func completeApprovals(ctx context.Context, c *client.Client, args []string) []cobra.Completion {
	calls, _ := c.Approvals(ctx)
	var words []cobra.Completion
	for _, q := range calls {
		word := q.TaskID
		if len(args) > 0 {
			if word = q.Call; q.TaskID != args[0] {
				continue
			}
		}
		words = append(words, cobra.CompletionWithDesc(word, q.Server+"/"+q.Tool))
	}
	return words
}
