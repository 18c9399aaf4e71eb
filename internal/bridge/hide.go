package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// hideFunc replaces private values in a text, which may be a JSON value.
type hideFunc func(ctx context.Context, text string) string

// hider returns what replaces private values for the principal, or nil if they are shown. A bridge that began before
// the fleet responded learns here what the fleet demands. A response without the fleet has no values.
func (p *principal) hider(ctx context.Context) hideFunc {
	if p.b.o.Privacy == nil {
		return nil
	}
	id := p.identity.Load()
	if id == nil && !p.away.Load() && p.introduce(ctx) == nil {
		id = p.identity.Load()
	}
	if id == nil {
		id = &client.Identity{}
	}
	return p.b.o.Privacy(id.Tenant, id.Privacy)
}

// hideResults is the outermost middleware of requests: it replaces private values in what clients receive.
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
				params.Message = hide(ctx, params.Message)
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
		hideForms(ctx, hide, r.InputRequests)
	case *callResult:
		r.StructuredContent, err = hideContent(ctx, hide, r.Content, r.StructuredContent)
	case *taskResult:
		r.StatusMessage = hide(ctx, r.StatusMessage)
		hideForms(ctx, hide, r.InputRequests)
		if r.Result != nil {
			err = hideResult(ctx, hide, r.Result)
		}
	case *mcp.ReadResourceResult:
		for _, c := range r.Contents {
			hideResource(ctx, hide, c)
		}
	}
	return err
}

// hideContent replaces values in the blocks, and returns the structured content without values.
func hideContent(ctx context.Context, hide hideFunc, blocks []mcp.Content, structured any) (any, error) {
	for _, b := range blocks {
		switch b := b.(type) {
		case *mcp.TextContent:
			b.Text = hide(ctx, b.Text)
		case *mcp.ResourceLink:
			b.Name, b.Title, b.Description = hide(ctx, b.Name), hide(ctx, b.Title), hide(ctx, b.Description)
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
	c.Text = hide(ctx, c.Text)
	if utf8.Valid(c.Blob) {
		c.Blob = []byte(hide(ctx, string(c.Blob)))
	}
}

func hideForms(ctx context.Context, hide hideFunc, forms mcp.InputRequestMap) {
	for _, f := range forms {
		if form, ok := f.(*mcp.ElicitParams); ok {
			form.Message = hide(ctx, form.Message)
		}
	}
}

func hideError(ctx context.Context, hide hideFunc, err error) error {
	message := err.Error()
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		out := *e
		out.Message = hide(ctx, e.Message)
		return &out
	}
	if hidden := hide(ctx, message); hidden != message {
		return errors.New(hidden)
	}
	return err
}
