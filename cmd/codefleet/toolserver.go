package main

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/internal/tools/builtin"
)

func (a *app) toolServerCommand() *cobra.Command {
	return &cobra.Command{
		Use: "tool-server NAME",
		Short: "Serve a built-in MCP server on standard input and output: " +
			strings.Join(builtin.Names(), ", "),
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: builtin.Names(),
		RunE: a.do(func(ctx context.Context, args []string) error {
			err := builtin.Serve(ctx, args[0], builtin.Options{}, io.NopCloser(a.stdin), nopWriteCloser{a.stdout})
			if errors.Is(err, io.EOF) || ctx.Err() != nil {
				return nil //nolint:nilerr // the client has closed the connection, or ctx has ended
			}
			if err != nil && !isPathError(err) { // else standard output cannot be written
				return usage("standard input has no message of an MCP client: want JSON-RPC 2.0, one message per line").
					try("codefleet tools call --help, or let an MCP client start this command")
			}
			return err
		}),
	}
}

// nopWriteCloser is a writer whose Close does nothing.
type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }
