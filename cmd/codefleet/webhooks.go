package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/text"
)

func (a *app) webhooksCommand() *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "webhooks",
		Short: "Send results and events to URLs, signed",
		Long: "Send results and events to URLs, signed as in Standard Webhooks. A delivery is tried again for\n" +
			"up to 3 days, until the target accepts it. docs/automation.md has the details.",
	}, a.webhooksAddCommand(), a.webhooksListCommand(), a.webhooksRemoveCommand())
}

func (a *app) webhooksAddCommand() *cobra.Command {
	var spec client.WebhookSpec
	c := &cobra.Command{
		Use:   "add NAME URL",
		Short: "Add a webhook and print its secret",
		Long: "Add a webhook and print the secret of its signatures, which is not shown again. The target\n" +
			"must respond to the handshake of CloudEvents, unless --no-handshake is given.",
		Example: "  codefleet webhooks add results https://example.org/hook\n" +
			"  codefleet webhooks add failures https://example.org/hook --filter 'data.status == \"failed\"'",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usage("webhooks add: want a name and a URL").
					try("codefleet webhooks add results https://example.org/hook")
			}
			return nil
		},
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, args []string) error {
			spec.Name, spec.URL = args[0], args[1]
			hook, err := c.AddWebhook(ctx, spec)
			if err != nil {
				return err
			}
			return a.print(hook, func(w io.Writer) { fmt.Fprintln(w, hook.Secret) })
		}),
	}
	c.Flags().StringVar(&spec.Type, "type", "",
		"`TYPE` of the events (default: codefleet.task.result.v1, the results of tasks)")
	c.Flags().StringVar(&spec.Filter, "filter", "", "`EXPRESSION` in CEL over event and data")
	c.Flags().BoolVar(&spec.NoHandshake, "no-handshake", false, "do not ask the target whether the fleet may send")
	return c
}

func (a *app) webhooksListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the webhooks",
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			hooks, err := c.Webhooks(ctx)
			if err != nil {
				return err
			}
			const header = "NAME\tURL\tTYPE\tFILTER\tLAST ERROR"
			return listOr(a, hooks, "no webhooks", header, func(h client.Webhook) []any {
				return []any{
					h.Name, text.Truncate(h.URL, 80), h.Type, orDash(text.Truncate(h.Filter, 60)),
					orDash(text.Truncate(h.LastError, 60)),
				}
			})
		}),
	}
}

func (a *app) webhooksRemoveCommand() *cobra.Command {
	return a.named(&cobra.Command{
		Use: "rm NAME", Short: "Remove a webhook",
		Long: "Remove a webhook. Pending deliveries are dropped.",
	}, "webhook", func(ctx context.Context, c *client.Client, name string) error {
		if err := c.RemoveWebhook(ctx, name); err != nil {
			return err
		}
		return a.print(map[string]string{"removed": name}, func(w io.Writer) {
			fmt.Fprintln(w, "removed webhook", printable(name))
		})
	}, func(ctx context.Context, c *client.Client) []cobra.Completion {
		hooks, _ := c.Webhooks(ctx)
		return mapSlice(hooks, func(h client.Webhook) cobra.Completion {
			return cobra.CompletionWithDesc(h.Name, h.Type)
		})
	})
}
