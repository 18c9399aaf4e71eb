package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/httpserve"
)

// Bridge runs an MCP bridge as a separate process.
type Bridge struct {
	Transport string // one of Transports; http and sse differ only in the address that Run prints
	Name      string // of the program
	Options   bridge.Options
	Stdin     io.ReadCloser
	Stdout    io.WriteCloser // with stdio it carries the protocol; otherwise Run prints the address to it
	Stderr    io.Writer
}

// Transports are the values of Bridge.Transport.
func Transports() []string { return []string{"stdio", "http", "sse"} }

// Run serves until ctx ends or, with stdio, until the client closes the connection.
func (b Bridge) Run(ctx context.Context, c *config.Config) error {
	if o := b.Options.Fleet; o.URL == "" { // the fleet.json does not exist yet
		NoteWaiting(b.Stderr, b.Name, o.Located.Path)
	}
	server := bridge.New(b.Options)
	defer server.Close()
	if b.Transport == "stdio" {
		err := server.ServeStdio(ctx, b.Stdin, b.Stdout)
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) || ctx.Err() != nil {
			return nil // the client has closed the connection, or ctx has ended
		}
		return err
	}
	conf, err := assembly.ServerTLS(c)
	if err != nil {
		return UsageError(err)
	}
	ln, err := Listen(ctx, c.MCP.Addr)
	if err != nil {
		return err
	}
	scheme, path := "http", bridge.PathMCP
	if conf != nil {
		scheme = "https"
	}
	if b.Transport == "sse" {
		path = bridge.PathSSE
	}
	fmt.Fprintf(b.Stdout, "%s://%s%s\n", scheme, httpserve.Address(ln, c.MCP.Addr), path)
	return server.Serve(ctx, ln, conf)
}
