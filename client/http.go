package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.opentelemetry.io/otel/propagation"

	"github.com/codefleet/codefleet/internal/errcode"
)

// httpConn uses the HTTP interface.
type httpConn struct {
	at       atomic.Pointer[location]
	located  Located
	http     *http.Client
	retryFor time.Duration
}

// location is where a fleet is, with the token for it.
type location struct {
	base  *url.URL // without a host if that is not known yet
	token string
}

func (d *httpConn) base() *url.URL { return d.at.Load().base }

// relocate reads the fleet file. If the file names a location other than before, relocate uses that from now on, and
// returns true.
func (d *httpConn) relocate(before *location) bool {
	if d.located.Path == "" {
		return false
	}
	o, err := ReadFleetFile(d.located.Path)
	if err != nil {
		return false // the fleet has stopped, and may start again
	}
	now := &location{token: before.token} // kept unless it comes from the file
	if d.located.Credentials {
		now.token = o.Token
	}
	now.base, err = url.Parse(o.URL)
	if err != nil || now.base.Host == "" || *now.base == *before.base && now.token == before.token {
		return false
	}
	d.at.Store(now)
	return true
}

const (
	// responseTimeout is the time limit of one request, in addition to the wait for a task and the time for the body.
	responseTimeout = 30 * time.Second
	// byteTime is the time to send and handle a byte of a request's body over a slow connection.
	byteTime = time.Second / (128 << 10)
	// idleTimeout is how long the body of a streamed response, such as an artifact or an event stream, may bring no
	// data. The fleet sends heartbeats in event streams more often.
	idleTimeout = 60 * time.Second
)

func newHTTPConn(u *url.URL, o Options) (*httpConn, error) {
	if u.Host == "" && o.Located.Path == "" {
		return nil, o.badURL("no host")
	}
	if err := o.checkPort(u); err != nil {
		return nil, err
	}
	if o.HTTPClient == nil {
		t := &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: o.TLS, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 16,
		}
		o.HTTPClient = &http.Client{Transport: t}
	}
	// Redirects are errors: a fleet sends none, and the token must not be sent to another server.
	h := *o.HTTPClient
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	d := &httpConn{
		located: o.Located, http: &h, retryFor: cmp.Or(o.RetryFor, 15*time.Second),
	}
	d.at.Store(&location{u, o.Token})
	return d, nil
}

func (d *httpConn) close() error {
	d.http.CloseIdleConnections()
	return nil
}

// httpRequest is one request, which may be sent several times.
type httpRequest struct {
	method  string
	path    []string // unescaped segments below the base URL
	query   url.Values
	header  http.Header
	body    []byte
	stream  func() io.Reader // returns the body, instead of the field body; called each time the request is sent
	isSpent func() bool      // reports whether stream can no longer return the whole body; nil if it always can
	wait    time.Duration    // how long the fleet waits for the task before it responds
	once    bool             // retry only if the request certainly had no effect
}

func (r *httpRequest) repeatable() bool { return r.isSpent == nil || !r.isSpent() }

// bodyTime returns the time for the body.
func (r *httpRequest) bodyTime() time.Duration { return time.Duration(len(r.body)) * byteTime }

// onceReader notes whether it was read. It has no method Close, so that the transport does not close the reader.
type onceReader struct {
	from  io.Reader
	begun atomic.Bool
}

func (r *onceReader) Read(p []byte) (int, error) {
	r.begun.Store(true)
	return r.from.Read(p)
}

func (d *httpConn) submit(ctx context.Context, s Submission, w wait) (Record, error) {
	body, err := json.Marshal(s.withKey())
	if err != nil {
		return Record{}, fmt.Errorf("encode task: %w", err)
	}
	return request[Record](ctx, d, httpRequest{
		method: http.MethodPost, path: []string{"v1", "tasks"}, header: jsonHeader(), body: body,
		query: w.query(), wait: w.time,
	})
}

func (d *httpConn) record(ctx context.Context, id string, w wait) (Record, error) {
	return request[Record](ctx, d, httpRequest{path: []string{"v1", "tasks", id}, query: w.query(), wait: w.time})
}

func (d *httpConn) cancel(ctx context.Context, id string) (Record, error) {
	return request[Record](ctx, d, httpRequest{method: http.MethodDelete, path: []string{"v1", "tasks", id}})
}

func (d *httpConn) list(ctx context.Context, o ListOptions) ([]Record, error) {
	q := url.Values{}
	for _, s := range o.Status {
		q.Add("status", string(s))
	}
	setLimit(q, o.Limit)
	return request[[]Record](ctx, d, httpRequest{path: []string{"v1", "tasks"}, query: q})
}

func (d *httpConn) dead(ctx context.Context, cause string, limit int) ([]DeadTask, error) {
	q := url.Values{}
	set(q, "cause", cause)
	setLimit(q, limit)
	return request[[]DeadTask](ctx, d, httpRequest{path: []string{"v1", "dead"}, query: q})
}

func (d *httpConn) redrive(ctx context.Context, id string) (Record, error) {
	return request[Record](ctx, d, httpRequest{
		method: http.MethodPost, path: []string{"v1", "tasks", id, "redrive"}, once: true,
	})
}

func (d *httpConn) redriveAll(ctx context.Context, cause string, from uint64) (Redriven, error) {
	q := url.Values{"seq": {strconv.FormatUint(from, 10)}}
	set(q, "cause", cause)
	return request[Redriven](ctx, d, httpRequest{
		method: http.MethodPost, path: []string{"v1", "dead", "redrive"}, query: q, once: true,
	})
}

func (d *httpConn) fleet(ctx context.Context) (Fleet, error) {
	return request[Fleet](ctx, d, httpRequest{path: []string{"v1", "fleet"}})
}

func (d *httpConn) artifact(ctx context.Context, id, path string) (io.ReadCloser, error) {
	return d.open(ctx, httpRequest{path: append([]string{"v1", "tasks", id, "artifacts"}, strings.Split(path, "/")...)})
}

// get sends a GET request to /v1 followed by path, and decodes the response. Over NATS it returns an error.
func get[T any](ctx context.Context, c *Client, query url.Values, path ...string) (T, error) {
	return sendRequest[T](ctx, c, httpRequest{query: query}, path...)
}

// sendJSON is sendRequest for a request with a JSON body, which may be retried.
func sendJSON[T any](ctx context.Context, c *Client, method string, body any, path ...string) (v T, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return v, fmt.Errorf("encode request: %w", err)
	}
	return sendRequest[T](ctx, c, httpRequest{method: method, header: jsonHeader(), body: data}, path...)
}

// sendJSONOnce is sendJSON for a POST request that is not retried.
func sendJSONOnce[T any](ctx context.Context, c *Client, body any, path ...string) (v T, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return v, fmt.Errorf("encode request: %w", err)
	}
	r := httpRequest{method: http.MethodPost, header: jsonHeader(), body: data, once: true}
	return sendRequest[T](ctx, c, r, path...)
}

// sendRequest sends r to /v1 followed by path, and decodes the response. Over NATS it returns an error.
func sendRequest[T any](ctx context.Context, c *Client, r httpRequest, path ...string) (v T, err error) {
	d, err := c.overHTTP()
	if err != nil {
		return v, err
	}
	r.path = append([]string{"v1"}, path...)
	return request[T](ctx, d, r)
}

// remove deletes the named document of a kind. The request is not retried.
func (c *Client) remove(ctx context.Context, kind, name string) error {
	d, err := c.overHTTP()
	if err != nil {
		return err
	}
	return d.do(ctx, httpRequest{
		method: http.MethodDelete, path: []string{"v1", kind, name}, once: true,
	}, responseTimeout, decoder(nil))
}

func jsonHeader() http.Header { return http.Header{"Content-Type": {"application/json"}} }

// request sends r, with retries, and decodes the response.
func request[T any](ctx context.Context, d *httpConn, r httpRequest) (v T, err error) {
	err = d.do(ctx, r, responseTimeout+r.wait, decoder(&v))
	return v, err
}

// do sends r, with retries, and passes each successful response to read. timeout bounds each attempt, in addition to
// the time for the body; zero means no limit.
func (d *httpConn) do(
	ctx context.Context, r httpRequest, timeout time.Duration, read func(http.Header, io.Reader) error,
) error {
	limit := d.retryFor
	if limit > 0 {
		limit += r.wait
	}
	var failing time.Time // when the first attempt failed; retryFor begins then, not with the wait for the task
	_, err := retry(ctx, limit, func() (_ struct{}, err error) {
		defer func() {
			if err != nil && failing.IsZero() {
				failing = time.Now()
			}
			if err != nil && d.retryFor > 0 && time.Since(failing) > d.retryFor {
				err = backoff.Permanent(unmarked(err))
			}
		}()
		ctx := ctx
		if timeout > 0 {
			bounded, cancel := context.WithTimeout(ctx, timeout+r.bodyTime())
			defer cancel()
			ctx = bounded
		}
		resp, err := d.send(ctx, r)
		if err != nil {
			return struct{}{}, err
		}
		defer resp.Body.Close()
		if err := read(resp.Header, resp.Body); err != nil {
			if e := notExpected(err); e != nil {
				e.Status = resp.StatusCode
				return struct{}{}, backoff.Permanent(e)
			}
			err = fmt.Errorf("read response of %s: %w", d.base().Host, err)
			if r.once || !r.repeatable() {
				err = backoff.Permanent(err) // the request had its effect
			}
			return struct{}{}, err
		}
		return struct{}{}, nil
	})
	return err
}

// notExpected returns the error for a response that was read to its end, but is not the expected JSON, or nil.
func notExpected(err error) *APIError {
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		return &APIError{
			Code: errcode.UnexpectedResponse, Message: "the response is not JSON, so it is not from a fleet",
			Hint: "check the address of the fleet",
		}
	}
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return &APIError{
			Code: errcode.UnexpectedResponse, Message: "the response has another form than expected: " + err.Error(),
			Hint: "check the address and the version of the fleet",
		}
	}
	return nil
}

// decoder returns a function that decodes a response into v, or ignores it if v is nil.
func decoder(v any) func(http.Header, io.Reader) error {
	return func(_ http.Header, body io.Reader) error {
		if v == nil {
			return nil
		}
		return json.NewDecoder(body).Decode(v)
	}
}

// open sends r, with retries, and returns the body of the response. The caller closes it.
func (d *httpConn) open(ctx context.Context, r httpRequest) (io.ReadCloser, error) {
	resp, err := retry(ctx, d.retryFor, func() (*http.Response, error) { return d.openOnce(ctx, r) })
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// send sends r once. It returns a successful response or an error. If the error may mean that the fleet has moved, and
// the fleet file names another location, send sends the request there, as if it had had no effect before.
func (d *httpConn) send(ctx context.Context, r httpRequest) (*http.Response, error) {
	at := d.at.Load()
	if at.base.Host == "" && d.relocate(at) {
		at = d.at.Load()
	}
	if at.base.Host == "" {
		_, err := ReadFleetFile(d.located.Path)
		if err == nil {
			err = fmt.Errorf("%s has no address of a fleet", d.located.Path)
		}
		return nil, fmt.Errorf("%w: %w", ErrNoFleet, err)
	}
	resp, err := d.sendTo(ctx, at, r)
	if mayHaveMoved(err) && r.repeatable() && d.relocate(at) {
		return d.sendTo(ctx, d.at.Load(), r)
	}
	return resp, err
}

// mayHaveMoved reports whether err may mean that the fleet is at another location: the connection or the credentials
// were refused, or the response is not from a fleet.
func mayHaveMoved(err error) bool {
	if e, ok := errors.AsType[*APIError](err); ok {
		return e.Status == http.StatusUnauthorized || e.Code == errcode.UnexpectedResponse
	}
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "dial"
}

// sendTo sends r once, to the location at.
func (d *httpConn) sendTo(ctx context.Context, at *location, r httpRequest) (*http.Response, error) {
	if !fs.ValidPath(strings.Join(r.path, "/")) { // an empty segment or dots would change the URL's path
		return nil, backoff.Permanent(invalidPath(r.path))
	}
	u := at.base.JoinPath(escape(r.path)...)
	u.RawQuery = r.query.Encode()
	var body io.Reader = bytes.NewReader(r.body)
	if r.stream != nil {
		body = r.stream()
	}
	req, err := http.NewRequestWithContext(ctx, cmp.Or(r.method, http.MethodGet), u.String(), body)
	if err != nil {
		return nil, backoff.Permanent(err)
	}
	for name, values := range r.header {
		if slices.ContainsFunc(values, hasControl) {
			return nil, backoff.Permanent(&APIError{
				Status: http.StatusBadRequest, Code: errcode.BadParameter, Path: name,
				Message: "the value contains a newline or another control character",
			})
		}
		req.Header[name] = values
	}
	if at.token != "" {
		req.Header.Set("Authorization", "Bearer "+at.token)
	}
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(req.Header))
	resp, err := d.http.Do(req)
	if errors.Is(err, http.ErrSchemeMismatch) {
		return nil, backoff.Permanent(wrongScheme(req.URL, "http"))
	}
	if notHTTP(err) {
		return nil, backoff.Permanent(&APIError{
			Code: errcode.UnexpectedResponse, Message: "the server does not speak " + strings.ToUpper(req.URL.Scheme),
			Hint: "check the address of the fleet",
		})
	}
	if err != nil {
		// Over HTTP/2, the error after an end of ctx is context.Canceled, whatever the cause.
		err = fmt.Errorf("request to %s: %w", at.base.Host, cmp.Or(context.Cause(ctx), unwrapURL(err)))
		if r.once || !r.repeatable() {
			err = backoff.Permanent(err)
		}
		return nil, err
	}
	if resp.StatusCode/100 == 2 || resp.StatusCode == http.StatusNotModified {
		return resp, nil
	}
	defer resp.Body.Close()
	err = responseError(resp)
	if r.once && resp.StatusCode != http.StatusTooManyRequests || !r.repeatable() {
		err = backoff.Permanent(unmarked(err))
	}
	return nil, err
}

// invalidPath returns the error of a request whose path contains an invalid name.
func invalidPath(path []string) *APIError {
	if path[1] == "tasks" {
		return &APIError{
			Status:  http.StatusNotFound,
			Code:    errcode.UnknownTask,
			Message: "the id of a task or the path of an artifact is not valid",
		}
	}
	i := slices.IndexFunc(path, func(name string) bool { return name == "." || !fs.ValidPath(name) })
	return &APIError{
		Status: http.StatusBadRequest, Code: errcode.BadName,
		Message: fmt.Sprintf("%q is not a valid name", path[max(i, 0)]),
	}
}

func escape(segments []string) []string {
	out := make([]string, len(segments))
	for i, s := range segments {
		out[i] = url.PathEscape(s)
	}
	return out
}

// unwrapURL removes the method and the URL from an error of package http, because the query may be private.
func unwrapURL(err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		return ue.Err
	}
	return err
}

// maxRetryAfter bounds the time that a server asks for, in seconds.
const maxRetryAfter = 24 * 60 * 60

// responseError returns the error of an unsuccessful response, marked by markForRetry.
func responseError(resp *http.Response) error {
	e := &APIError{}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if json.Unmarshal(body, e) != nil || e.Code == "" {
		e = &APIError{
			Code: errcode.UnexpectedResponse, Message: "the response is " + resp.Status + ", which is not from a fleet",
			Hint: "check the address of the fleet",
		}
		if expectsHTTPS(resp, body) {
			e = wrongScheme(resp.Request.URL, "https")
		}
	}
	e.Status = resp.StatusCode
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		e.RetryAfter = min(max(0, seconds), maxRetryAfter)
	}
	return markForRetry(e)
}

// wrongScheme returns the error for a request to u if the server speaks the scheme want instead.
func wrongScheme(u *url.URL, want string) *APIError {
	return &APIError{
		Code:    errcode.UnexpectedResponse,
		Message: fmt.Sprintf("the server speaks %s, not %s", strings.ToUpper(want), strings.ToUpper(u.Scheme)),
		Hint:    fmt.Sprintf("use the address %s://%s", want, u.Host),
	}
}

// notHTTP reports whether a request failed because the server, such as a queue, speaks another protocol. Package http
// has no type for the errors "malformed HTTP …", which quote what the server sent.
func notHTTP(err error) bool {
	if _, notTLS := errors.AsType[tls.RecordHeaderError](err); notTLS {
		return true
	}
	return err != nil && strings.Contains(err.Error(), "malformed HTTP ")
}

// expectsHTTPS reports whether a server that speaks HTTPS has refused a request over HTTP. The response of every common
// server contains the word HTTPS.
func expectsHTTPS(resp *http.Response, body []byte) bool {
	return resp.StatusCode == http.StatusBadRequest && resp.Request != nil && resp.Request.URL.Scheme == "http" &&
		bytes.Contains(body, []byte("HTTPS"))
}

// markForRetry marks an error for retry: as permanent, or with the time after which to try again, if it is known.
func markForRetry(e *APIError) error {
	switch e.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		return backoff.Permanent(e)
	}
	if e.RetryAfter > 0 {
		return errors.Join(e, backoff.RetryAfter(e.RetryAfter))
	}
	return e
}

// retry repeats op while its error is not permanent, for at most limit. A negative limit disables retries.
func retry[T any](ctx context.Context, limit time.Duration, op backoff.Operation[T]) (T, error) {
	delay := backoff.NewExponentialBackOff()
	delay.InitialInterval, delay.MaxInterval = 100*time.Millisecond, 2*time.Second
	options := []backoff.RetryOption{backoff.WithBackOff(delay), backoff.WithMaxElapsedTime(limit)}
	if limit < 0 {
		options = append(options, backoff.WithMaxTries(1))
	}
	v, err := backoff.Retry(ctx, op, options...)
	return v, unmarked(err)
}

// unmarked returns err without the marks of markForRetry.
func unmarked(err error) error {
	if e, ok := errors.AsType[*APIError](err); ok {
		return e
	}
	return err
}
