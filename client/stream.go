package client

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// errSilent ends a request when the fleet has sent no data within the time limit.
var errSilent = errors.New("the fleet sent no data within the time limit")

// openOnce sends r once, and returns the response, whose body may be read for any time. It cancels the request if the
// response does not begin within responseTimeout, or if a read of the body gets no data within idleTimeout. To close
// the body releases the request.
func (d *httpConn) openOnce(ctx context.Context, r httpRequest) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	silent := time.AfterFunc(responseTimeout+r.bodyTime(), func() { cancel(errSilent) })
	resp, err := d.send(ctx, r)
	silent.Stop()
	if err != nil {
		cancel(nil)
		return nil, err
	}
	resp.Body = &streamBody{resp.Body, silent, func() error { return context.Cause(ctx) }, cancel}
	return resp, nil
}

// streamBody is the body of a response to openOnce.
type streamBody struct {
	io.ReadCloser
	silent *time.Timer  // cancels the request; runs during reads
	cause  func() error // why the request was cancelled; nil if it was not
	cancel context.CancelCauseFunc
}

func (b *streamBody) Read(p []byte) (int, error) {
	b.silent.Reset(idleTimeout)
	n, err := b.ReadCloser.Read(p)
	b.silent.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = cmp.Or(b.cause(), err) // HTTP/2 returns context.Canceled instead of the cause
	}
	return n, err
}

func (b *streamBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}
