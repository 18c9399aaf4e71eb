package httpserve

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// InProcess is an http.RoundTripper that passes requests to a handler in this process. The MCP bridge and the page use
// it to send requests to an HTTP interface in the same process. Set Handler before the first request.
type InProcess struct {
	Handler http.Handler
	Caller  string // the RemoteAddr of the requests
}

// RoundTrip implements http.RoundTripper. It returns once the handler has written the header. The body streams what
// the handler writes; closing it early cancels the request.
func (t *InProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	body, w := io.Pipe()
	out := &inProcessWriter{header: http.Header{}, body: w, started: make(chan struct{})}
	in := r.Clone(ctx)
	in.Host, in.RequestURI, in.RemoteAddr = r.URL.Host, r.URL.RequestURI(), t.Caller
	if in.Body == nil {
		in.Body = http.NoBody
	}
	go func() { // ends with the request
		defer cancel()
		end := io.ErrUnexpectedEOF // if the handler panics: a partial body must not look complete
		defer func() {
			_ = recover() // the handler has logged the panic
			out.WriteHeader(http.StatusOK)
			_ = w.CloseWithError(end)
		}()
		t.Handler.ServeHTTP(out, in)
		end = nil
	}()
	select {
	case <-out.started:
	case <-r.Context().Done(): // not ctx, which also ends with the handler
		_ = body.Close()
		cancel()
		return nil, context.Cause(r.Context())
	}
	return &http.Response{
		Status: http.StatusText(out.status), StatusCode: out.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: out.sent, ContentLength: -1, Request: r, Body: &inProcessBody{body, cancel},
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
	started      chan struct{} // closed once the header is written
}

func (w *inProcessWriter) Header() http.Header { return w.header }

func (w *inProcessWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.started)
	})
}

func (w *inProcessWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Flush implements http.Flusher. It writes the header if that is missing: Write does not buffer the body.
func (w *inProcessWriter) Flush() { w.WriteHeader(http.StatusOK) }
