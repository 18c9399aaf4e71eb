package bridge

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/httpserve"
)

// grace is the time for requests to finish once the bridge drains.
const grace = 10 * time.Second

// Serve serves requests on ln until ctx ends. Then it closes the bridge, and waits ten seconds for the requests in
// progress. It returns an error if they have not finished by then, or if ln fails. It closes ln. On an address other
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
// continue after that. While the fleet does not respond, ServeStdio waits for it, and the client's calls fail within
// attemptTime. ServeStdio returns a *client.APIError if the fleet refuses the token.
func (b *Bridge) ServeStdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	p, err := b.newPrincipal(ctx, b.o.Fleet)
	if err != nil {
		return err
	}
	defer p.close()
	p.scopes.Store(&[]string{scopeSubmit, scopeRead}) // until the fleet responds; it checks each call, too
	err = p.identifyOnce(ctx)
	if err != nil && !b.temporary(err) {
		return err
	}
	serving, end := context.WithCancelCause(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer end(nil)
	if err != nil {
		b.o.Log.WarnContext(ctx, "waiting for the fleet", "error", err)
		waiting.Go(func() {
			if err := p.awaitFleet(serving); err != nil {
				end(err)
			}
		})
	}
	stream := newStdioStream(in, out)
	err = p.server(b.o.Profile).Run(serving, &mcp.IOTransport{
		Reader: stream, Writer: stream, MaxLineLength: maxLine + 1,
	})
	if refused, ok := errors.AsType[*client.APIError](context.Cause(serving)); ok {
		return refused
	}
	return err
}
