package main

import (
	"context"
	"fmt"
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
		Long: "Show the audit records of tool calls: tool, task, sizes, outcome, and who approved the\n" +
			"call. Arguments and results are not recorded, only a hash of the arguments (-o json).\n" +
			"If a call may change something, a record is also written before the call is made.\n" +
			"Records are kept for 90 days.",
		Example: "  codefleet audit --task a2wntt52fwmbq3ezlg6zelfsfu\n  codefleet audit --limit 1000 -o json",
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			records, err := c.Audit(ctx, o)
			if err != nil {
				return err
			}
			const header = "TIME\tTASK\tTOOL\tEVENT\tOUTCOME\tDURATION\tARGUMENTS\tRESULT"
			return listOr(a, records, "no tool calls", header, auditCells)
		}),
	}
	c.Flags().StringVar(&o.Task, "task", "", "only calls of the task `ID`")
	limitFlag(c, &o.Limit, "records")
	_ = c.RegisterFlagCompletionFunc("task", a.completeTasks())
	return c
}

func auditCells(r client.AuditRecord) []any {
	elapsed := "-"
	if r.Event == schemas.AuditEnd {
		elapsed = fmt.Sprintf("%.1f ms", r.MS)
	}
	return []any{
		r.Time.Local().Format(time.DateTime), r.TaskID, text.Truncate(r.Server+"/"+r.Tool, 60), r.Event,
		outcome(r), elapsed, fmt.Sprintf("%d B", r.ArgsBytes), fmt.Sprintf("%d B", r.ResultBytes),
	}
}

// outcome returns how a call ended, or who approved or denied it. For other events it returns "-".
func outcome(e client.AuditRecord) string {
	switch {
	case e.Approval != "" && e.Event != schemas.AuditEnd && e.ApprovedBy == "": // it has expired
		return e.Approval
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
