package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"path"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
)

// result is the outcome of a tool call: content, or questions, or a task that has not ended.
type result struct {
	out    any  // the structured content, a JSON object; nil means none
	text   any  // the text; nil means out
	failed bool // the call is an error
	images []mcp.Content
	links  []resourceLink
	value  json.RawMessage // the program's result, if its task succeeded and the result is complete

	// questions ask the client's user. The client then repeats the call with their responses and requestState.
	questions    mcp.InputRequestMap
	requestState string

	task *taskState // only for a call with returnTask
}

// resourceLink refers to an artifact, or to a part of a task that is too long for the result.
type resourceLink struct {
	uri, name, media string
	bytes            int64
}

func (l resourceLink) content() mcp.Content {
	media := l.media
	if t, _, err := mime.ParseMediaType(media); err != nil || !strings.Contains(t, "/") {
		media = "application/octet-stream" // the program that wrote the file chose an invalid type
	}
	return &mcp.ResourceLink{URI: l.uri, Name: path.Base(l.name), MIMEType: media, Size: &l.bytes}
}

// resourceURI returns the URI of a resource: a part of a task.
func resourceURI(taskID, part string) string {
	return (&url.URL{Scheme: "codefleet", Host: "tasks", Path: "/" + taskID + "/" + part}).String()
}

// encode returns the result as the protocol defines it. The structured content and the text say the same, because some
// clients show their model only the one and some only the other.
func (r *result) encode() (*mcp.CallToolResult, error) {
	if r.questions != nil {
		return &mcp.CallToolResult{InputRequests: r.questions, RequestState: r.requestState}, nil
	}
	source := r.text
	if source == nil {
		source = r.out
	}
	text, err := marshal(source)
	if err != nil {
		return nil, err
	}
	out := &mcp.CallToolResult{IsError: r.failed, Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}
	if r.out != nil {
		structure, err := marshal(r.out)
		if err != nil {
			return nil, err
		}
		out.StructuredContent = json.RawMessage(structure)
	}
	out.Content = append(out.Content, r.images...)
	for _, l := range r.links {
		out.Content = append(out.Content, l.content())
	}
	return out, nil
}

// marshal encodes v for a model. It does not escape <, > and &.
func marshal(v any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}

// failure is the text of a call that failed before it had a task's result. It is not structured content, which
// must conform to the tool's output schema: clients that check it would show their own error instead.
type failure struct {
	Success    bool   `json:"success"`
	Result     any    `json:"result"`
	Output     string `json:"output"`
	Error      string `json:"error"`
	ErrorCode  string `json:"error_code"`
	RetryAfter int    `json:"retry_after_s,omitempty"`
}

// maxErrorText limits the message of an error, and its hint, in bytes of JSON: both may quote an argument.
const maxErrorText = 1500

// errorResult returns the result for an error of the fleet or of the arguments.
func errorResult(err error) *result {
	f := failure{Error: textMiddle(err.Error(), maxErrorText), ErrorCode: errcode.Unavailable}
	if e, ok := errors.AsType[*client.APIError](err); ok {
		f.ErrorCode, f.RetryAfter = e.Code, e.RetryAfter
		f.Error = textMiddle(strings.TrimPrefix(e.Error(), e.Code+": "), maxErrorText)
		hint := textMiddle(e.Hint, maxErrorText)
		if e.Status != 0 { // the fleet's error, not the bridge's
			hint = cmp.Or(errcode.Next(e.Code).Tool, hint)
		}
		if hint != "" {
			f.Error += " (" + hint + ")"
		}
	}
	return &result{text: f, failed: true}
}

// badArgument returns the error for an invalid argument.
func badArgument(format string, args ...any) error {
	return &client.APIError{Code: errcode.BadArguments, Message: fmt.Sprintf(format, args...)}
}

// errUnavailable replaces errors that could reveal the fleet's address to a remote caller.
var errUnavailable = errors.New("the fleet does not respond: try again")

// errTooLarge is the error of a resource above maxResource.
var errTooLarge = errors.New("the resource is larger than 8 MiB: have a program return a part of it")

// publicError returns the error to show to the caller. It logs an error that it replaces.
func (b *Bridge) publicError(ctx context.Context, req *mcp.CallToolRequest, err error) error {
	if _, ok := errors.AsType[*client.APIError](err); ok || !remote(req.Extra) || ctx.Err() != nil {
		return err
	}
	b.o.Log.WarnContext(ctx, "tool call failed", "tool", req.Params.Name, "error", err)
	return errUnavailable
}

// publicMessage returns the message of a protocol error. It hides errors that could reveal the fleet's address.
func publicMessage(err error) string {
	if _, ok := errors.AsType[*client.APIError](err); ok || errors.Is(err, errTooLarge) {
		return err.Error()
	}
	return errUnavailable.Error()
}
