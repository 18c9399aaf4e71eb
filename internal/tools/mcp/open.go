package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/text"
)

// open starts the process or connects to the server, and performs the handshake. base is the connection's
// context, not a call's: it ends when the connection is closed.
func (u *upstream) open(base context.Context, log *slog.Logger) (*mcpSession, error) {
	refused := &refusal{}
	ctx, cancel := context.WithCancel(refused.record(base))
	s := &mcpSession{up: u, cancel: cancel}
	late := time.AfterFunc(u.Limits.ConnectTimeout, cancel)
	transport, err := u.newTransport(ctx, s, log)
	if err == nil {
		s.client, err = u.newClient(s).Connect(ctx, transport, nil)
	}
	if err == nil && late.Stop() {
		s.about = u.descriptions.aboutOf(s.client.InitializeResult())
		return s, nil
	}
	switch {
	case base.Err() != nil:
		err = errClosed
	case err == nil || ctx.Err() != nil:
		err = errors.Join(fmt.Errorf("no handshake within %s (to wait longer, set mcp_servers[].start_timeout)",
			u.Limits.ConnectTimeout), err)
	case refused.toOtherHost():
		err = errOtherHost
	default:
		err = causeOf(err)
		if _, reason := refused.explain(u.redactor); reason != "" {
			err = fmt.Errorf("%w (%s)", err, reason)
		}
	}
	if s.client != nil {
		_ = s.client.Close() // err says more
	}
	if s.proc != nil {
		s.proc.stop()
		if exit := s.proc.exit(); exit != nil {
			err = fmt.Errorf("%w (%w)", err, exit)
		}
	}
	cancel()
	return nil, err
}

// causeOf returns the cause of an error of Connect, without the layers of the SDK and of net/http around it.
func causeOf(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	e, ofNet := errors.AsType[*net.OpError](err)
	errno, refused := errors.AsType[syscall.Errno](err)
	switch {
	case ofNet && refused && e.Addr != nil:
		return fmt.Errorf("connect to %s: %w", e.Addr, errno)
	case errors.Is(err, sdk.ErrConnectionClosed):
		return errors.New("the server closed the connection before it responded")
	}
	return err
}

// newTransport returns a transport to the server. For a command, newTransport starts the process and sets
// s.proc.
func (u *upstream) newTransport(ctx context.Context, s *mcpSession, log *slog.Logger) (sdk.Transport, error) {
	switch {
	case u.InProcess != nil:
		ours, theirs := net.Pipe()
		_, err := u.InProcess.Connect(ctx, &sdk.IOTransport{Reader: theirs, Writer: theirs}, nil)
		in := newMessageReader(ours, u.Limits.MaxResultBytes, func(string) {})
		return &sdk.IOTransport{Reader: in, Writer: ours, MaxLineLength: u.sdkLimit()}, err
	case u.SSE:
		return &sdk.SSEClientTransport{
			Endpoint: u.URL, HTTPClient: httpClient(u.Server), MaxEventSize: u.sdkLimit(),
		}, nil
	case u.URL != "":
		return &sdk.StreamableClientTransport{
			Endpoint: u.URL, HTTPClient: httpClient(u.Server), MaxEventSize: u.sdkLimit(), MaxRetries: 1,
		}, nil
	}
	rate := &lineRate{}
	output := func(write func(line string)) func(line string) {
		return func(line string) {
			if !rate.allow() {
				return
			}
			line = text.Printable(strings.ToValidUTF8(u.redactor.excerpt(line, maxLine), "?"))
			if u.manager.onOutput != nil {
				u.manager.onOutput(u.Name, line)
				return
			}
			write(line)
		}
	}
	proc, err := startProcess(u.Server, output(func(line string) {
		log.InfoContext(ctx, "tool server wrote to standard error", "line", line)
	}))
	if err != nil {
		return nil, err
	}
	s.proc = proc
	in := newMessageReader(proc.stdout, u.Limits.MaxResultBytes, output(func(line string) {
		log.WarnContext(ctx, "discarded non-message output of tool server", "line", line)
	}))
	in.requests = newRequests(u.Limits.MaxResultBytes)
	out := requestWriter{WriteCloser: proc, requests: in.requests}
	return &sdk.IOTransport{Reader: in, Writer: out, MaxLineLength: u.sdkLimit()}, nil
}

// sdkLimit is the largest message that the SDK reads, in bytes. Our readers, from which the SDK reads, apply
// MaxResultBytes.
func (u *upstream) sdkLimit() int { return maxGrowth*u.Limits.MaxResultBytes + 1024 }

// newClient returns a client that passes the server's notifications to s.
func (u *upstream) newClient(s *mcpSession) *sdk.Client {
	opts := &sdk.ClientOptions{
		Capabilities: &sdk.ClientCapabilities{}, // no roots, sampling or elicitation: there is no user
		ToolListChangedHandler: func(ctx context.Context, _ *sdk.ToolListChangedRequest) {
			s.invalidateTools()
			s.announceTools(ctx)
		},
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			token, isNumber := r.Params.ProgressToken.(float64) // a small integer, decoded from JSON
			if !isNumber {
				return
			}
			f, _ := s.progress.Load(token)
			if report, ok := f.(func(*sdk.ProgressNotificationParams)); ok {
				report(r.Params)
			}
		},
		MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},
	}
	if u.URL != "" {
		opts.KeepAlive, opts.KeepAliveFailureThreshold = 30*time.Second, 2
	}
	return sdk.NewClient(&sdk.Implementation{Name: "codefleet", Version: "1"}, opts)
}

// httpClient returns a client that sends the configured headers only to the configured host, and limits the size of
// responses.
func httpClient(s Server) *http.Client {
	u, err := url.Parse(s.URL)
	if err != nil {
		panic("mcp: a checked URL does not parse: " + err.Error()) // check has parsed it
	}
	base := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: s.Limits.Concurrency,
		IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
	}
	return &http.Client{
		Transport: &roundTripper{
			base: base, scheme: u.Scheme, host: u.Host, headers: s.Headers, maxBytes: int64(s.Limits.MaxResultBytes),
			streamable: !s.SSE, requests: newRequests(s.Limits.MaxResultBytes),
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			switch {
			case r.URL.Host != u.Host || r.URL.Scheme != u.Scheme:
				return errOtherHost
			case len(via) > 3:
				return errors.New("too many redirects")
			}
			return nil
		},
	}
}

type roundTripper struct {
	base         http.RoundTripper
	scheme, host string
	headers      map[string]string
	maxBytes     int64
	streamable   bool // the transport is streamable HTTP
	requests     *requests
}

func (t *roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.GetBody != nil {
		if body, err := r.GetBody(); err == nil { // the SDK keeps the body in memory
			defer t.requests.sent(body)
		}
	}
	if r.URL.Host != t.host || r.URL.Scheme != t.scheme {
		noteOtherHost(r.Context()) // an SSE server tells the SDK where to send messages
		return nil, errOtherHost
	}
	if len(t.headers) > 0 {
		r = r.Clone(r.Context())
		for k, v := range t.headers {
			r.Header.Set(k, v)
		}
	}
	resp, err := t.base.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	switch {
	case resp.StatusCode < 400 || r.Method == http.MethodDelete:
	case r.Header.Get("Last-Event-ID") != "": // the server refuses to resume a stream, not the call
	default:
		noteRefusal(r.Context(), resp, "")
	}
	if t.streamable && r.Method == http.MethodPost && resp.StatusCode == http.StatusOK {
		if mediaType := mediaTypeOf(resp); mediaType != "application/json" && mediaType != "text/event-stream" {
			noteRefusal(r.Context(), resp, cmp.Or(mediaType, "none"))
		}
	}
	if resp.StatusCode >= 400 && r.Method == http.MethodGet { // the SDK wanted to open a stream
		// The SDK would pass a JSON-RPC error in the body to all calls of the connection, as if it were their response.
		_ = resp.Body.Close()
		resp.Body = http.NoBody
	}
	if isStream(r, resp) { // each event has its own limit
		events := newEventReader(resp.Body, int(t.maxBytes))
		events.requests, resp.Body = t.requests, events
	} else {
		resp.Body = &exactBody{
			ReadCloser: &limitedBody{ReadCloser: resp.Body, left: t.maxBytes}, refusal: resp.StatusCode >= 400,
		}
		resp.ContentLength = -1
	}
	if f, ok := r.Context().Value(refusalKey{}).(*refusal); ok {
		resp.Body = notedBody{resp.Body, f}
	}
	return resp, nil
}

// isStream reports whether the SDK may read a response as a stream of events. It reads a stream that it opens with GET
// without regard to the media type if the transport is SSE. A response with the type of one message is not a stream:
// exactBody refuses it if it has other content.
func isStream(r *http.Request, resp *http.Response) bool {
	mediaType := mediaTypeOf(resp)
	return mediaType == "text/event-stream" || r.Method == http.MethodGet && mediaType != "application/json"
}

// mediaTypeOf returns the media type of a response, or "" if that is missing or invalid.
func mediaTypeOf(resp *http.Response) string {
	mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return mediaType
}

var errOtherHost = errors.New("the server directs requests to another host or scheme: " +
	"if that is intended, configure its address")

var errTooLarge = errors.New("the response is too large")

type limitedBody struct {
	io.ReadCloser
	left int64
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}
