package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/form"
)

// hideFunc replaces private values in a text, which may be a JSON value.
type hideFunc func(ctx context.Context, text string) string

// hider returns the function that replaces private values for the principal, or nil if the principal may see them. If
// the bridge does not know yet what the fleet demands, or last asked longer than Options.Recheck ago, hider asks the
// fleet. If the fleet has never responded, the bridge's own settings decide. Results contain nothing of tasks then.
func (p *principal) hider(ctx context.Context) hideFunc {
	if p.b.o.Privacy == nil {
		return nil
	}
	id := p.identity.Load()
	old := time.Since(time.Unix(0, p.asked.Load())) >= p.b.o.Recheck
	if (id == nil || old) && !p.away.Load() && p.identifyOnce(context.WithoutCancel(ctx)) == nil {
		id = p.identity.Load()
	}
	if id == nil {
		id = &client.Identity{}
	}
	return p.b.o.Privacy(id.Tenant, id.Privacy)
}

// hidden returns a text without private values, if they are hidden from the principal. A text must pass hidden before
// it is cut: a part of a value, or a number without the name of its member, would not be recognized.
func (p *principal) hidden(ctx context.Context, text string) string {
	if hide := p.hider(ctx); hide != nil {
		return hide(ctx, text)
	}
	return text
}

// hiddenTexts returns a task's result, without private values in the texts that view cuts.
func (p *principal) hiddenTexts(ctx context.Context, r client.Result) *client.Result {
	for _, text := range []*string{&r.Output, &r.Stderr, &r.Code} {
		*text = p.hidden(ctx, *text)
	}
	if r.Error != nil {
		failure := *r.Error
		failure.Message, failure.Cause = p.hidden(ctx, failure.Message), p.hidden(ctx, failure.Cause)
		r.Error = &failure
	}
	return &r
}

// hideResults is the outermost middleware of requests except survive: it replaces private values in what clients
// receive.
func (p *principal) hideResults(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		r, err := next(ctx, method, req)
		hide := p.hider(ctx)
		if hide == nil {
			return r, err
		}
		if err != nil {
			return nil, hideError(ctx, hide, err)
		}
		if err := hideResult(ctx, hide, r); err != nil {
			return nil, fmt.Errorf("replace private values in the result: %w", err)
		}
		return r, nil
	}
}

// hideMessages is the middleware of the messages that the bridge sends by itself.
func (p *principal) hideMessages(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch params := req.GetParams().(type) {
		case *mcp.ProgressNotificationParams:
			if hide := p.hider(ctx); hide != nil {
				params.Message = hide(ctx, params.Message)
			}
		case *mcp.ElicitParams:
			if hide := p.hider(ctx); hide != nil {
				if err := hideForm(ctx, hide, params); err != nil {
					return nil, err
				}
			}
		}
		return next(ctx, method, req)
	}
}

func hideResult(ctx context.Context, hide hideFunc, r mcp.Result) error {
	var err error
	switch r := r.(type) {
	case *mcp.CallToolResult:
		r.StructuredContent, err = hideContent(ctx, hide, r.Content, r.StructuredContent)
		err = errors.Join(err, hideForms(ctx, hide, r.InputRequests))
	case *callResult:
		r.StructuredContent, err = hideContent(ctx, hide, r.Content, r.StructuredContent)
	case *taskResult:
		r.StatusMessage = hide(ctx, r.StatusMessage)
		err = hideForms(ctx, hide, r.InputRequests)
		if r.Result != nil {
			err = errors.Join(err, hideResult(ctx, hide, r.Result))
		}
	case *mcp.ReadResourceResult:
		for _, c := range r.Contents {
			hideResource(ctx, hide, c)
		}
	case *mcp.ListPromptsResult:
		for i, p := range r.Prompts {
			copied := *p
			copied.Description = hide(ctx, p.Description)
			r.Prompts[i] = &copied
		}
	case *mcp.GetPromptResult:
		r.Description = hide(ctx, r.Description)
		for _, m := range r.Messages {
			if _, err := hideContent(ctx, hide, []mcp.Content{m.Content}, nil); err != nil {
				return err
			}
		}
	}
	return err
}

// hideContent replaces private values in the texts of the blocks, and returns the structured content without them.
func hideContent(ctx context.Context, hide hideFunc, blocks []mcp.Content, structured any) (any, error) {
	for _, b := range blocks {
		switch b := b.(type) {
		case *mcp.TextContent:
			b.Text = hide(ctx, b.Text)
		case *mcp.ResourceLink:
			b.Name, b.Title, b.Description = hide(ctx, b.Name), hide(ctx, b.Title), hide(ctx, b.Description)
			b.URI = hideURI(ctx, hide, b.URI)
		case *mcp.EmbeddedResource:
			hideResource(ctx, hide, b.Resource)
		}
	}
	if structured == nil {
		return nil, nil
	}
	data, err := json.Marshal(structured)
	if err != nil {
		return nil, err
	}
	hidden := json.RawMessage(hide(ctx, string(data)))
	if !json.Valid(hidden) {
		return nil, errors.New("the result is not valid JSON without its values")
	}
	return hidden, nil
}

func hideResource(ctx context.Context, hide hideFunc, c *mcp.ResourceContents) {
	if c == nil {
		return
	}
	c.URI, c.Text = hideURI(ctx, hide, c.URI), hide(ctx, c.Text)
	if utf8.Valid(c.Blob) {
		c.Blob = []byte(hide(ctx, string(c.Blob)))
	}
}

// hideURI returns the URI with privacy tokens in place of private values, which may be percent-encoded. A URI with
// privacy tokens cannot be read.
func hideURI(ctx context.Context, hide hideFunc, uri string) string {
	unescaped, err := url.PathUnescape(uri)
	if err != nil {
		unescaped = uri
	}
	hidden := hide(ctx, unescaped)
	if hidden == unescaped {
		return uri
	}
	return (&url.URL{Path: hidden}).EscapedPath()
}

func hideForms(ctx context.Context, hide hideFunc, forms mcp.InputRequestMap) (err error) {
	for _, f := range forms {
		if params, ok := f.(*mcp.ElicitParams); ok {
			err = errors.Join(err, hideForm(ctx, hide, params))
		}
	}
	return err
}

// hideForm replaces private values in the texts of a form. It sets a copy of the form's schema, and does not change the
// schema itself. It refuses a form with private values in the names or the choices of its fields, because the answer
// would have privacy tokens in place of them.
func hideForm(ctx context.Context, hide hideFunc, params *mcp.ElicitParams) error {
	params.Message, params.URL = hide(ctx, params.Message), hideURI(ctx, hide, params.URL)
	if params.RequestedSchema == nil {
		return nil
	}
	data, err := json.Marshal(params.RequestedSchema)
	if err != nil {
		return err
	}
	parsed, err := form.Parse(data)
	if err != nil {
		return err
	}
	var values []string // what the answer may contain
	for _, f := range parsed.Fields {
		values = append(values, f.Name)
		for _, c := range f.Choices {
			values = append(values, c.Value)
		}
	}
	for _, v := range values {
		if hide(ctx, v) != v {
			return errors.New("the form has personal data or a key in the names or the choices of its fields")
		}
	}
	params.RequestedSchema = json.RawMessage(hide(ctx, string(data)))
	return nil
}

func hideError(ctx context.Context, hide hideFunc, err error) error {
	message := err.Error()
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		out := *e
		out.Message = hide(ctx, e.Message)
		if json.Valid(e.Data) {
			out.Data = json.RawMessage(hide(ctx, string(e.Data)))
		}
		return &out
	}
	if hidden := hide(ctx, message); hidden != message {
		return errors.New(hidden)
	}
	return err
}
