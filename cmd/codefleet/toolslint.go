package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/toolsearch"
)

func (a *app) toolsLintCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lint",
		Short: "List tools that a search for their own description does not find",
		Long: "Search for every tool of the servers directory by the first sentence of its description.\n" +
			"List each tool that is not among the first five results, with the tools that are, because\n" +
			"a task described in these words would not find it either. Also list tools without a\n" +
			"description. The exit code is 1 if a tool is listed.",
		RunE: a.do(func(ctx context.Context, _ []string) error {
			c, err := a.loadTools()
			if err != nil {
				return err
			}
			listing, err := readCatalogue(ctx, c)
			if err != nil {
				return err
			}
			index := toolsearch.New(nil).Index(listing).Words()
			found := index.Lint()
			summary := fmt.Sprintf("hard to find: %d of %s", len(found), text.Count(index.Len(), "tool"))
			err = a.print(found, func(w io.Writer) {
				for _, f := range found {
					row(w, f.ID, f.Problem)
					if len(f.Rivals) > 0 {
						row(w, "", "found instead: "+strings.Join(f.Rivals, ", "))
					}
				}
				fmt.Fprintln(w, summary)
			})
			if err != nil || len(found) == 0 {
				return err
			}
			return &failure{
				code:    errcode.ExitFailed,
				message: summary,
				hint:    "say in the first sentence of the description what only this tool does",
			}
		}),
	}
}
