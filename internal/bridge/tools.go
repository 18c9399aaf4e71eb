package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
)

// Scopes of tokens, as the fleet names them.
const (
	scopeSubmit = "submit"
	scopeRead   = "read"
)

// tool is what a tool of the bridge says of itself.
type tool struct {
	name, title, text string
	scope             string // that a token needs to see and call it
	compact           bool   // it belongs to the compact profile, too
	hints             mcp.ToolAnnotations
	out               *jsonschema.Schema
}

// call is one call of a tool.
type call struct {
	*principal
	req   *mcp.CallToolRequest
	begun time.Time
}

// answer is what a tool says.
type answer struct {
	out    any    // an object
	text   any    // what stands in text, when that is not out
	failed bool   // it is an error
	links  []link // to what was too long

	ask   mcp.InputRequestMap // instead of all that: what the client is to ask its user
	state string              // of the call that it then makes again
}

// addTools adds the tools of a profile that the token may use.
func (p *principal) addTools(s *mcp.Server, profile string) {
	p.addTaskTools(s, profile)
	p.addCatalogue(s, profile)
	p.addState(s, profile)
	s.AddReceivingMiddleware(p.middleware)
	if profile == Full {
		p.expose(s)
	}
}

// addTool adds one tool if the profile has it and the token may use it. What handle returns as an
// error becomes an answer that says so in text and in structure.
func addTool[In any](p *principal, s *mcp.Server, profile string, t tool, handle func(context.Context, *call, In) (*answer, error)) {
	if !p.may(t.scope) || (profile == Compact && !t.compact) {
		return
	}
	in := schemaOf[In]()
	in.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}} // a misspelt argument is an error
	check, err := in.Resolve(nil)
	if err != nil {
		panic(err) // a type of this package
	}
	def := &mcp.Tool{Name: t.name, Title: t.title, Description: t.text, Annotations: &t.hints, InputSchema: in}
	if profile != Compact && t.out != nil {
		def.OutputSchema = t.out
	}
	s.AddTool(def, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in In
		err := decode(req.Params.Arguments, check, &in)
		var a *answer
		if err == nil {
			a, err = handle(ctx, &call{p, req, time.Now()}, in)
		}
		if err != nil {
			a = refusal(p.b.hide(ctx, req, err))
		}
		return a.result()
	})
}

// decode reads arguments as they came: the SDK would read numbers as floats.
func decode(raw json.RawMessage, check *jsonschema.Resolved, in any) error {
	if len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return badArgument("arguments: %v", err)
	}
	if err := check.Validate(v); err != nil {
		return badArgument("arguments: %v", err)
	}
	if err := json.Unmarshal(raw, in); err != nil {
		return badArgument("arguments: %v", err)
	}
	return nil
}

// schemaOf is the schema of a type. Fields may be added to it later.
func schemaOf[T any]() *jsonschema.Schema {
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {}, // any value
	}})
	if err != nil {
		panic(err) // a type of this package
	}
	if s.Properties != nil {
		s.AdditionalProperties = nil
	}
	return s
}

// result is the answer as the protocol has it: everything in structure and everything in text, as
// some clients show their model the one and some the other.
func (a *answer) result() (*mcp.CallToolResult, error) {
	if a.ask != nil {
		return &mcp.CallToolResult{InputRequests: a.ask, RequestState: a.state}, nil
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

// marshal is JSON as a model reads it: without escapes for <, > and &.
func marshal(v any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}

// failure is the structure of an answer that is an error of the call itself.
type failure struct {
	Success    bool   `json:"success"`
	Result     any    `json:"result"`
	Output     string `json:"output"`
	Error      string `json:"error"`
	ErrorCode  string `json:"error_code"`
	RetryAfter int    `json:"retry_after_s,omitempty"`
}

// overHTTP reports whether the caller is somewhere else, not the person who started this process.
func overHTTP(extra *mcp.RequestExtra) bool { return extra != nil && extra.Header != nil }

// errSilentFleet is what a caller over HTTP hears of an error that is not the fleet's own.
var errSilentFleet = errors.New("the fleet does not answer: try again")

// hide keeps where the fleet is from callers over HTTP, and puts it into the log.
func (b *Bridge) hide(ctx context.Context, req *mcp.CallToolRequest, err error) error {
	if _, said := errors.AsType[*client.APIError](err); said || !overHTTP(req.Extra) || ctx.Err() != nil {
		return err
	}
	b.o.Log.WarnContext(ctx, "call not carried out", "tool", req.Params.Name, "error", err)
	return errSilentFleet
}

// message is the text of an error of the protocol, under the same rule.
func message(err error) string {
	if _, said := errors.AsType[*client.APIError](err); said || errors.Is(err, errTooLarge) {
		return err.Error()
	}
	return errSilentFleet.Error()
}

// refusal is the answer for an error of the fleet, or of the arguments.
func refusal(err error) *answer {
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

// badArgument is an error of the arguments that their schema does not show.
func badArgument(format string, args ...any) error {
	return &client.APIError{Code: errcode.BadArguments, Message: fmt.Sprintf(format, args...)}
}
