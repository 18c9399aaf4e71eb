package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/codefleet/codefleet/internal/state/s3"
)

// startDelay starts a proxy that delays each request to a bucket, like a distant store. Requests wait concurrently. It
// returns the bucket with the proxy's address, and a function that stops the proxy.
func startDelay(ctx context.Context, remote bucket, delay time.Duration) (bucket, func() error, error) {
	target, err := url.Parse(remote.Endpoint)
	if err != nil {
		return remote, nil, err
	}
	proxy := &httputil.ReverseProxy{
		// The Host header does not change, because the client's signature covers it.
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = target.Scheme, target.Host, r.In.Host
		},
		Transport: s3.NewTransport(),
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		wait := time.NewTimer(delay)
		defer wait.Stop()
		select {
		case <-wait.C:
			proxy.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return remote, nil, err
	}
	server := &http.Server{Handler: http.HandlerFunc(handler), ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	remote.Endpoint = "http://" + l.Addr().String()
	return remote, func() error {
		err := server.Close()
		if serveErr := <-ended; !errors.Is(serveErr, http.ErrServerClosed) {
			err = errors.Join(err, serveErr)
		}
		return err
	}, nil
}
