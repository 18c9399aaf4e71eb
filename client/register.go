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
	// Name of the tool: a letter, then letters, digits, - and _, 64 at most.
	Name string
	// Description says what the tool does, in a sentence, and what else a caller has to know. Selection
	// searches it.
	Description string
	Title       string
	// Annotations are the tool's claims about its effects. Unless they say otherwise, the tool is treated as
	// destructive: the fleet's setting tools.destructive decides about its calls.
	Annotations ToolAnnotations
	// Timeout bounds a call, up to ten minutes; default one minute.
	Timeout time.Duration
	// Expose offers the tool to the tenant's clients of the MCP bridge as well, as SERVER__NAME.
	Expose bool
}

// ToolFunc is a Go function as a tool. NewTool returns one.
type ToolFunc struct {
	def  tools.OfferedTool
	hash string
	call func(ctx context.Context, args json.RawMessage) (any, error)
	err  error
}

// NewTool returns a function as a tool. In is a struct, whose fields are the parameters, in order; Out is any
// type that encodes as JSON. Their JSON Schemas are derived from the types: the tag `json` gives names and
// options, the tag `jsonschema` the description of a field. If fn returns an error, the program gets an
// exception with its text; if it panics, one without.
//
// fn is called from several goroutines at once. Its context ends when the caller stops waiting. A call that was
// lost in transit is retried only if the annotations allow it (ReadOnly, Idempotent).
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
	wrapped := out.Type != "object" && !anyValue(out)
	if wrapped {
		out = &jsonschema.Schema{
			Type: "object", Properties: map[string]*jsonschema.Schema{"result": out}, Required: []string{"result"},
			Extra: map[string]any{"x-fastmcp-wrap-result": true},
		}
	}
	t.def.InputSchema, err1 = json.Marshal(in)
	if !anyValue(out) {
		t.def.OutputSchema, err2 = json.Marshal(out)
	}
	t.err = errors.Join(err1, err2, t.def.Check())
	t.hash = t.def.Hash()
	t.call = func(ctx context.Context, args json.RawMessage) (any, error) {
		var v In
		if err := json.Unmarshal(args, &v); err != nil {
			return nil, fmt.Errorf("decode arguments: %w", err)
		}
		answer, err := fn(ctx, v)
		if wrapped && err == nil {
			return map[string]any{"result": answer}, nil
		}
		return answer, err
	}
	return t
}

// schemaOf returns the schema of a Go type. A json.RawMessage may be any value.
func schemaOf[T any]() (*jsonschema.Schema, error) {
	return jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[[]byte]():          {Type: "string", ContentEncoding: "base64"},
	}})
}

// anyValue reports whether a schema permits every value.
func anyValue(s *jsonschema.Schema) bool {
	data, err := json.Marshal(s)
	return err == nil && (string(data) == "true" || string(data) == "{}")
}

// RegisterOptions configure the serving of registered tools. The zero value is useful.
type RegisterOptions struct {
	// Title and Description describe the server to people, and selection searches them. If several processes
	// register the same server, those of the process that started last are used, unless it has none.
	Title, Description string
	// Concurrency is how many calls run at once; further ones wait. Default 16.
	Concurrency int
	// Log receives panics of tools. Default slog.Default.
	Log *slog.Logger
}

// Registration is a set of tools that this process serves.
type Registration struct{ stop func() }

// Close removes the tools from the catalogue. It returns when the calls in progress have finished, at the latest
// after ten seconds.
func (r *Registration) Close() { r.stop() }

// RegisterTool registers one Go function as a tool; see RegisterTools.
func RegisterTool[In, Out any](
	ctx context.Context,
	c *Client,
	server string,
	info ToolInfo,
	fn func(context.Context, In) (Out, error),
) (*Registration, error) {
	return c.RegisterTools(ctx, RegisterOptions{}, server, NewTool(info, fn))
}

// RegisterTools serves functions of this process as tools of the caller's tenant, under the name of a server: a
// lower-case letter, then lower-case letters, digits and _. From the next task on, programs of the tenant import
// them like any other tool,
//
//	from servers.crm import find_customer
//
// and the fleet checks, counts and records their calls like any other. The tools exist until Close, or until the
// client or the process ends, which the fleet notices within ten seconds. Several processes may register the same
// tools and share the calls. If two processes define a tool differently, the definition of the one that started
// last is used, and the other refuses calls of it.
//
// If the fleet itself has a server of that name, the tools are listed as broken. A response is at most one MiB of
// JSON. A tenant has at most 500 registered tools in 64 registrations.
//
// It needs a client with a nats:// or tls:// address and credentials of the tenant or the fleet; over HTTP the
// error has the code "nats_only". ctx bounds only the registration itself.
func (c *Client) RegisterTools(
	ctx context.Context,
	o RegisterOptions,
	server string,
	list ...ToolFunc,
) (*Registration, error) {
	d, ok := c.conn.(*natsConn)
	if !ok {
		return nil, &APIError{
			Code:    errcode.NATSOnly,
			Message: "tools are registered over NATS",
			Status:  http.StatusNotImplemented,
			Hint: "create the client with the nats:// address of the fleet and the tenant's credentials, as " +
				"from LocateNATS",
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
	s := served{list: list, log: o.Log}
	stop, err := d.jobs.ServeTools(jobs.ToolService{
		Tenant:      d.tenant,
		Instance:    strings.ToLower(rand.Text()),
		Tools:       names,
		Offer:       offered,
		Concurrency: o.Concurrency,
		Handle:      s.handle,
	})
	if err != nil {
		return nil, err
	}
	return &Registration{stop: stop}, nil
}

func checkTools(server string, list []ToolFunc) error {
	errs := []error{tools.CheckOfferedServer(server)}
	if len(list) == 0 {
		errs = append(errs, errors.New("no tools are given"))
	}
	seen := map[string]bool{}
	for _, t := range list {
		errs = append(errs, t.err)
		if seen[t.def.Name] {
			errs = append(errs, fmt.Errorf("tool %q: given twice", t.def.Name))
		}
		seen[t.def.Name] = true
	}
	return errors.Join(errs...)
}

// served serves calls of registered tools.
type served struct {
	list []ToolFunc
	log  *slog.Logger
}

func (s served) handle(ctx context.Context, name jobs.ToolName, data []byte) []byte {
	a := s.answer(ctx, name, data)
	out, err := encode(a)
	if err == nil && len(out) <= jobs.MaxToolResponse {
		return out
	}
	a = tools.OfferResponse{
		Code:  tools.OfferLarge,
		Error: fmt.Sprintf("the response has %d bytes, more than %d", len(out), jobs.MaxToolResponse),
	}
	if err != nil {
		a = tools.OfferResponse{Code: tools.OfferFailed, Error: "the response is not JSON: " + err.Error()}
	}
	out, err = encode(a)
	if err != nil {
		panic("client: encode response: " + err.Error()) // strings only
	}
	return out
}

func (s served) answer(ctx context.Context, name jobs.ToolName, data []byte) tools.OfferResponse {
	failed := func(err error) tools.OfferResponse {
		return tools.OfferResponse{Code: tools.OfferFailed, Error: err.Error()}
	}
	i := slices.IndexFunc(s.list, func(t ToolFunc) bool { return t.def.Name == name.Tool })
	var q tools.OfferRequest
	if err := json.Unmarshal(data, &q); err != nil {
		return failed(fmt.Errorf("decode call: %w", err))
	}
	if q.Hash != "" && q.Hash != s.list[i].hash {
		return tools.OfferResponse{Code: tools.OfferChanged, Error: "this process has another definition of the tool"}
	}
	v, err := s.call(ctx, s.list[i], q.Args)
	if err != nil {
		return failed(err)
	}
	value, err := encode(v)
	if err != nil {
		return failed(fmt.Errorf("the response is not JSON: %w", err))
	}
	return tools.OfferResponse{Value: value}
}

// call calls a tool. It turns a panic into an error.
func (s served) call(ctx context.Context, t ToolFunc, args json.RawMessage) (v any, err error) {
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
