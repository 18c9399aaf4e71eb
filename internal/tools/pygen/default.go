package pygen

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/tools"
)

// maxDefault is the maximum length of a default that a module sends, as a Python literal, in bytes.
const maxDefault = 2000

// defaultOf returns the default of a required parameter as a Python literal. It returns "" if the schema has no
// default or does not accept it, or if its literal is too long or cannot be written: the program must then give the
// argument.
func (d document) defaultOf(schema any) string {
	s := d.resolve(schema, 0)
	value, has := s["default"]
	if !has || !d.accepts(s, value, 0) {
		return ""
	}
	literal, ok := tools.PyLiteral(value)
	*d.stepsLeft -= len(literal) / 100
	if !ok || len(literal) > maxDefault {
		return ""
	}
	return literal
}

// accepts reports whether the type, enum, const and alternatives of a schema accept the value. It does not check
// other keywords.
func (d document) accepts(s object, value any, depth int) bool {
	if fixed, has := s["const"]; has && !reflect.DeepEqual(fixed, value) {
		return false
	}
	equal := func(v any) bool { return reflect.DeepEqual(v, value) }
	values := asList(s["enum"])
	if *d.stepsLeft -= len(values); *d.stepsLeft < 0 || values != nil && !slices.ContainsFunc(values, equal) {
		return false
	}
	if branches := d.branches(s, depth); branches != nil {
		return slices.ContainsFunc(branches, func(b object) bool { return d.accepts(b, value, depth+1) })
	}
	types := stringList(s["type"])
	if one, ok := s["type"].(string); ok {
		types = []string{one}
	}
	return types == nil || slices.ContainsFunc(types, func(t string) bool { return isOfType(value, t) })
}

func isOfType(value any, typ string) bool {
	switch v := value.(type) {
	case nil:
		return typ == "null"
	case bool:
		return typ == "boolean"
	case string:
		return typ == "string"
	case json.Number:
		return typ == "number" || typ == "integer" && !strings.ContainsAny(v.String(), ".eE")
	case []any:
		return typ == "array"
	}
	return typ == "object"
}
