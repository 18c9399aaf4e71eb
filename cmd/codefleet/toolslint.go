package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/toolsearch"
)

// toolsLintCommand searches for every tool by its description.
func (a *app) toolsLintCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lint",
		Short: "List tools that a search for their description does not find",
		Long: "Search for every tool of the servers directory by the first sentence of its\n" +
			"description, and list those that are not among the first five results, with the tools\n" +
			"that are. A task in these words would not find them either. Tools without a description\n" +
			"are listed, too. The exit code is 1 if there are any.",
		Args: noArgs,
		RunE: a.do(func(ctx context.Context, _ []string) error {
			listing, err := a.catalogue(ctx)
			if err != nil {
				return err
			}
			index := toolsearch.New(nil).Index(listing).Words()
			found := index.Lint()
			err = a.print(found, func(w io.Writer) {
				for _, f := range found {
					row(w, f.ID, f.Problem)
					if len(f.Rivals) > 0 {
						row(w, "", "found instead: "+strings.Join(f.Rivals, ", "))
					}
				}
				fmt.Fprintf(w, "%d of %d tools are hard to find\n", len(found), index.Len())
			})
			if err != nil || len(found) == 0 {
				return err
			}
			return &failure{
				code: errcode.ExitFailed, message: fmt.Sprintf("%d of %d tools are hard to find", len(found),
					index.Len()),
				hint: "describe in the first sentence what only this tool does",
			}
		}),
	}
}
