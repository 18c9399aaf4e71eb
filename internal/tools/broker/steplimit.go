package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"regexp/syntax"
	"slices"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/codefleet/codefleet/internal/patterns"
	"github.com/codefleet/codefleet/internal/violation"
)

// boundedSchema validates values against an untrusted schema in at most maxSteps steps. Without that limit,
// a short schema with references or a short value of nested lists can take practically unlimited time. The
// library does not accept a context.
type boundedSchema struct {
	schema   *jsonschema.Schema
	patterns patterns.Set // that the library has compiled

	mu        sync.Mutex // held by validate: validations share stepsLeft
	stepsLeft int
}

const maxSteps = 300_000

var errSteps = errors.New("too many steps")

// pattern compiles a pattern of the schema. The library calls it.
func (c *boundedSchema) pattern(p string) (jsonschema.Regexp, error) { return c.patterns.Compile(p) }

// patternBytes returns about how many bytes of memory the compiled patterns take.
func (c *boundedSchema) patternBytes() int {
	const ofPart = 100
	if c == nil {
		return 0
	}
	return c.patterns.Size * ofPart
}

// count adds a step counter to s, which becomes c's schema, and each schema that it refers to. It uses the format
// validation, which the library does before it follows any reference.
func (c *boundedSchema) count(s *jsonschema.Schema) {
	c.schema = s
	seen := map[*jsonschema.Schema]bool{}
	var visit func(v reflect.Value)
	visit = func(v reflect.Value) {
		switch v.Kind() { //nolint:exhaustive // other kinds contain no schemas
		case reflect.Interface:
			visit(v.Elem())
		case reflect.Slice:
			for i := range v.Len() {
				visit(v.Index(i))
			}
		case reflect.Map:
			for i := v.MapRange(); i.Next(); {
				visit(i.Value())
			}
		case reflect.Pointer:
			if ref, ok := reflect.TypeAssert[*jsonschema.DynamicRef](v); ok && ref != nil {
				visit(reflect.ValueOf(ref.Ref))
			}
			s, ok := reflect.TypeAssert[*jsonschema.Schema](v)
			if !ok || s == nil || seen[s] {
				return
			}
			seen[s] = true
			for _, field := range reflect.VisibleFields(v.Type().Elem()) {
				if field.IsExported() {
					visit(v.Elem().FieldByIndex(field.Index))
				}
			}
			c.addCounter(s)
		}
	}
	visit(reflect.ValueOf(s))
}

// addCounter has the format validation of s count a step, before it validates the format that s has, if any.
func (c *boundedSchema) addCounter(s *jsonschema.Schema) {
	was := s.Format
	format := &jsonschema.Format{Name: "any"}
	if was != nil {
		format.Name = was.Name
	}
	if format.Name == "regex" { // the library would compile the value with c.pattern
		was, format.Name = &jsonschema.Format{Validate: isPattern}, "pattern"
	}
	format.Validate = func(v any) error {
		c.stepsLeft--
		if list, ok := v.([]any); ok && s.UniqueItems {
			c.stepsLeft -= len(list) * len(list) / 100 // the library compares all pairs
		}
		if c.stepsLeft < 0 {
			return errSteps
		}
		if was != nil {
			return was.Validate(v)
		}
		return nil
	}
	s.Format = format
}

// isPattern is the format "regex". It leaves the decision about long values to the server.
func isPattern(v any) error {
	s, ok := v.(string)
	if !ok || len(s) > patterns.MaxLength {
		return nil
	}
	_, err := syntax.Parse(s, syntax.Perl)
	return err
}

// validate returns the validation error of a value. Numbers of v may be replaced (see violation.Bounded). It returns
// nil, and leaves the decision to the server, if the schema is nil, if the validation takes more than maxSteps, or if
// the schema refers to itself for the same value, because such a schema would accept no value at all.
func (c *boundedSchema) validate(v any) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stepsLeft = maxSteps
	err := c.schema.Validate(violation.Bounded(v))
	if c.stepsLeft < 0 || slices.ContainsFunc(leaves(err), isCycle) {
		return nil
	}
	return err
}

func isCycle(e *jsonschema.ValidationError) bool {
	_, ok := e.ErrorKind.(*kind.RefCycle)
	return ok
}

// countable reports whether count reaches every schema that a validation can reach.
func countable(doc any) bool {
	text, err := json.Marshal(doc)
	return err == nil &&
		!bytes.Contains(text, []byte(`"$dynamicRef"`)) && !bytes.Contains(text, []byte(`"$recursiveRef"`))
}
