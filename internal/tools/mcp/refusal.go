package mcp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/codefleet/codefleet/internal/text"
)

// refusal keeps the last HTTP response that refused a request of one call or handshake. The SDK's error has only its
// status, but servers say in the body what to change.
type refusal struct {
	mu        sync.Mutex
	status    int
	mediaType string // if it is the reason
	body      string
	otherHost bool  // a request to another host was not sent
	unread    error // why the rest of the response was not read
}

type refusalKey struct{}

// record returns a context. If a request with this context is refused, f keeps the response.
func (f *refusal) record(ctx context.Context) context.Context {
	return context.WithValue(ctx, refusalKey{}, f)
}

// maxRefusalBody is how much of a body is kept; maxRefusalText, how much of it is reported, in bytes.
const (
	maxRefusalBody = 4 << 10
	maxRefusalText = 500
)

// noteRefusal keeps a response that refuses a request, or whose mediaType, if not empty, the SDK refuses. The response
// can still be read.
func noteRefusal(ctx context.Context, resp *http.Response, mediaType string) {
	f, ok := ctx.Value(refusalKey{}).(*refusal)
	if !ok {
		return
	}
	start, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusalBody)) // after an error, keep what was read
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), resp.Body), resp.Body}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status, f.mediaType, f.body = resp.StatusCode, mediaType, string(start)
}

// noteOtherHost records that a request to another host was not sent. The SDK then closes the connection, and its error
// may not give the reason.
func noteOtherHost(ctx context.Context) {
	if f, ok := ctx.Value(refusalKey{}).(*refusal); ok {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.otherHost = true
	}
}

// notedBody is the body of a response. If it ends with an error of this package, the refusal keeps the error: the SDK
// returns only its text, or another error.
type notedBody struct {
	io.ReadCloser
	refusal *refusal
}

func (b notedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, errTooLarge) || errors.Is(err, errTooManyRequests) {
		b.refusal.mu.Lock()
		defer b.refusal.mu.Unlock()
		b.refusal.unread = err
	}
	return n, err
}

// cause returns why the rest of a response was not read, or else err.
func (f *refusal) cause(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return cmp.Or(f.unread, err)
}

func (f *refusal) toOtherHost() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.otherHost
}

// explain returns the status and a description of the refusal, without secrets, or 0 and "" if there was none.
func (f *refusal) explain(r redactor) (status int, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.status == 0 {
		return 0, ""
	}
	reason = fmt.Sprintf("the server responded with %d %s", f.status, http.StatusText(f.status))
	if f.mediaType != "" {
		reason += fmt.Sprintf(" and the media type %s, want application/json or text/event-stream",
			text.Printable(text.Truncate(r.redact(f.mediaType), 100)))
	}
	// A body of maxRefusalBody bytes may be cut, so excerpt must cut it, too, and remove the start of a secret.
	body := text.Printable(text.OneLine(strings.ToValidUTF8(r.excerpt(f.body, maxRefusalBody-1), "?")))
	if body = text.Truncate(strings.TrimSpace(body), maxRefusalText); body != "" {
		reason += ": " + body
	}
	return f.status, reason
}
