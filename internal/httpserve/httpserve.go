// Package httpserve runs an HTTP server on a listener until a context ends, and then drains it. It also has the checks
// that protect a server from hostile web pages.
package httpserve

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

// Options configure Serve. Handler and Log are required.
type Options struct {
	Handler http.Handler
	TLS     *tls.Config   // nil serves HTTP without encryption
	Grace   time.Duration // time for requests in progress once ctx ends; 0 aborts them
	Log     *slog.Logger  // receives the messages of net/http at level debug

	// Drain, if not nil, is called once when ctx ends. It should make waiting requests return soon.
	Drain func()
	// Close, if not nil, is called after the last request, with a context that ends when Grace is over. If ln fails
	// before ctx ends, neither Drain nor Close is called.
	Close func(context.Context)
}

// Serve serves requests on ln until ctx ends. Then it calls Drain, accepts no further requests, waits for the requests
// in progress, calls Close and returns nil. It returns an error if ln fails, or if it had to abort requests after
// Grace. It closes ln.
func Serve(ctx context.Context, ln net.Listener, o Options) error {
	server := &http.Server{
		Handler:           o.Handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		TLSConfig:         o.TLS,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { // ends with server.Shutdown or server.Close
		if o.TLS != nil {
			served <- server.ServeTLS(ln, "", "")
		} else {
			served <- server.Serve(ln)
		}
	}()
	select {
	case err := <-served:
		return fmt.Errorf("serve http on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	if o.Drain != nil {
		o.Drain()
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Grace)
	defer cancel()
	err := server.Shutdown(grace)
	if err != nil {
		err = errors.Join(fmt.Errorf("drain http: %w", err), server.Close())
	}
	if stopped := <-served; !errors.Is(stopped, http.ErrServerClosed) {
		err = errors.Join(err, stopped)
	}
	if o.Close != nil {
		o.Close(grace)
	}
	return err
}
