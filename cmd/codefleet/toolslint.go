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

// toolsLintCommand searches every tool by its own description.
func (a *app) toolsLintCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lint",
		Short: "List tools that a search for their own description does not find",
		Long: "Search every tool of the settings' servers directory by the first sentence of its\n" +
			"description, and list those that are not among the first five results, with the tools\n" +
			"that are: a task in these words would not find them either. Tools without a description\n" +
			"are listed, too. The exit code is 1 if there are any.",
		Args: noArgs,
		RunE: a.do(func(ctx context.Context, _ []string) error {
			snap, err := a.catalogue(ctx)
			if err != nil {
				return err
			}
			index := toolsearch.New(nil).Index(snap).Words()
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
