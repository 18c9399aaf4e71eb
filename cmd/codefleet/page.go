package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
)

func (a *app) pageCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "page",
		Short: "Print a link to the fleet's web page",
		Long: "Print a link to the fleet's web page. The link logs its holder in with the token that\n" +
			"this command uses, once and within an hour. A login lasts 12 hours.",
		Example: "  codefleet page\n  xdg-open \"$(codefleet page)\"",
		Args:    cobra.NoArgs,
		RunE: a.withFleet(func(ctx context.Context, c *client.Client, _ []string) error {
			link, err := c.PageLink(ctx)
			if err != nil {
				return err
			}
			return a.print(map[string]string{"page": link}, func(w io.Writer) { fmt.Fprintln(w, link) })
		}),
	}
}
