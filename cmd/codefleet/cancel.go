package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
)

func (a *app) cancelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel a task",
		Long: "Cancel a task: a queued one at once, a running one soon. A task that has ended stays as\n" +
			"it is.",
		Args:              oneTask,
		ValidArgsFunction: a.completeTasks([]client.Status{client.Queued, client.Running, client.RetryWait}),
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			rec, err := c.Cancel(ctx, args[0])
			if err != nil {
				return err
			}
			return a.print(rec, func(w io.Writer) {
				switch {
				case rec.Status == client.Cancelled:
					fmt.Fprintln(w, "cancelled")
				case rec.Status.Terminal():
					fmt.Fprintf(w, "the task had ended before: %s\n", rec.Status)
				default:
					fmt.Fprintf(w, "cancellation requested; the task is %s on %s\n", rec.Status, rec.Worker)
				}
			})
		}),
	}
}
