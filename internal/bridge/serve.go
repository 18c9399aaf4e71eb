package bridge

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/httpserve"
)

// grace is the time for requests to finish once the bridge drains.
const grace = 10 * time.Second

// Serve serves requests on ln until ctx ends. Then it closes the bridge and waits for the requests in progress. It
// returns an error if they have not finished within ten seconds, or if ln fails. It closes ln. On an address other
// than loopback every request needs a token, even if authentication is off in the fleet.
func (b *Bridge) Serve(ctx context.Context, ln net.Listener, conf *tls.Config) error {
	if a, ok := ln.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		b.needToken.Store(true)
	}
	return httpserve.Serve(ctx, ln, httpserve.Options{
		Handler: b.guard(b.Handler()), TLS: conf, Grace: grace, Drain: b.Close, Log: b.o.Log,
	})
}

// ServeStdio serves one client on a pair of streams until the client closes them or ctx ends. The client's tasks
// continue after that. ServeStdio returns a *client.APIError if the fleet refuses the token.
func (b *Bridge) ServeStdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	p, err := b.newPrincipal(ctx, b.o.Fleet)
	if err != nil {
		return err
	}
	if err := p.identify(ctx); err != nil {
		if _, refused := errors.AsType[*client.APIError](err); refused {
			return err
		}
		b.o.Log.WarnContext(ctx, "token not verified, fleet did not respond", "error", err)
		p.scopes = []string{scopeSubmit, scopeRead} // offer their tools; the fleet checks each call
	}
	defer p.close()
	stream := newStdioStream(in, out)
	return p.server(b.o.Profile).Run(ctx, &mcp.IOTransport{
		Reader: stream, Writer: stream, MaxLineLength: maxLine + 1,
	})
}
