package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/tools"
)

// ToolInfo describes a tool to the programs that call it and to the models that write them.
type ToolInfo struct {
	// Name is a letter followed by letters, digits, - and _. It has at most 64 characters.
	Name string
	// Description says in its first sentence what the tool does, and then what else a caller has to know. The fleet
	// searches descriptions to select tools.
	Description string
	Title       string
	// Annotations declare the tool's effects. Unless they declare otherwise, the tool counts as destructive: the
	// fleet's setting tools.destructive applies to its calls.
	Annotations ToolAnnotations
	// Timeout is the time limit of a call. The default is one minute, the maximum ten minutes.
	Timeout time.Duration
	// Expose also offers the tool to the tenant's clients of the MCP bridge, as SERVER__NAME.
	Expose bool
}

// ToolFunc is a Go function that can be registered as a tool. NewTool returns one.
type ToolFunc struct {
	def  tools.OfferedTool
	hash string
	call func(ctx context.Context, args json.RawMessage) (any, error)
	err  error
}

// NewTool makes a tool from a Go function. In is a struct whose fields are the parameters, in order. Out is any type
// that encodes as JSON. The JSON Schemas are derived from the types: the tag `json` sets the name and options of a
// field, and the tag `jsonschema` its description. If fn returns an error, the program gets an exception with the
// error's text. If fn panics, the exception does not have the panic's text.
//
// fn is called from several goroutines at once. Its context ends when the caller stops waiting. A call that was lost in
// transit is retried only if the annotations ReadOnly or Idempotent allow it.
//
// RegisterTools reports errors in the types and the name.
func NewTool[In, Out any](info ToolInfo, fn func(ctx context.Context, in In) (Out, error)) ToolFunc {
	in, err1 := schemaOf[In]()
	out, err2 := schemaOf[Out]()
	t := ToolFunc{
		def: tools.OfferedTool{TimeoutS: info.Timeout.Seconds(), Expose: info.Expose, Definition: tools.Definition{
			Name:        info.Name,
			Title:       info.Title,
			Description: info.Description,
			Annotations: tools.Annotations(info.Annotations),
		}},
	}
	t.err = errors.Join(err1, err2)
	if t.err != nil {
		t.err = fmt.Errorf("tool %q: %w", info.Name, t.err)
		return t
	}
	wrapped := out.Type != "object" && !permitsAnyValue(out)
	if wrapped {
		out = &jsonschema.Schema{
			Type: "object", Properties: map[string]*jsonschema.Schema{"result": out}, Required: []string{"result"},
			Extra: map[string]any{"x-fastmcp-wrap-result": true},
		}
	}
	t.def.InputSchema, err1 = json.Marshal(in)
	if !permitsAnyValue(out) {
		t.def.OutputSchema, err2 = json.Marshal(out)
	}
	t.err = errors.Join(err1, err2, t.def.Check())
	t.hash = t.def.Hash()
	t.call = func(ctx context.Context, args json.RawMessage) (any, error) {
		var v In
		if err := json.Unmarshal(args, &v); err != nil {
			return nil, fmt.Errorf("decode arguments: %w", err)
		}
		result, err := fn(ctx, v)
		if wrapped && err == nil {
			return map[string]any{"result": result}, nil
		}
		return result, err
	}
	return t
}

// schemaOf returns the schema of a Go type. The schema of json.RawMessage permits every value.
func schemaOf[T any]() (*jsonschema.Schema, error) {
	return jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[[]byte]():          {Type: "string", ContentEncoding: "base64"},
	}})
}

// permitsAnyValue reports whether a schema permits every value.
func permitsAnyValue(s *jsonschema.Schema) bool {
	data, err := json.Marshal(s)
	return err == nil && (string(data) == "true" || string(data) == "{}")
}

// RegisterOptions configure registered tools. The zero value is useful.
type RegisterOptions struct {
	// Title and Description describe the server to people and to the fleet's search for tools. If several processes
	// register the same server, those of the process that started last are used; processes
	// that set neither are ignored.
	Title, Description string
	// Concurrency is how many calls run at once; further calls wait. The default is 16.
	Concurrency int
	// Log receives panics of tools. The default is slog.Default.
	Log *slog.Logger
}

// Registration is a set of tools that this process serves.
type Registration struct{ stop func() }

// Close removes the tools from the catalogue, and waits up to ten seconds for calls in progress.
func (r *Registration) Close() { r.stop() }

// RegisterTool registers one Go function as a tool, like RegisterTools.
func RegisterTool[In, Out any](
	ctx context.Context, c *Client, server string, info ToolInfo, fn func(context.Context, In) (Out, error),
) (*Registration, error) {
	return c.RegisterTools(ctx, RegisterOptions{}, server, NewTool(info, fn))
}

// RegisterTools serves functions of this process as tools of the caller's tenant, under the name of a server: a
// lower-case letter followed by lower-case letters, digits and _. From the next task on, programs of the tenant can
// import them like other tools:
//
//	from servers.crm import find_customer
//
// The fleet checks, counts and records their calls like those of other tools. The tools exist until Close, or until the
// client or the process ends, which the fleet notices within ten seconds. Several processes may register the same tools
// and share the calls. If two processes define a tool differently, the definition of the process that started last is
// used, and the other process refuses calls of the tool.
//
// If the fleet itself has a server of that name, the tools are listed as broken. A tool's response is at most 1 MiB of
// JSON. A tenant can have at most 500 registered tools in 64 registrations.
//
// The client needs a nats:// or tls:// address and the credentials of the tenant or the fleet; over HTTP the error has
// the code "nats_only". ctx bounds only the registration.
func (c *Client) RegisterTools(
	ctx context.Context, o RegisterOptions, server string, list ...ToolFunc,
) (*Registration, error) {
	d, ok := c.conn.(*natsConn)
	if !ok {
		return nil, &APIError{
			Code: errcode.NATSOnly, Status: http.StatusNotImplemented,
			Message: "tools can be registered over NATS only",
			Hint:    "create the client with the options that LocateNATS returns",
		}
	}
	if err := checkTools(server, list); err != nil {
		return nil, fmt.Errorf("register tools of %s: %w", server, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	about := tools.About{Title: o.Title, Description: o.Description}
	offer := tools.Offer{Server: server, About: about.Sanitize(), Started: time.Now().UTC()}
	names := make([]jobs.ToolName, len(list))
	for i, t := range list {
		offer.Tools = append(offer.Tools, t.def)
		names[i] = jobs.ToolName{Server: server, Tool: t.def.Name}
	}
	offered, err := json.Marshal(offer)
	if err != nil {
		return nil, fmt.Errorf("register tools of %s: %w", server, err)
	}
	s := toolServer{list: list, log: o.Log}
	stop, err := d.jobs.ServeTools(jobs.ToolService{
		Tenant: d.tenant, Instance: strings.ToLower(rand.Text()), Tools: names, Offer: offered,
		Concurrency: o.Concurrency, Handle: s.handle,
	})
	if err != nil {
		return nil, err
	}
	return &Registration{stop: stop}, nil
}

func checkTools(server string, list []ToolFunc) error {
	errs := []error{tools.CheckOfferedServer(server)}
	if len(list) == 0 {
		errs = append(errs, errors.New("the list of tools is empty"))
	}
	names := map[string]bool{}
	for _, t := range list {
		errs = append(errs, t.err)
		if names[t.def.Name] {
			errs = append(errs, fmt.Errorf("tool %q is listed twice", t.def.Name))
		}
		names[t.def.Name] = true
	}
	return errors.Join(errs...)
}

// toolServer serves calls of registered tools.
type toolServer struct {
	list []ToolFunc
	log  *slog.Logger
}

// handle responds to a call of a tool. If the response is too large or cannot be encoded, it responds with an error.
func (s toolServer) handle(ctx context.Context, name jobs.ToolName, data []byte) []byte {
	out, err := encode(s.respond(ctx, name, data))
	if err == nil && len(out) <= jobs.MaxToolResponse {
		return out
	}
	resp := tools.OfferedResponse{
		Code:  tools.OfferLarge,
		Error: fmt.Sprintf("the response is %d bytes; the limit is %d", len(out), jobs.MaxToolResponse),
	}
	if err != nil {
		resp = failedResponse("encode response", err)
	}
	out, err = encode(resp)
	if err != nil {
		panic("client: encode response: " + err.Error()) // resp contains only strings
	}
	return out
}

func failedResponse(action string, err error) tools.OfferedResponse {
	return tools.OfferedResponse{Code: tools.OfferFailed, Error: action + ": " + err.Error()}
}

func (s toolServer) respond(ctx context.Context, name jobs.ToolName, data []byte) tools.OfferedResponse {
	// ServeTools passes on only calls of tools in the list.
	i := slices.IndexFunc(s.list, func(t ToolFunc) bool { return t.def.Name == name.Tool })
	var q tools.OfferedCall
	if err := json.Unmarshal(data, &q); err != nil {
		return failedResponse("decode call", err)
	}
	if q.Hash != "" && q.Hash != s.list[i].hash {
		return tools.OfferedResponse{
			Code: tools.OfferChanged, Error: "this process has a different definition of the tool",
		}
	}
	v, err := s.call(ctx, s.list[i], q.Args)
	if err != nil {
		return tools.OfferedResponse{Code: tools.OfferFailed, Error: err.Error()}
	}
	value, err := encode(v)
	if err != nil {
		return failedResponse("encode result", err)
	}
	return tools.OfferedResponse{Value: value}
}

// call invokes a tool. It turns a panic into an error.
func (s toolServer) call(ctx context.Context, t ToolFunc, args json.RawMessage) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.ErrorContext(ctx, "tool panicked", "tool", t.def.Name, "panic", fmt.Sprint(p), "stack",
				string(debug.Stack()))
			v, err = nil, errors.New("the tool panicked; the log of its process has the stack trace")
		}
	}()
	return t.call(ctx, args)
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}
