package bridge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// grace is how long calls under way may take after the end was asked for.
const grace = 10 * time.Second

// Serve answers requests on ln until ctx ends; then it lets calls return with what they have. It
// closes ln. Beyond loopback every caller needs a token, even of a fleet that asks for none.
func (b *Bridge) Serve(ctx context.Context, ln net.Listener, conf *tls.Config) error {
	handler := b.guard(b.Handler())
	if a, ok := ln.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		b.needToken.Store(true)
	}
	srv := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		TLSConfig: conf, ErrorLog: slog.NewLogLogger(b.o.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() {
		if conf != nil {
			ended <- srv.ServeTLS(ln, "", "")
		} else {
			ended <- srv.Serve(ln)
		}
	}()
	select {
	case err := <-ended:
		return fmt.Errorf("serve mcp on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	b.Close()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := srv.Shutdown(stop)
	if err != nil {
		err = errors.Join(fmt.Errorf("drain mcp: %w", err), srv.Close())
	}
	if stopped := <-ended; !errors.Is(stopped, http.ErrServerClosed) {
		err = errors.Join(err, stopped)
	}
	return err
}
