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

// toolsLintCommand asks for every tool by its own words.
func (a *app) toolsLintCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lint",
		Short: "Name the tools that their own description does not find",
		Long: "Ask for every tool of the settings' servers directory by the first sentence of its own description, and name\n" +
			"those that do not come back among the first five, with the tools that do: a task that says it in these words\n" +
			"would not find them either. Tools without a description are named too. Exit code 1 when there are any.",
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
				code: errcode.ExitFailed, message: fmt.Sprintf("%d of %d tools are hard to find", len(found), index.Len()),
				hint: "say in the first sentence of each description what only this tool does",
			}
		}),
	}
}
