package mcp

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
)

// mcpSession is an established connection.
type mcpSession struct {
	up     *upstream
	client *sdk.ClientSession
	about  tools.About
	proc   *process // nil if the server is not a command
	cancel context.CancelFunc
	once   sync.Once
	used   atomic.Bool // the server has responded to a call

	token    atomic.Int64
	progress sync.Map // progress token, as float64 → func(*sdk.ProgressNotificationParams)

	mu       sync.Mutex
	listed   []tools.Definition
	listedAt time.Time // zero if the tools must be listed again
	changes  int       // how often the list became invalid
}

// listTTL is how long a list of tools stays valid if the server does not announce a change.
const listTTL = 5 * time.Minute

var errIdle = errors.New("no response and no progress")

// call makes one call on the connection for the request's tenant and session. Each progress notification restarts the
// time limit.
func (u *upstream) call(ctx context.Context, r tools.Request) (tools.Result, error) {
	c, s, err := u.connection(ctx, r.Tenant, r.Session)
	if err != nil {
		return tools.Result{}, err
	}
	defer c.release()
	err = s.verifyDefinition(ctx, r)
	if isDrift(err) && s.proc.replaced() && c.dropReplaced(s) { // the new program may have the definition
		if s, err = c.connect(ctx); err != nil {
			return tools.Result{}, err
		}
		err = s.verifyDefinition(ctx, r)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return tools.Result{}, context.Cause(ctx)
	case err != nil && !isDrift(err) && !isResponse(err):
		c.drop(s)
		return tools.Result{}, err
	case err != nil:
		return tools.Result{}, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	timer := time.AfterFunc(u.Limits.CallTimeout, func() { stop(errIdle) })
	defer timer.Stop()
	params := &sdk.CallToolParams{Name: r.Tool, Arguments: r.Args}
	token := s.token.Add(1)
	params.SetProgressToken(token)
	defer s.watchProgress(token, func(p *sdk.ProgressNotificationParams) {
		timer.Reset(u.Limits.CallTimeout)
		if r.Progress != nil {
			message := text.Truncate(u.redactor.redact(p.Message), maxMessage)
			r.Progress(text.PrintableLine(message), p.Progress, p.Total)
		}
	})()
	httpRefusal := &refusal{}
	res, err := s.client.CallTool(httpRefusal.record(ctx), params)
	if err != nil {
		return tools.Result{}, u.classify(ctx, c, s, httpRefusal, err)
	}
	c.markUsed(s)
	out, err := convert(r, res)
	if out.IsError {
		u.redactor.redactResult(&out)
	}
	return out, err
}

// watchProgress passes a token's progress notifications to report until stop is called. When stop returns,
// report is not running.
func (s *mcpSession) watchProgress(token int64, report func(*sdk.ProgressNotificationParams)) (stop func()) {
	var mu sync.Mutex
	stopped := false
	s.progress.Store(float64(token), func(p *sdk.ProgressNotificationParams) {
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			report(p)
		}
	})
	return func() {
		s.progress.Delete(float64(token))
		mu.Lock()
		defer mu.Unlock()
		stopped = true
	}
}

func isDrift(err error) bool {
	ue, ok := errors.AsType[*tools.UpstreamError](err)
	return ok && ue.Reason == tools.Drifted
}

// classify converts an error of the SDK. redactUpstream later removes secrets from its text and truncates it. classify
// drops the connection if the connection was lost, if an HTTP response exceeded the limit, if the server sent too many
// requests, or if it responded with the HTTP status of an error. It keeps the connection after a timeout, a cancelled
// context, an error response, a malformed message, or a message above the limit from a process.
func (u *upstream) classify(ctx context.Context, c *conn, s *mcpSession, httpRefusal *refusal, err error) error {
	err = httpRefusal.cause(err)
	status, reason := httpRefusal.explain(u.redactor)
	out := &tools.UpstreamError{Server: u.Name, Sent: true}
	wire, isWire := errors.AsType[*jsonrpc.Error](err)
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errIdle):
		out.Reason, out.Err = tools.Timeout, fmt.Errorf("no response and no progress in %s", u.Limits.CallTimeout)
	case cause != nil:
		return cause
	case isWire && wire.Code == codeTooLarge:
		out.Reason, out.Err = tools.TooLarge, errors.New(wire.Message)
	case isWire && wire.Code == codeMalformed:
		out.Reason, out.Err = tools.Protocol, errors.New(text.Printable(u.redactor.excerpt(wire.Message, maxMessage)))
	case isWire && !transportCode(wire.Code) && (status != http.StatusNotFound || !noSession(wire.Code)):
		s.invalidateTools()
		out.Reason, out.Sent, out.Err = tools.Refused, false, errors.New(wire.Message)
		if len(wire.Data) <= maxErrorData && string(wire.Data) != "null" {
			out.Data = u.redactor.redactJSON(wire.Data)
		}
		c.markUsed(s)
	case errors.Is(err, errTooManyRequests): // says more than the exit of the process, which follows
		out.Reason, out.Err = tools.Lost, errTooManyRequests
		c.drop(s)
	case errors.Is(err, errTooLarge):
		out.Reason, out.Err = tools.TooLarge, fmt.Errorf("the response exceeds %d bytes", u.Limits.MaxResultBytes)
		c.drop(s)
	case status == http.StatusNotFound: // the server refuses the call, because it no longer has the session
		out.Reason, out.Sent, out.Err = tools.Lost, false, errors.New(reason)
		c.drop(s)
	case status >= 400 && status < 500:
		out.Reason, out.Sent, out.Err = tools.Down, false, errors.New(reason)
		c.drop(s)
	case status != 0:
		out.Reason, out.Err = tools.Lost, errors.New(reason)
		c.drop(s)
	default:
		out.Reason, out.Err = tools.Lost, fmt.Errorf("the connection was lost: %s", s.endReason(err))
		c.drop(s)
	}
	return out
}

// noSession reports whether servers use an error's code, with the status 404, if they no longer have the session. Other
// codes are about the call, which may have had an effect.
func noSession(code int64) bool { return code == jsonrpc.CodeInvalidRequest || code == -32000 }

// isResponse reports whether an error was the server's response, so that the connection works.
func isResponse(err error) bool {
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	return ok && !transportCode(wire.Code)
}

// transportCode reports whether a code means that the SDK's connection, not the server, rejected the
// request, for example because it is closing.
func transportCode(code int64) bool { return code <= -32001 && code >= -32006 }

// maxMessage is the maximum size of an error or progress message, in bytes.
const maxMessage = 2000

// maxErrorData is the maximum size of an error's data, in bytes. Larger data is left out.
const maxErrorData = 64 << 10

// endReason returns why the connection ended. A process's exit explains more than the end of its stream.
func (s *mcpSession) endReason(err error) string {
	if s.proc != nil {
		select {
		case <-s.proc.done:
		case <-time.After(200 * time.Millisecond): // the stream ends shortly before the process
		}
		if exit := s.proc.exit(); exit != nil {
			return exit.Error()
		}
	}
	if err == nil {
		return "closed"
	}
	return err.Error()
}

// deaf reports whether the server does not read its input, so that the connection is about to end.
func (s *mcpSession) deaf() bool { return s.proc != nil && s.proc.deaf.Load() }

func (s *mcpSession) close() {
	s.once.Do(func() {
		if s.proc != nil {
			s.proc.stop()
		}
		s.cancel()
		_ = s.client.Close() // an error says only that the connection is gone
	})
}

// verifyDefinition checks that the server lists the definition that the caller expects.
func (s *mcpSession) verifyDefinition(ctx context.Context, r tools.Request) error {
	if r.Hash == "" {
		return nil
	}
	listed, err := s.definitions(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(listed, func(d tools.Definition) bool { return d.Name == r.Tool })
	switch {
	case i < 0:
		err = errors.New("the server no longer has this tool" + s.age())
	case listed[i].Hash() != r.Hash:
		err = errors.New("the server has changed the tool's definition" + s.age())
	default:
		return nil
	}
	return &tools.UpstreamError{Server: s.up.Name, Reason: tools.Drifted, Err: err}
}

// age describes the server's process, because it may run an older program than the one whose tools were generated.
func (s *mcpSession) age() string {
	if s.proc == nil {
		return ""
	}
	return " (its process has run since " + s.proc.started.UTC().Format(time.RFC3339) +
		": if its program has changed since, restart the worker)"
}

func (s *mcpSession) invalidateTools() {
	s.mu.Lock()
	s.listedAt = time.Time{}
	s.changes++
	s.mu.Unlock()
}

// announceDelay is how long an announcement waits for further changes. The delay doubles up to maxAnnounceDelay while
// changes follow each other: a server may announce one whenever its tools are listed.
const (
	announceDelay    = 200 * time.Millisecond
	maxAnnounceDelay = time.Minute
)

// announcements are the connections on which a server has announced that its tools changed. Their lists, which may be
// large, are handled one after another: the server may announce changes faster than OnAnnounced handles them.
type announcements struct {
	mu      sync.Mutex
	stop    context.CancelFunc // stops announceChanges; nil while it does not run
	ended   bool               // by end
	changed []*mcpSession      // those whose tools are still to be listed
}

// end stops the announcements for good.
func (a *announcements) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	if a.stop != nil {
		a.stop()
	}
}

// announceTools lists the tools in the background and passes them to OnAnnounced. Changes in quick succession are
// announced together.
func (s *mcpSession) announceTools(ctx context.Context) {
	m, a := s.up.manager, &s.up.announcements
	if m.announce == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	if !slices.Contains(a.changed, s) {
		a.changed = append(a.changed, s)
	}
	if a.stop == nil {
		ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
		a.stop = stop
		m.start(func() { defer stop(); s.up.announceChanges(ctx) }) // after Close, it need not run
	}
}

// announceChanges announces the tools of one connection after the other until none has changes, or ctx ends.
func (u *upstream) announceChanges(ctx context.Context) {
	for delay := announceDelay; clock.Sleep(ctx, delay) == nil; delay = min(2*delay, maxAnnounceDelay) {
		s := u.announcements.next()
		if s == nil {
			return
		}
		if defs, err := s.definitions(ctx); err == nil { // after an error, the next announcement tries again
			u.manager.announce(u.Name, defs)
		}
	}
}

// next removes a connection from those that have changes. If there is none, it returns nil, and the announcement ends.
func (a *announcements) next() *mcpSession {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.changed) == 0 {
		a.stop = nil
		return nil
	}
	s := a.changed[0]
	a.changed = slices.Delete(a.changed, 0, 1)
	return s
}

// Limits of a server's list of tools.
const (
	maxListed      = 5000 // tools, and pages
	maxListedBytes = 32 << 20
	maxCursor      = 4 << 10 // bytes
)

// definitions returns the server's tools, from a list that is at most listTTL old.
func (s *mcpSession) definitions(ctx context.Context) ([]tools.Definition, error) {
	s.mu.Lock()
	listed, changes, fresh := s.listed, s.changes, time.Since(s.listedAt) < listTTL
	s.mu.Unlock()
	if fresh {
		return listed, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.up.Limits.ConnectTimeout)
	defer cancel()
	listed = nil
	known, count, size := map[string]bool{}, 0, 0
	for t, err := range s.listTools(ctx) {
		if err != nil {
			return nil, err
		}
		count++
		d, err := definition(t)
		if err != nil {
			continue // a tool without a valid definition cannot be called
		}
		s.up.descriptions.redactDefinition(&d)
		size += len(d.Name) + len(d.Title) + len(d.Annotations.Title) + len(d.Description) +
			len(d.InputSchema) + len(d.OutputSchema)
		if count > maxListed || size > maxListedBytes {
			err := errors.New("its list of tools is too long")
			return nil, &tools.UpstreamError{Server: s.up.Name, Reason: tools.Protocol, Err: err}
		}
		if !known[d.Name] {
			known[d.Name] = true
			listed = append(listed, d)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes == changes { // else the list may be from before the change: the next caller lists the tools again
		s.listed, s.listedAt = listed, time.Now()
	}
	return listed, nil
}

// listTools returns the tools of all pages of the server's list.
func (s *mcpSession) listTools(ctx context.Context) iter.Seq2[*sdk.Tool, error] {
	return func(yield func(*sdk.Tool, error) bool) {
		fail := func(reason tools.Reason, err error) {
			yield(nil, &tools.UpstreamError{Server: s.up.Name, Reason: reason, Err: err})
		}
		params := &sdk.ListToolsParams{}
		cursors := map[string]bool{}
		for len(cursors) < maxListed {
			httpRefusal := &refusal{}
			page, err := s.client.ListTools(httpRefusal.record(ctx), params)
			if err != nil {
				reason, err := s.classifyListing(ctx, httpRefusal, err)
				fail(reason, fmt.Errorf("list its tools: %w", err))
				return
			}
			for _, t := range page.Tools {
				if !yield(t, nil) {
					return
				}
			}
			switch {
			case page.NextCursor == "":
				return
			case len(page.NextCursor) > maxCursor:
				fail(tools.Protocol, fmt.Errorf("its list of tools has a cursor of more than %d bytes", maxCursor))
				return
			case cursors[page.NextCursor]:
				fail(tools.Protocol, errors.New("its list of tools has no end: it repeats a page's cursor"))
				return
			}
			params.Cursor = page.NextCursor
			cursors[page.NextCursor] = true
		}
		fail(tools.Protocol, fmt.Errorf("its list of tools has more than %d pages", maxListed))
	}
}

// classifyListing returns the reason of a failed listing, and an error without the session's ID. The reason is Lost if
// the connection or its session has ended, so that a call can be made on a new connection. It is Down if the listing
// would fail there, too.
func (s *mcpSession) classifyListing(ctx context.Context, httpRefusal *refusal, err error) (tools.Reason, error) {
	err = httpRefusal.cause(err)
	status, explanation := httpRefusal.explain(s.up.redactor)
	switch {
	case status == http.StatusNotFound:
		return tools.Lost, errors.New(explanation)
	case status != 0:
		return tools.Down, errors.New(explanation)
	case ctx.Err() != nil || isResponse(err) || errors.Is(err, errTooLarge) || errors.Is(err, errTooManyRequests):
		return tools.Down, err
	}
	return tools.Lost, err
}

func definition(t *sdk.Tool) (tools.Definition, error) {
	d := tools.Definition{Name: t.Name, Title: t.Title, Description: t.Description}
	if s, ok := t.InputSchema.(string); ok {
		if problem, malformed := strings.CutPrefix(s, malformedMark); malformed {
			d.Problem = problem
			return d, nil
		}
	}
	var err error
	if d.InputSchema, err = rawJSON(t.InputSchema); err != nil {
		return d, err
	}
	if t.OutputSchema != nil {
		if d.OutputSchema, err = rawJSON(t.OutputSchema); err != nil {
			return d, err
		}
	}
	if a := t.Annotations; a != nil {
		d.Annotations = tools.Annotations{
			Title: a.Title, ReadOnly: a.ReadOnlyHint, Idempotent: a.IdempotentHint,
			Destructive: a.DestructiveHint, OpenWorld: a.OpenWorldHint,
		}
	}
	return d, nil
}

func convert(r tools.Request, res *sdk.CallToolResult) (tools.Result, error) {
	invalid := func(err error) (tools.Result, error) {
		return tools.Result{}, &tools.UpstreamError{
			Server: r.Server, Reason: tools.Protocol, Sent: true, Err: err,
		}
	}
	if res.NeedsInput() {
		return invalid(errNeedsInput)
	}
	out := tools.Result{IsError: res.IsError}
	if res.StructuredContent != nil {
		var err error
		if out.Structured, err = rawJSON(res.StructuredContent); err != nil {
			return invalid(err)
		}
	}
	for _, c := range res.Content {
		content, ok := block(c)
		if !ok {
			return invalid(errors.New("a block of its content has an unknown type, or lacks its resource"))
		}
		out.Content = append(out.Content, content)
	}
	return out, nil
}

// block converts a content block. It returns false if the type is unknown, or if an embedded resource is missing.
func block(c sdk.Content) (tools.Content, bool) {
	switch c := c.(type) {
	case *sdk.TextContent:
		return tools.Content{Type: "text", Text: c.Text}, true
	case *sdk.ImageContent:
		return tools.Content{Type: "image", Data: c.Data, MediaType: c.MIMEType}, true
	case *sdk.AudioContent:
		return tools.Content{Type: "audio", Data: c.Data, MediaType: c.MIMEType}, true
	case *sdk.ResourceLink:
		return tools.Content{
			Type: "resource_link", URI: c.URI, Text: c.Name, MediaType: c.MIMEType,
			Title: c.Title, Description: c.Description, Size: c.Size,
		}, true
	case *sdk.EmbeddedResource:
		if c.Resource != nil {
			return tools.Content{
				Type: "resource", URI: c.Resource.URI, Text: c.Resource.Text,
				Data: c.Resource.Blob, MediaType: c.Resource.MIMEType,
			}, true
		}
	}
	return tools.Content{}, false
}
