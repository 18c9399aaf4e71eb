package bridge

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// InProcess carries requests to a handler in this process, for a bridge beside the HTTP interface
// whose client it is. Handler is set before the first request.
type InProcess struct{ Handler http.Handler }

// RoundTrip implements http.RoundTripper. It returns with the header; the body comes as it is
// written. Whoever closes the body early ends the request.
func (t *InProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	body, w := io.Pipe()
	a := &inProcessWriter{header: http.Header{}, body: w, begun: make(chan struct{})}
	in := r.Clone(ctx)
	in.Host, in.RequestURI, in.RemoteAddr = r.URL.Host, r.URL.RequestURI(), "bridge"
	if in.Body == nil {
		in.Body = http.NoBody
	}
	go func() {
		defer cancel()
		end := io.ErrUnexpectedEOF // unless the handler returns, half an answer must not look like a whole one
		defer func() {
			_ = recover() // the handler has said so itself
			a.WriteHeader(http.StatusOK)
			_ = w.CloseWithError(end)
		}()
		t.Handler.ServeHTTP(a, in)
		end = nil
	}()
	select {
	case <-a.begun:
	case <-ctx.Done():
		_ = body.Close()
		cancel()
		return nil, context.Cause(r.Context())
	}
	return &http.Response{
		Status: http.StatusText(a.status), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.sent, ContentLength: -1, Request: r, Body: &inProcessBody{body, cancel},
	}, nil
}

type inProcessBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b *inProcessBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

type inProcessWriter struct {
	header, sent http.Header
	status       int
	body         *io.PipeWriter
	once         sync.Once
	begun        chan struct{}
}

func (w *inProcessWriter) Header() http.Header { return w.header }

func (w *inProcessWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.begun)
	})
}

func (w *inProcessWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Flush implements http.Flusher: nothing is held back, but the header is.
func (w *inProcessWriter) Flush() { w.WriteHeader(http.StatusOK) }
