package bridge

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/codefleet/codefleet/internal/httpserve"
)

// grace is how long requests may take once the bridge drains.
const grace = 10 * time.Second

// Serve serves requests on ln until ctx ends. Then it drains: requests in progress respond with what they
// have. It returns nil once they have finished, and an error if they have not after ten seconds, or if ln
// fails. It closes ln. On an address beyond loopback every request needs a token, even if the fleet has
// authentication switched off.
func (b *Bridge) Serve(ctx context.Context, ln net.Listener, conf *tls.Config) error {
	if a, ok := ln.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		b.needToken.Store(true)
	}
	return httpserve.Serve(ctx, ln, httpserve.Options{
		Handler: b.guard(b.Handler()), TLS: conf, Grace: grace, Drain: b.Close, Log: b.o.Log,
	})
}
