package broker

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// checker checks values against one schema, which comes from outside: what takes more than maxSteps
// is not checked to its end. References make a few lines of schema, and nested lists a few bytes of
// value, come to more than anybody could wait for, and the library takes no context.
type boundedSchema struct {
	schema *jsonschema.Schema

	mu        sync.Mutex // one check at a time: they share left
	stepsLeft int
}

const maxSteps = 300_000

var errSteps = errors.New("too many steps")

// newChecker adds the count to each schema that is reached. It is where formats are checked: before
// anything that leads to another schema.
func newBoundedSchema(s *jsonschema.Schema) *boundedSchema {
	c := &boundedSchema{schema: s}
	seen := map[*jsonschema.Schema]bool{}
	var visit func(v reflect.Value)
	visit = func(v reflect.Value) {
		switch v.Kind() { //nolint:exhaustive // the others hold no schemas
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
	return c
}

func (c *boundedSchema) addCounter(s *jsonschema.Schema) {
	was := s.Format
	format := &jsonschema.Format{Name: "any"}
	if was != nil {
		format.Name = strings.ReplaceAll(was.Name, "regex", "pattern") // the name regex never gets to Validate
	}
	format.Validate = func(v any) error {
		c.stepsLeft--
		if list, ok := v.([]any); ok && s.UniqueItems {
			c.stepsLeft -= len(list) * len(list) / 100 // each is compared with each
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

// check returns what is wrong with the value, as far as it was checked; a nil checker takes anything.
func (c *boundedSchema) validate(v any) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stepsLeft = maxSteps
	err := c.schema.Validate(v)
	if c.stepsLeft < 0 {
		return nil // the server will have to judge by itself
	}
	return err
}

// countable reports whether newChecker reaches all that a check may lead to.
func countable(doc any) bool {
	text, err := json.Marshal(doc)
	return err == nil && !strings.Contains(string(text), `"$dynamicRef"`) && !strings.Contains(string(text), `"$recursiveRef"`)
}
