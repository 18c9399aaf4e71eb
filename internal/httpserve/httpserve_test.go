package httpserve_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/httpserve"
)

// start serves h on a loopback address. end cancels the context and returns the error of Serve.
func start(t *testing.T, h http.HandlerFunc, grace time.Duration, drain func()) (url string, end func() error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	o := httpserve.Options{Handler: h, Grace: grace, Drain: drain, Log: slog.New(slog.DiscardHandler)}
	go func() { served <- httpserve.Serve(ctx, ln, o) }()
	return "http://" + ln.Addr().String(), func() error { cancel(); return <-served }
}

// TestServeDrains checks that Serve completes a request that is in progress when the context ends.
func TestServeDrains(t *testing.T) {
	began, drained := make(chan struct{}), make(chan struct{})
	url, end := start(t, func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		<-drained
		_, _ = io.WriteString(w, "complete")
	}, 10*time.Second, func() { close(drained) })
	got := make(chan string, 1)
	go func() {
		resp, err := http.Get(url)
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		got <- string(body)
	}()
	<-began
	if err := end(); err != nil {
		t.Errorf("Serve() = %v, want nil", err)
	}
	if body := <-got; body != "complete" {
		t.Errorf("body = %q, want complete", body)
	}
}

// TestServeAborts checks that Serve aborts and reports a request that takes longer than the grace time.
func TestServeAborts(t *testing.T) {
	began := make(chan struct{})
	url, end := start(t, func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
	}, time.Millisecond, nil)
	go func() {
		if resp, err := http.Get(url); err == nil {
			resp.Body.Close()
		}
	}()
	<-began
	if err := end(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Serve() = %v, want %v", err, context.DeadlineExceeded)
	}
}

// TestServeFails checks that Serve returns when the listener fails.
func TestServeFails(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	o := httpserve.Options{Handler: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler)}
	if err := httpserve.Serve(t.Context(), ln, o); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve() = %v, want %v", err, net.ErrClosed)
	}
}
