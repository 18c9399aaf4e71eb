package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
)

func (a *app) submitCommand() *cobra.Command {
	flags := taskFlags{example: "codefleet submit --code 'print(6*7)'"}
	c := &cobra.Command{
		Use:   "submit TASK|- | --code TEXT | --file FILE|-",
		Args:  cobra.ArbitraryArgs,
		Short: "Submit a task and print its id",
		Long:  "Submit a task and print its id. When the command returns, the task is stored durably.",
		Example: `  codefleet submit --code 'print(6*7)'
  codefleet submit --file job.py --with data.csv --out 'report/*'`,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			s, err := flags.submission(args, a.stdin)
			if err != nil {
				return err
			}
			a.noteUnreachable(s)
			rec, err := c.Submit(ctx, s)
			if err != nil {
				return err
			}
			if s.IdempotencyKey != "" {
				a.noteEarlier(rec)
			}
			return a.print(rec, func(w io.Writer) { fmt.Fprintln(w, rec.TaskID) })
		}),
	}
	flags.declare(c)
	a.completeTaskFlags(c)
	return c
}
