package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/schemas"
)

func (a *app) auditCommand() *cobra.Command {
	var o client.AuditOptions
	c := &cobra.Command{
		Use:   "audit",
		Short: "Show the record of the tool calls that tasks made, the latest first",
		Long: "Show what is on record of the tool calls of tasks: which tool, by which task, how large, how it ended, and\n" +
			"who approved it. Arguments and answers are not on record, only the digest of the arguments (-o json). A call\n" +
			"that may change something has a line from before it was made. Entries are kept for 90 days.",
		Example: "  codefleet audit --task a2wntt52fwmbq3ezlg6zelfsfu\n  codefleet audit --limit 1000 -o json",
		Args:    noArgs,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			if o.Limit < 1 {
				return usage("--limit %d: at least 1", o.Limit)
			}
			list, err := c.Audit(ctx, o)
			if err != nil {
				return err
			}
			return a.print(orEmpty(list), func(w io.Writer) {
				if len(list) == 0 {
					fmt.Fprintln(w, "no tool call is on record")
					return
				}
				row(w, "TIME", "TASK", "TOOL", "EVENT", "HOW", "TOOK", "ARGUMENTS", "ANSWER")
				for _, e := range list {
					row(w, e.Time.Local().Format(time.DateTime), e.TaskID, clipTo(60, e.Server+"/"+e.Tool), e.Event, howCalled(e), callTook(e),
						fmt.Sprintf("%d B", e.ArgsBytes), fmt.Sprintf("%d B", e.ResultBytes))
				}
			})
		}),
	}
	c.Flags().StringVar(&o.Task, "task", "", "only calls of this task")
	c.Flags().IntVar(&o.Limit, "limit", 100, "at most so many")
	_ = c.RegisterFlagCompletionFunc("task", a.completeTasks(nil))
	return c
}

// howCalled is how a call ended, or what was decided of it.
func howCalled(e client.AuditEntry) string {
	switch {
	case e.Approval != "" && e.Event != schemas.AuditEnd:
		return e.Approval + " by " + e.ApprovedBy
	case e.Event != schemas.AuditEnd:
		return "-"
	case !e.OK:
		return e.Code
	case e.Replayed:
		return "replayed"
	}
	return "ok"
}

func callTook(e client.AuditEntry) string {
	if e.Event != schemas.AuditEnd {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", e.MS)
}
