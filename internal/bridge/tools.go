package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/strictjson"
)

// toolSet holds the tools of one MCP server.
type toolSet struct {
	*principal
	server  *mcp.Server
	profile string

	mu        sync.Mutex
	submitted map[string]handler // tools that submit a task, by name
}

// tool describes one tool.
type tool struct {
	name, title, text string
	scope             string // required to see and to call the tool
	compact           bool   // the compact profile has it, too
	submits           bool   // it submits a task, which may be returned instead of a result (taskext.go)
	hints             mcp.ToolAnnotations
	out               *jsonschema.Schema // of the result
}

// call is one call of a tool.
type call struct {
	*principal
	req        *mcp.CallToolRequest
	begun      time.Time
	returnTask bool // the client accepts a task instead of a result
}

// handler handles a call. errorResult turns its errors into results.
type handler func(context.Context, *call) (*result, error)

// readsOnly are the hints of tools that change nothing.
var readsOnly = mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(false)}

// addTool adds one tool, if the profile contains it and the token may call it.
func addTool[In any](ts *toolSet, t tool, handle func(context.Context, *call, In) (*result, error)) {
	if !ts.may(t.scope) || (ts.profile == Compact && !t.compact) {
		return
	}
	in := schemaOf[In]()
	in.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}} // refuse misspelled arguments
	if wait := in.Properties["wait_ms"]; wait != nil {
		wait.Description = ts.b.waits().Replace(wait.Description)
	}
	check, err := in.Resolve(nil)
	if err != nil {
		panic(err) // In is a type of this package
	}
	def := &mcp.Tool{Name: t.name, Title: t.title, Description: t.text, Annotations: &t.hints, InputSchema: in}
	if ts.profile != Compact && t.out != nil {
		def.OutputSchema = t.out
	}
	h := func(ctx context.Context, c *call) (*result, error) {
		var in In
		if err := decode(c.req.Params.Arguments, check, &in); err != nil {
			return nil, err
		}
		return handle(ctx, c, in)
	}
	if t.submits {
		ts.setSubmitted(t.name, h)
	}
	ts.server.AddTool(def, ts.toolHandler(h))
}

// toolHandler returns h as the SDK expects it.
func (p *principal) toolHandler(h handler) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return p.handle(ctx, &call{principal: p, req: req, begun: time.Now()}, h).encode()
	}
}

// handle invokes h if the fleet responds, and turns errors into results.
func (p *principal) handle(ctx context.Context, c *call, h handler) *result {
	err := p.reach(ctx)
	var r *result
	if err == nil {
		r, err = h(ctx, c)
		p.noteAway(ctx, err)
	}
	if err != nil {
		return errorResult(p.b.publicError(ctx, c.req, err))
	}
	return r
}

// setSubmitted sets the handler of a tool that submits a task. A nil handler removes it.
func (ts *toolSet) setSubmitted(name string, h handler) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if h == nil {
		delete(ts.submitted, name)
	} else {
		ts.submitted[name] = h
	}
}

// decode checks the arguments of a call and unmarshals them into in. The SDK would turn their numbers into floats.
func decode(raw json.RawMessage, check *jsonschema.Resolved, in any) error {
	if len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	// Refuse an argument that is given twice: some servers use the first value, and others the last.
	if err := strictjson.Check(raw); err != nil {
		return badArgument("arguments: %v", err)
	}
	if err := noEmptySelector(raw); err != nil {
		return err
	}
	if bytes.Contains(raw, []byte("null")) {
		var err error
		if raw, err = withoutNulls(raw, check.Schema(), ""); err != nil {
			return err
		}
	}
	var v any
	err := json.Unmarshal(raw, &v)
	if err == nil {
		if err := check.Validate(v); err != nil {
			return badArgument("%s", argumentProblem(err))
		}
	}
	if err == nil {
		err = strictjson.DecodeOpen(raw, in) // reads whole numbers in each form, such as 1e3
	}
	if err != nil {
		return badArgument("arguments: %v", err)
	}
	return nil
}

// argumentProblem words an error of the validator, which begins with the places in the schema that it has passed:
// "validating root: validating /properties/files: validating /properties/files/items: …" is about files[].
func argumentProblem(err error) string {
	at, problem := "", err.Error()
	for strings.HasPrefix(problem, "validating ") {
		place, rest, ok := strings.Cut(strings.TrimPrefix(problem, "validating "), ": ")
		if !ok {
			break
		}
		at, problem = strings.TrimPrefix(place, "root"), rest
	}
	for _, keyword := range []string{"type: ", "required: "} {
		problem = strings.TrimPrefix(problem, keyword)
	}
	name := strings.TrimPrefix(strings.NewReplacer("/properties/", ".", "/items", "[]").Replace(at), ".")
	if name != "" {
		problem = name + ": " + problem
	}
	return "arguments: " + problem
}

// selectors are the arguments that narrow what a call does, or identify it.
var selectors = []string{
	"workspace", "session", "tools", "idempotency_key", "source", "filter", "cause", "if_version",
}

// noEmptySelector refuses an empty selector: the call would be about the default, or about everything.
func noEmptySelector(raw json.RawMessage) error {
	var given map[string]json.RawMessage
	if json.Unmarshal(raw, &given) != nil {
		return nil //nolint:nilerr // it is not an object, which the validator reports
	}
	for _, name := range selectors {
		if v := string(given[name]); v == `""` || strings.HasPrefix(v, "[") && strings.Trim(v, "[] \n\r\t") == "" {
			return badArgument("%s is empty: leave it out, or give it a value", name)
		}
	}
	return nil
}

// withoutNulls removes the optional members of an object that are null, because many clients send null for an argument
// that they leave out. It returns an error for a required member that is null. at is the object's path.
func withoutNulls(raw json.RawMessage, s *jsonschema.Schema, at string) (json.RawMessage, error) {
	var object map[string]json.RawMessage
	if len(s.Properties) == 0 || json.Unmarshal(raw, &object) != nil {
		return itemsWithoutNulls(raw, s, at)
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		member := s.Properties[name]
		if member == nil { // unknown, which the validator reports
			continue
		}
		if string(object[name]) != "null" {
			var err error
			if object[name], err = withoutNulls(object[name], member, at+name+"."); err != nil {
				return nil, err
			}
			continue
		}
		if slices.Contains(s.Required, name) {
			return nil, badArgument("arguments: %s is required and must not be null", at+name)
		}
		delete(object, name)
	}
	return json.Marshal(object)
}

// itemsWithoutNulls applies withoutNulls to the items of an array. It returns other values unchanged.
func itemsWithoutNulls(raw json.RawMessage, s *jsonschema.Schema, at string) (json.RawMessage, error) {
	var list []json.RawMessage
	if s.Items == nil || json.Unmarshal(raw, &list) != nil || list == nil {
		return raw, nil //nolint:nilerr // not a list with a schema for its items; the validator judges it
	}
	for i, item := range list {
		name := fmt.Sprintf("%s[%d]", strings.TrimSuffix(at, "."), i)
		if string(item) == "null" {
			return nil, badArgument("arguments: %s must not be null", name)
		}
		var err error
		if list[i], err = withoutNulls(item, s.Items, name+"."); err != nil {
			return nil, err
		}
	}
	return json.Marshal(list)
}

// schemaOf returns the schema of T, a type of this package. The schema allows additional fields.
func schemaOf[T any]() *jsonschema.Schema {
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		// By default, the schema that permits any value is `true`, which MCP does not allow for a property. With a
		// description it is an object.
		reflect.TypeFor[json.RawMessage](): {Description: "any JSON value"},
	}})
	if err != nil {
		panic(fmt.Sprintf("schema of %s: %v", reflect.TypeFor[T](), err))
	}
	if s.Properties != nil {
		s.AdditionalProperties = nil
	}
	return s
}
