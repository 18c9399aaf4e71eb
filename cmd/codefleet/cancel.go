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
		Long: "Cancel a task. A queued task is cancelled at once, a running one when its worker has\n" +
			"stopped it. A task that has ended does not change.",
		Args:              oneTask,
		ValidArgsFunction: a.completeTasks(client.Queued, client.Running, client.RetryWait),
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
					fmt.Fprintf(w, "the task has already ended: %s\n", rec.Status)
				default:
					fmt.Fprintf(w, "cancellation requested; the task is %s on %s\n", rec.Status, rec.Worker)
				}
			})
		}),
	}
}
