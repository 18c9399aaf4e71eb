package bridge

import (
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

// answer is the outcome of a call of a tool.
type answer struct {
	out    any  // a JSON object
	text   any  // replaces out in the text; nil: the text is out
	failed bool // the call is an error
	links  []link
	value  json.RawMessage // of a task that succeeded and is not truncated: the program's result

	// In place of all that: questions to the client's user, and the state with which the client repeats the
	// call; or, if the call has returnTask, a task that has not ended.
	questions    mcp.InputRequestMap
	requestState string
	task         *taskState
}

// link refers to a resource that is too long for an answer.
type link struct {
	uri, name, media string
	bytes            int64
}

func (l link) content() mcp.Content {
	media := l.media
	if t, _, err := mime.ParseMediaType(media); err != nil || !strings.Contains(t, "/") {
		media = "application/octet-stream" // the program that wrote the file chose an invalid one
	}
	return &mcp.ResourceLink{URI: l.uri, Name: path.Base(l.name), MIMEType: media, Size: &l.bytes}
}

// resourceURI returns the URI of a part of a task as a resource.
func resourceURI(taskID, part string) string {
	return (&url.URL{Scheme: "codefleet", Host: "tasks", Path: "/" + taskID + "/" + part}).String()
}

// result returns the answer in the protocol's form. The structured content and the text are equal, because
// some clients show their model only the one and some only the other.
func (a *answer) result() (*mcp.CallToolResult, error) {
	if a.questions != nil {
		return &mcp.CallToolResult{InputRequests: a.questions, RequestState: a.requestState}, nil
	}
	structure, err := marshal(a.out)
	if err != nil {
		return nil, err
	}
	text := structure
	if a.text != nil {
		if text, err = marshal(a.text); err != nil {
			return nil, err
		}
	}
	r := &mcp.CallToolResult{
		IsError: a.failed, StructuredContent: json.RawMessage(structure),
		Content: []mcp.Content{&mcp.TextContent{Text: string(text)}},
	}
	for _, l := range a.links {
		r.Content = append(r.Content, l.content())
	}
	return r, nil
}

// marshal encodes v for a model: without escapes for <, > and &.
func marshal(v any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}

// failure is the structure of an answer whose call failed itself, as opposed to its task.
type failure struct {
	Success    bool   `json:"success"`
	Result     any    `json:"result"`
	Output     string `json:"output"`
	Error      string `json:"error"`
	ErrorCode  string `json:"error_code"`
	RetryAfter int    `json:"retry_after_s,omitempty"`
}

// errorAnswer returns the answer for an error of the fleet or of the arguments.
func errorAnswer(err error) *answer {
	f := failure{Error: err.Error(), ErrorCode: errcode.Unavailable}
	if e, ok := errors.AsType[*client.APIError](err); ok {
		f.ErrorCode, f.RetryAfter = e.Code, e.RetryAfter
		f.Error = strings.TrimPrefix(e.Error(), e.Code+": ")
		if e.Hint != "" {
			f.Error += " (" + e.Hint + ")"
		}
	}
	return &answer{out: f, failed: true}
}

// badArgument returns an error of an argument.
func badArgument(format string, args ...any) error {
	return &client.APIError{Code: errcode.BadArguments, Message: fmt.Sprintf(format, args...)}
}

// remote reports whether the caller is connected over HTTP. A caller over standard input is the person who
// started this process.
func remote(extra *mcp.RequestExtra) bool { return extra != nil && extra.Header != nil }

// errUnavailable replaces errors that could tell a remote caller where the fleet is.
var errUnavailable = errors.New("the fleet does not respond: try again")

// publicError returns the error that the caller may see, and logs the one that it may not.
func (b *Bridge) publicError(ctx context.Context, req *mcp.CallToolRequest, err error) error {
	if _, ok := errors.AsType[*client.APIError](err); ok || !remote(req.Extra) || ctx.Err() != nil {
		return err
	}
	b.o.Log.WarnContext(ctx, "tool call failed", "tool", req.Params.Name, "error", err)
	return errUnavailable
}

// publicMessage returns the text of an error of the protocol, by the rule of publicError.
func publicMessage(err error) string {
	if _, ok := errors.AsType[*client.APIError](err); ok || errors.Is(err, errTooLarge) {
		return err.Error()
	}
	return errUnavailable.Error()
}
