package assembly

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/telemetry"
)

// Bridge says what an MCP bridge to the fleet at f needs.
func Bridge(c *config.Config, t *telemetry.Telemetry, version string, f client.Options) bridge.Options {
	return bridge.Options{
		Fleet: f, Version: version, Profile: c.MCP.Profile,
		Wait: c.MCP.Wait, MaxWait: c.MCP.MaxWait, MaxOutput: c.MCP.MaxOutput,
		Limits: bridge.Limits{Rate: c.MCP.Rate, Concurrent: c.MCP.Concurrent},
		Hosts: c.HTTP.AllowedHosts, Origins: c.HTTP.AllowedOrigins, AuthServers: c.MCP.AuthorizationServers,
		Log: t.Logger,
	}
}

// BridgeRun is how a bridge that is a process of its own is run.
type BridgeRun struct {
	Transport string // stdio, http or sse; the latter two serve all transports of HTTP
	Options   bridge.Options
	Stdin     io.ReadCloser
	Stdout    io.WriteCloser // the protocol's with stdio, else the address is printed there
}

// Transports are what BridgeRun.Transport may be.
func Transports() []string { return []string{"stdio", "http", "sse"} }

// RunBridge serves until ctx ends, or with stdio the client does.
func RunBridge(ctx context.Context, c *config.Config, r BridgeRun) error {
	b := bridge.New(r.Options)
	defer b.Close()
	if r.Transport == "stdio" {
		err := b.ServeStdio(ctx, r.Stdin, r.Stdout)
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) || ctx.Err() != nil {
			return nil // its client is done with it
		}
		return err
	}
	conf, err := ServerTLS(c)
	if err != nil {
		return err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.MCP.Addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: address %s is in use: stop what listens there or give --http another", ErrUsage, c.MCP.Addr)
	}
	if err != nil {
		return err
	}
	scheme, path := "http", bridge.PathMCP
	if conf != nil {
		scheme = "https"
	}
	if r.Transport == "sse" {
		path = bridge.PathSSE
	}
	fmt.Fprintf(r.Stdout, "%s://%s%s\n", scheme, ln.Addr(), path)
	return b.Serve(ctx, ln, conf)
}
