package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

func (a *app) auditCommand() *cobra.Command {
	var o client.AuditOptions
	c := &cobra.Command{
		Use:   "audit",
		Short: "Show the audit records of tool calls, latest first",
		Long: "Show the audit records of tool calls: the tool, the task, the sizes, the outcome, and\n" +
			"who approved it. Arguments and results are not recorded, only the digest of the\n" +
			"arguments (-o json). For a call that may change something, a record is also written\n" +
			"before the call is made. Records are kept for 90 days.",
		Example: "  codefleet audit --task a2wntt52fwmbq3ezlg6zelfsfu\n  codefleet audit --limit 1000 -o json",
		Args:    noArgs,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			if o.Limit < 1 {
				return usage("--limit %d: want at least 1", o.Limit)
			}
			list, err := c.Audit(ctx, o)
			if err != nil {
				return err
			}
			return a.print(orEmpty(list), func(w io.Writer) {
				if len(list) == 0 {
					fmt.Fprintln(w, "no tool calls")
					return
				}
				row(w, "TIME", "TASK", "TOOL", "EVENT", "OUTCOME", "TOOK", "ARGUMENTS", "RESULT")
				for _, e := range list {
					row(w, e.Time.Local().Format(time.DateTime), e.TaskID,
						text.Truncate(e.Server+"/"+e.Tool, 60), e.Event,
						outcome(e), callTook(e),
						fmt.Sprintf("%d B", e.ArgsBytes), fmt.Sprintf("%d B", e.ResultBytes))
				}
			})
		}),
	}
	c.Flags().StringVar(&o.Task, "task", "", "only calls of this task")
	c.Flags().IntVar(&o.Limit, "limit", 100, "maximum `NUMBER` of records")
	_ = c.RegisterFlagCompletionFunc("task", a.completeTasks(nil))
	return c
}

// outcome returns how a call ended, or the decision about it.
func outcome(e client.AuditRecord) string {
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

func callTook(e client.AuditRecord) string {
	if e.Event != schemas.AuditEnd {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", e.MS)
}
