package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

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
			out := &responses{nopWriteCloser: nopWriteCloser{a.stdout}}
			err := builtin.Serve(ctx, args[0], builtin.Options{}, io.NopCloser(a.stdin), out)
			switch {
			case err == nil || errors.Is(err, io.EOF) || ctx.Err() != nil:
				return nil //nolint:nilerr // the client has closed the connection, or ctx has ended
			case isPathError(err): // standard output cannot be written
				return err
			case out.any.Load():
				return fmt.Errorf("serve the MCP client: %w", err)
			}
			return usage("standard input has no message of an MCP client: %v: want JSON-RPC 2.0, one message per line",
				err).try("codefleet tools call --help, or let an MCP client start this command")
		}),
	}
}

// responses is a writer that records whether anything was written.
type responses struct {
	nopWriteCloser
	any atomic.Bool
}

func (r *responses) Write(b []byte) (int, error) {
	r.any.Store(true)
	return r.nopWriteCloser.Write(b)
}

// nopWriteCloser is a writer whose Close does nothing.
type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }
