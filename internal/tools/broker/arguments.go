package broker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/strictjson"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/violation"
)

// Schemas caches compiled schemas for all executions of a process. It is safe for concurrent use.
type Schemas struct {
	mu       sync.Mutex
	compiled map[string]*compiled // by definition hash
	bytes    int                  // size of all compiled schemas
}

type compiled struct {
	input, output *boundedSchema // nil accepts any value
	properties    []string       // names at the input's top level
	open          bool           // the schema says that it allows additional properties
}

// Limits of Schemas. When a limit is reached, all schemas are dropped.
const (
	maxCompiled      = 10_000
	maxCompiledBytes = 32 << 20
)

// NewSchemas returns an empty Schemas.
func NewSchemas() *Schemas { return &Schemas{compiled: map[string]*compiled{}} }

// get returns the compiled schemas of a tool. It compiles them if they are not in the cache.
func (s *Schemas) get(t tools.Tool) *compiled {
	s.mu.Lock()
	c := s.compiled[t.Hash]
	s.mu.Unlock()
	if c != nil {
		return c
	}
	c = &compiled{input: compile(t.InputSchema), output: compile(t.OutputSchema)}
	var top struct {
		Properties map[string]json.RawMessage `json:"properties"`
		More       json.RawMessage            `json:"additionalProperties"`
	}
	if json.Unmarshal(t.InputSchema, &top) == nil {
		c.properties = slices.Sorted(maps.Keys(top.Properties))
		c.open = top.More != nil && string(top.More) != "false"
	}
	s.mu.Lock()
	size := len(t.InputSchema) + len(t.OutputSchema) + c.input.patternBytes() + c.output.patternBytes()
	if s.bytes += size; len(s.compiled) >= maxCompiled || s.bytes > maxCompiledBytes {
		clear(s.compiled)
		s.bytes = size
	}
	s.compiled[t.Hash] = c
	s.mu.Unlock()
	return c
}

// maxProblem is the maximum size of the description of one problem, in bytes.
const maxProblem = 300 + len("…")

// noLoader prevents untrusted schemas from reading files or the network.
type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errors.New("remote schemas are not loaded") }

// schemaURL is an absolute URL. The library would resolve a relative one to a path on the worker, and errors about
// references would then contain this path.
const schemaURL = "tool:///schema"

// compile compiles a schema. It returns nil if the schema is empty, cannot be compiled, has steps that cannot be
// counted, or patterns that are too large. Validation is then left to the server. Patterns that are not RE2 match any
// text, unless mayIgnorePatterns says otherwise: then, the result is nil, too.
func compile(raw json.RawMessage) *boundedSchema {
	if len(raw) == 0 {
		return nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil || !countable(doc) {
		return nil
	}
	doc = violation.Bounded(doc)
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	bounded := &boundedSchema{}
	c.UseRegexpEngine(bounded.pattern)
	if c.AddResource(schemaURL, doc) != nil {
		return nil
	}
	s, err := c.Compile(schemaURL)
	if err != nil || !bounded.count(s) {
		return nil
	}
	return bounded
}

// arguments rejects arguments that do not match the schema, and suggests parameter names. Every decoder of JSON reads
// arguments that pass in the same way: no name occurs twice, or differs from a parameter's only in case.
func arguments(schemas *Schemas) layer {
	return func(ctx context.Context, c Call, next handler) (Result, error) {
		args := jsontext.Value(slices.Clone(c.Args))
		if err := cmp.Or(strictjson.Check(args), args.Compact(jsontext.PreserveRawStrings(false))); err != nil {
			return Result{}, fail(c, errcode.BadArguments, "the arguments must be a JSON object: %s",
				text.Printable(text.Truncate(err.Error(), maxProblem)))
		}
		c.Args = json.RawMessage(args)
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(c.Args))
		given, isObject := doc.(map[string]any)
		if err != nil || !isObject {
			return Result{}, fail(c, errcode.BadArguments, "the arguments must be a JSON object")
		}
		s := schemas.get(c.def)
		for name := range given {
			if declared := s.otherCase(name); declared != "" {
				return Result{}, unknownName(c, name, declared)
			}
		}
		if s.input == nil {
			return next(ctx, c)
		}
		if problem := s.input.validate(doc); problem != nil {
			if e := unknownArgument(c, s, given, problem); e != nil {
				return Result{}, e
			}
			return Result{}, fail(c, errcode.BadArguments, "%s", explain(problem)).
				hint("the tool is %s", c.def.Signature)
		}
		return next(ctx, c)
	}
}

// otherCase returns the declared property whose name differs from an undeclared name only in case, or "" if
// there is none. Some servers treat the two names as equal.
func (c *compiled) otherCase(name string) string {
	if slices.Contains(c.properties, name) {
		return ""
	}
	i := slices.IndexFunc(c.properties, func(declared string) bool { return strings.EqualFold(declared, name) })
	if i < 0 {
		return ""
	}
	return c.properties[i]
}

// unknownArgument returns an error that suggests names if a misspelt argument may be the cause of the problem: the
// schema allows no further arguments, or a required one is missing. Otherwise it returns nil.
func unknownArgument(c Call, s *compiled, given map[string]any, problem error) *Error {
	if s.open || !slices.ContainsFunc(leaves(problem), func(e *jsonschema.ValidationError) bool {
		switch e.ErrorKind.(type) {
		case *kind.AdditionalProperties, *kind.Required:
			return len(e.InstanceLocation) == 0
		}
		return false
	}) {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(s.properties, name) && len(s.properties) > 0 {
			return unknownName(c, name, tools.Nearest(name, s.properties, 3)...)
		}
	}
	return nil
}

// unknownName returns the error for an argument with an unknown name, and suggests similar names.
func unknownName(c Call, name string, similar ...string) *Error {
	unknown := &tools.UnknownError{What: "argument", Name: text.Printable(name), Nearest: similar}
	return fail(c, errcode.Unknown, "%v", unknown).hint("the tool is %s", c.def.Signature)
}

// leaves returns the validation errors that have no causes of their own.
func leaves(err error) []*jsonschema.ValidationError {
	if ve, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return violation.Leaves(ve)
	}
	return nil
}

// explain lists the leaves of a validation error. It omits the strings of the value, which the program may
// not be allowed to read. It describes only the first leaves: there may be very many, each with a long description.
func explain(err error) string {
	const limit, width, described = 5, maxProblem, 50
	found := leaves(err)
	at := make(map[*jsonschema.ValidationError]string, len(found))
	for _, e := range found {
		at[e] = location(e) + ": "
	}
	slices.SortFunc(found, func(a, b *jsonschema.ValidationError) int {
		return cmp.Or(strings.Compare(at[a], at[b]), strings.Compare(a.SchemaURL, b.SchemaURL),
			slices.Compare(a.ErrorKind.KeywordPath(), b.ErrorKind.KeywordPath()))
	})
	var out []string
	for _, e := range found[:min(len(found), described)] {
		out = append(out, at[e]+text.Truncate(problem(e.ErrorKind), width))
	}
	if out == nil {
		return "the mismatch cannot be described"
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if more := max(0, len(out)-limit) + max(0, len(found)-described); more > 0 {
		out = append(out[:min(len(out), limit)], fmt.Sprintf("and %d more", more))
	}
	return text.Printable(strings.Join(out, "; "))
}

// location returns where a violation is, as a path of at most maxProblem bytes.
func location(e *jsonschema.ValidationError) string {
	var at strings.Builder
	for _, name := range e.InstanceLocation {
		at.WriteString("/" + name[:min(len(name), maxProblem+utf8.UTFMax)]) // Truncate removes an incomplete character
		if at.Len() > maxProblem {
			break
		}
	}
	return text.Truncate(at.String(), maxProblem)
}

func problem(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Pattern:
		return "does not match the pattern " + k.Want
	case *kind.Format:
		if m, ok := errors.AsType[*mismatch](k.Err); ok {
			return m.Error()
		}
		return "is not a valid " + k.Want
	}
	return violation.Describe(k)
}
