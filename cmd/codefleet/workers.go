package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
)

func (a *app) workersCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "workers",
		Short: "List the workers, or drain one",
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			f, err := c.Fleet(ctx)
			if err != nil {
				return err
			}
			const header = "WORKER\tHOST\tSTATE\tBUSY\tPOOLS\tSANDBOX\tUP\tVERSION"
			return list(a, f.Workers, header, func(w client.Worker) []any {
				return []any{
					w.Name, w.Host, w.State, fmt.Sprintf("%d/%d", w.Busy, w.Slots), strings.Join(w.Pools, ","),
					sandboxText(w.Sandbox), duration(time.Since(w.Started)), w.Version,
				}
			})
		}),
	}
	return listGroup(c, a.workersDrainCommand())
}

// drainPoll is how often `workers drain --wait` looks for the worker.
const drainPoll = 500 * time.Millisecond

func (a *app) workersDrainCommand() *cobra.Command {
	var wait time.Duration
	c := &cobra.Command{
		Use:   "drain WORKER",
		Short: "Make a worker finish its tasks and exit",
		Long: "Make a worker claim no more tasks, finish those that run, and exit. Tasks that run longer than the\n" +
			"worker's worker.drain are requeued; no attempt is counted. A supervisor that restarts the\n" +
			"process, such as systemd with Restart=always, starts a new worker, which is not affected.",
		Example: "  codefleet workers drain host-7f3k2q --wait 10m",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("workers drain: want the name of one worker, got %d", len(args)).try("codefleet workers")
			}
			return nil
		},
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			if wait < 0 {
				return negativeWait(wait)
			}
			w, err := c.DrainWorker(ctx, args[0])
			if err == nil && wait > 0 {
				err = awaitExit(ctx, c, w, wait)
			}
			if err != nil {
				return err
			}
			return a.print(w, func(out io.Writer) {
				if wait > 0 {
					fmt.Fprintf(out, "%s has exited\n", printable(w.Name))
				} else {
					running := text.Count(w.Busy, "task")
					fmt.Fprintf(out, "%s is draining; %s still running\n", printable(w.Name), running)
				}
			})
		}),
	}
	c.Flags().DurationVar(&wait, "wait", 0, "wait up to this `DURATION` for the worker to exit")
	return c
}

// awaitExit waits until a worker is no longer listed.
func awaitExit(ctx context.Context, c *client.Client, w client.Worker, wait time.Duration) error {
	for end := time.Now().Add(wait); ; {
		f, err := c.Fleet(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(f.Workers, func(o client.Worker) bool {
			return o.Name == w.Name && o.Started.Equal(w.Started)
		}) {
			return nil
		}
		if time.Now().After(end) {
			return &failure{
				code: errcode.ExitFailed, message: fmt.Sprintf("worker %s still runs after %s", w.Name, wait),
				hint: "it requeues its tasks and exits when its worker.drain has passed",
			}
		}
		if err := clock.Sleep(ctx, drainPoll); err != nil {
			return err
		}
	}
}
