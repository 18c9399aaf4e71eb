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

// ToolInfo says what a tool is, for the programs that call it and for whoever writes them.
type ToolInfo struct {
	// Name of the tool: a letter, then letters, digits, - and _, 64 at most.
	Name string
	// Description says what it does, in a sentence, and what else a caller has to know. The search
	// for tools reads it too.
	Description string
	Title       string
	// Annotations are the tool's claims about its effects. A tool that does not say that it only
	// reads, or does not destroy, is taken for one that may: tools.destructive of the fleet decides
	// about such calls.
	Annotations ToolAnnotations
	// Timeout of a call, at most ten minutes; zero is one minute.
	Timeout time.Duration
	// Expose makes the function a tool of the fleet's MCP bridge as well, SERVER__NAME, for clients of
	// the tenant.
	Expose bool
}

// ToolFunc is a Go function as a tool; NewTool makes it.
type ToolFunc struct {
	def  tools.OfferedTool
	hash string
	call func(ctx context.Context, args json.RawMessage) (any, error)
	err  error
}

// NewTool makes a tool of a function. In is a struct, whose fields are the parameters, in their order;
// Out is whatever encodes as JSON. Their JSON Schemas are made from the types, with the names and
// options of the tags `json`, and the tag `jsonschema` as the description of a field. An error of fn is
// the tool's: the program gets it as an exception with its text. So is a panic, without its text.
//
// fn is called by several goroutines at once. Its context ends when nobody waits for the answer any
// more. A call that was lost on its way is not made again unless the annotations say that it may be
// (ReadOnly, Idempotent).
//
// A mistake in the types or the name is reported by RegisterTools.
func NewTool[In, Out any](info ToolInfo, fn func(ctx context.Context, in In) (Out, error)) ToolFunc {
	in, err1 := schemaOf[In]()
	out, err2 := schemaOf[Out]()
	t := ToolFunc{
		def: tools.OfferedTool{TimeoutS: info.Timeout.Seconds(), Expose: info.Expose, Definition: tools.Definition{
			Name: info.Name, Title: info.Title, Description: info.Description, Annotations: tools.Annotations(info.Annotations),
		}},
	}
	t.err = errors.Join(err1, err2)
	if t.err != nil {
		t.err = fmt.Errorf("tool %q: %w", info.Name, t.err)
		return t
	}
	wrapped := out.Type != "object" && !anything(out)
	if wrapped {
		out = &jsonschema.Schema{
			Type: "object", Properties: map[string]*jsonschema.Schema{"result": out}, Required: []string{"result"},
			Extra: map[string]any{"x-fastmcp-wrap-result": true},
		}
	}
	t.def.InputSchema, err1 = json.Marshal(in)
	if !anything(out) {
		t.def.OutputSchema, err2 = json.Marshal(out)
	}
	t.err = errors.Join(err1, err2, t.def.Check())
	t.hash = t.def.Hash()
	t.call = func(ctx context.Context, args json.RawMessage) (any, error) {
		var v In
		if err := json.Unmarshal(args, &v); err != nil {
			return nil, fmt.Errorf("read the arguments: %w", err)
		}
		answer, err := fn(ctx, v)
		if wrapped && err == nil {
			return map[string]any{"result": answer}, nil
		}
		return answer, err
	}
	return t
}

// schemaOf is the schema of a Go type. What the type cannot say, as the shape of a json.RawMessage, is
// left open.
func schemaOf[T any]() (*jsonschema.Schema, error) {
	return jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[[]byte]():          {Type: "string", ContentEncoding: "base64"},
	}})
}

func anything(s *jsonschema.Schema) bool {
	data, err := json.Marshal(s)
	return err == nil && (string(data) == "true" || string(data) == "{}")
}

// RegisterOptions say how registered tools are served. The zero value is usable.
type RegisterOptions struct {
	// Title and Description say what the server is, and what for. People see them, and the search finds its tools
	// by them, too. Of several processes with the same server that was started last counts which says something.
	Title, Description string
	// Concurrency is how many calls are carried out at once; further ones wait. Zero is 16.
	Concurrency int
	// Log hears of calls that panic, and of answers that could not be sent. Nil is slog.Default.
	Log *slog.Logger
}

// Registration is tools that this process serves.
type Registration struct{ stop func() }

// Close takes the tools out of the catalogue and returns when the calls under way are answered, or
// ten seconds later.
func (r *Registration) Close() { r.stop() }

// RegisterTool registers one Go function as a tool; see RegisterTools.
func RegisterTool[In, Out any](ctx context.Context, c *Client, server string, info ToolInfo, fn func(context.Context, In) (Out, error)) (*Registration, error) {
	return c.RegisterTools(ctx, RegisterOptions{}, server, NewTool(info, fn))
}

// RegisterTools makes functions of this process tools of the caller's tenant, under the name of a
// server: a lower-case letter, then lower-case letters, digits and _. From the next task on, and
// without a restart, a program of the tenant imports them as any other tool,
//
//	from servers.crm import find_customer
//
// and calls them through the fleet, which checks, counts and records as it does for every tool. They
// are there until Close, the end of the client or of the process, which is noticed after ten seconds.
// Several processes may register the same tools, and then share the calls; of two that define a tool
// differently the one that was started last counts, and the other refuses calls that rely on it.
//
// A server's name that the fleet has itself is not taken: the tools are then listed as broken. An
// answer is at most one MiB of JSON. A tenant has at most 500 registered tools, in 64 registrations.
//
// Registering needs the queue: a client with a nats:// or tls:// address, and a tenant's (or the
// fleet's) credentials. ctx bounds the registering only.
func (c *Client) RegisterTools(ctx context.Context, o RegisterOptions, server string, list ...ToolFunc) (*Registration, error) {
	d, ok := c.door.(*natsDoor)
	if !ok {
		return nil, &APIError{
			Code: errcode.NATSOnly, Message: "tools are registered over NATS", Status: http.StatusNotImplemented,
			Hint: "give the client the nats:// address of the fleet and the tenant's credentials, as LocateNATS does",
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
	said, err := json.Marshal(offer)
	if err != nil {
		return nil, fmt.Errorf("register tools of %s: %w", server, err)
	}
	s := served{list: list, log: o.Log}
	stop, err := d.jobs.ServeTools(jobs.ToolService{
		Tenant: d.tenant, Instance: strings.ToLower(rand.Text()), Tools: names, Offer: said, Concurrency: o.Concurrency, Handle: s.handle,
	})
	if err != nil {
		return nil, err
	}
	return &Registration{stop: stop}, nil
}

func checkTools(server string, list []ToolFunc) error {
	errs := []error{tools.CheckOfferedServer(server)}
	if len(list) == 0 {
		errs = append(errs, errors.New("there is none"))
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

// served answers calls.
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
	a = tools.OfferResponse{Code: tools.OfferLarge, Error: fmt.Sprintf("the answer has %d bytes, more than %d", len(out), jobs.MaxToolResponse)}
	if err != nil {
		a = tools.OfferResponse{Code: tools.OfferFailed, Error: "the answer is no JSON: " + err.Error()}
	}
	out, err = encode(a)
	if err != nil {
		panic("client: an answer of ours does not encode: " + err.Error())
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
		return failed(fmt.Errorf("read the call: %w", err))
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
		return failed(fmt.Errorf("the answer is no JSON: %w", err))
	}
	return tools.OfferResponse{Value: value}
}

// call keeps a panic of one tool from ending the process.
func (s served) call(ctx context.Context, t ToolFunc, args json.RawMessage) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.ErrorContext(ctx, "tool panicked", "tool", t.def.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			v, err = nil, errors.New("the tool has a bug: it panicked; the log of its process says where")
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
