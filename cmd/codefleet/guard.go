package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
)

func (a *app) guardCommand() *cobra.Command {
	return commandGroup(&cobra.Command{Use: "guard", Short: "Check programs against the fleet's guardrails"},
		a.guardCheckCommand())
}

func (a *app) guardCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE|-",
		Short: "Check a program without running it",
		Long: "List the findings of the fleet's guardrails about a program. A box of the fleet parses the\n" +
			"program, but does not run it. The exit code is 1 if there is a finding, or if the program\n" +
			"cannot be parsed.",
		Example: "  codefleet guard check report.py\n  codefleet guard check -o json - < report.py",
		Args:    cobra.ExactArgs(1),
		RunE: a.do(func(ctx context.Context, args []string) error {
			name := args[0]
			if name == "-" {
				name = "standard input"
			}
			code, err := readProgram(name, args[0], a.stdin)
			if err != nil {
				return err
			}
			found, err := a.guardCheck(ctx, client.Submission{Task: client.Task{Code: code, CheckOnly: true}})
			if err != nil {
				return err
			}
			err = list(a, found, "LINE\tRULE\tLEVEL\tMESSAGE", func(f client.Finding) []any {
				return []any{f.Line, f.Rule, f.Level, f.Message}
			})
			if err != nil || len(found) == 0 {
				return err
			}
			return &failure{code: errcode.ExitFailed, message: fmt.Sprintf("%s: findings: %d", name, len(found))}
		}),
	}
}

// guardCheck submits a task that only checks its program, and returns the findings. If no fleet is found, it starts one
// for the task.
func (a *app) guardCheck(ctx context.Context, s client.Submission) ([]client.Finding, error) {
	r, rec, err := a.begin(ctx, s)
	if r != nil {
		defer r.close()
	}
	if err != nil {
		return nil, err
	}
	stopNotes := a.noteWaits(ctx, r.client, r.line, theTask(rec))
	final, err := r.client.Wait(ctx, rec.TaskID)
	stopNotes()
	if err != nil {
		return nil, markCall(err)
	}
	switch e := final.Result.Error; {
	case final.Status == client.Succeeded:
		return final.Result.Guardrails, nil
	case a.output == "json" && e != nil:
		return nil, &failure{
			code: errcode.ExitOfTask(string(final.Status)), message: e.Message, hint: e.Hint, errorCode: e.Code,
		}
	}
	a.showError(*final.Result)
	return nil, statusError(final.Status)
}
