package pygen

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"github.com/codefleet/codefleet/internal/tools"
)

type object = map[string]any

// maxDepth bounds the nesting of a schema; deeper types are Any.
const maxDepth = 20

// decode returns a schema as Go values.
func decode(raw json.RawMessage) any {
	v, err := tools.DecodeJSON(raw)
	if err != nil {
		return true // the schema that accepts everything
	}
	return v
}

// maxSteps bounds the schema keys that are visited per document; further types are Any. With references
// and alternatives, a few lines can describe a type of practically unlimited size.
const maxSteps = 100_000

// document is a whole JSON Schema, in which local references are resolved.
type document struct {
	root      any
	order     []string       // the properties of root, in the order of its text
	base      string         // the URI of root, or ""
	named     map[string]any // the schemas that have a "$id" or an anchor, by URI; nil if several have one name
	stepsLeft *int
}

// step counts a visit to the schema, and reports whether maxSteps still allows it.
func (d document) step(s object) bool {
	properties, _ := s["properties"].(object)
	patterns, _ := s["patternProperties"].(object)
	*d.stepsLeft -= 1 + len(s) + len(properties) + len(patterns)
	return *d.stepsLeft >= 0
}

// resolve returns the schema with its reference resolved, its allOf merged, and the properties of its conditions,
// which are optional. It returns nil for true and false, for a reference that cannot be resolved, for a depth above
// maxDepth, and when the steps are spent.
func (d document) resolve(schema any, depth int) object {
	s, conditions := d.flatten(schema, depth)
	if len(conditions) == 0 {
		return s
	}
	return d.withMembersOf(s, conditions, depth)
}

// dependencyKeys are the keywords with a schema, or a list of required properties, for objects that have a property.
// Up to draft 7, dependencies was both.
var dependencyKeys = []string{"dependencies", "dependentRequired", "dependentSchemas"}

// flatten is resolve without the conditions of a schema, which it returns beside it: the schemas of if, then, else and
// dependencyKeys.
func (d document) flatten(schema any, depth int) (s object, conditions []any) {
	s, ok := schema.(object)
	if !ok || depth > maxDepth || !d.step(s) {
		return nil, nil
	}
	if ref, isRef := referenceOf(s); isRef {
		target, found := d.lookup(ref)
		if !found {
			return nil, nil
		}
		resolved, inner := d.flatten(target, depth+1)
		if resolved == nil {
			return nil, nil
		}
		s, conditions = merge(resolved, without(s, referenceKeys...)), inner
	}
	out := s
	if all, _ := s["allOf"].([]any); all != nil {
		out = without(s, "allOf")
		for _, part := range all {
			properties, _ := out["properties"].(object)
			*d.stepsLeft -= (len(properties) + len(asList(out["required"]))) / 100 // merge copies them
			resolved, inner := d.flatten(part, depth+1)
			if *d.stepsLeft -= len(inner); *d.stepsLeft < 0 {
				return nil, nil
			}
			out, conditions = merge(out, resolved), append(conditions, inner...)
		}
		for _, key := range annotations { // those of the schema itself precede those of its parts
			if own, has := s[key]; has {
				out[key] = own
			}
		}
	}
	for _, key := range dependencyKeys {
		dependent, _ := s[key].(object)
		if *d.stepsLeft -= len(dependent); *d.stepsLeft < 0 {
			return nil, nil
		}
		for _, name := range slices.Sorted(maps.Keys(dependent)) {
			condition := dependent[name]
			if required, ok := condition.([]any); ok {
				condition = object{"required": required}
			}
			conditions = append(conditions, condition)
		}
	}
	test, _ := s["if"].(object)
	tested, _ := test["properties"].(object)
	if *d.stepsLeft -= len(tested); *d.stepsLeft < 0 {
		return nil, nil
	}
	if len(tested) > 0 { // the properties may have other values, whatever other conditions say
		names := object{}
		for name := range tested {
			names[name] = object{}
		}
		conditions = append(conditions, object{"properties": names})
	}
	for _, key := range []string{"then", "else"} {
		if condition, ok := s[key].(object); ok {
			conditions = append(conditions, condition)
		}
	}
	if len(conditions) == 0 {
		return out, nil
	}
	return without(out, append([]string{"if", "then", "else"}, dependencyKeys...)...), conditions
}

// annotations are the keywords that do not concern which values a schema accepts.
var annotations = []string{"title", "description", "default", "examples"}

// withMembersOf returns the schema with the properties that conditions name and it does not have. They are optional. A
// property accepts what any condition with a schema for it says; conditions that only name it add nothing.
func (d document) withMembersOf(s object, conditions []any, depth int) object {
	own, _ := s["properties"].(object)
	members := object{}
	for _, condition := range conditions {
		resolved := d.resolve(condition, depth+1)
		if resolved == nil {
			continue
		}
		properties, required := d.topProperties(resolved, 0)
		for _, name := range required {
			if _, has := properties[name]; !has {
				properties[name] = true
			}
		}
		*d.stepsLeft -= len(properties)
		for name, schema := range properties {
			was, both := members[name]
			switch {
			case !both || was == true:
				members[name] = schema
			case schema != true && !reflect.DeepEqual(was, schema):
				members[name] = object{"anyOf": []any{was, schema}}
			}
		}
	}
	maps.Copy(members, own)
	if len(members) == 0 {
		return s
	}
	out := maps.Clone(s)
	out["properties"] = members
	return out
}

func without(s object, keys ...string) object {
	out := maps.Clone(s)
	for _, k := range keys {
		delete(out, k)
	}
	return out
}

// merge returns a schema that accepts at least the values that both schemas accept. It joins properties,
// patternProperties and required; of the two values of any other keyword, it keeps one or drops both.
func merge(a, b object) object {
	if len(a) == 0 {
		return b
	}
	out := maps.Clone(a)
	for k, v := range b {
		was, both := out[k]
		if !both {
			out[k] = v
			continue
		}
		switch k {
		case "properties", "patternProperties":
			out[k] = joinProperties(was, v)
		case "required":
			out[k] = append(slices.Clone(asList(was)), asList(v)...)
		case "anyOf", "oneOf", "enum", "items", "prefixItems", "additionalProperties":
			delete(out, k) // their conjunction has no simple form: accept more
		case "type":
			if _, one := v.(string); one {
				out[k] = v
			}
		default:
			out[k] = v
		}
	}
	return out
}

func joinProperties(a, b any) any {
	x, _ := a.(object)
	y, _ := b.(object)
	out := object{}
	maps.Copy(out, x)
	for k, v := range y {
		if was, both := out[k]; both {
			v = object{"allOf": []any{was, v}}
		}
		out[k] = v
	}
	return out
}

func asList(v any) []any {
	l, _ := v.([]any)
	return l
}

// branches returns the anyOf or oneOf alternatives of a schema, each merged with the schema's other
// keywords. It returns nil if there are none, and one schema that accepts everything if an alternative cannot be
// resolved or the steps are spent.
func (d document) branches(s object, depth int) []object { return d.alternatives(s, depth, false) }

// alternatives is branches, but if byName is set, an alternative whose type is that of a reference is left as it is.
func (d document) alternatives(s object, depth int, byName bool) []object {
	for _, key := range []string{"anyOf", "oneOf"} {
		alternatives := asList(s[key])
		if len(alternatives) == 0 {
			continue
		}
		base := without(s, append([]string{key}, annotations...)...)
		var out []object
		for _, alternative := range alternatives {
			if !d.step(base) {
				return []object{{}}
			}
			if alternative == true {
				out = append(out, base)
				continue
			}
			if part, ok := alternative.(object); ok && byName {
				if whole := merge(base, part); d.aliased(whole) != "" {
					out = append(out, whole)
					continue
				}
			}
			if part := d.resolve(alternative, depth+1); part != nil {
				out = append(out, merge(base, part))
			} else if alternative != false {
				return []object{{}} // unresolved: accept anything
			}
		}
		return out
	}
	return nil
}

// parameter is one argument of a tool.
type parameter struct {
	jsonName, pythonName string
	schema               any
	permitted            string // all permitted values, if the type does not show each
	required             bool   // the program must give it
	sent                 string // the Python value to send if the program omits it; empty if none is sent
}

// parameters returns the properties of an input schema and of its alternatives. A property is required if the schema
// or all its alternatives require it and it has no default. extra are the schemas of additional arguments, as further
// returns them, or nil if the schema forbids all or does not mention them. If the schema only says `"type": "object"`,
// or cannot be resolved, extra accepts all arguments. A schema with empty properties means that the tool has no
// arguments.
func (d document) parameters() (params []parameter, extra []any) {
	root := d.resolve(d.root, 0)
	if root == nil {
		return nil, []any{true}
	}
	properties, required := d.topProperties(root, 0)
	params = d.requiredParameters(properties, required)
	for _, p := range params {
		delete(properties, p.jsonName)
	}
	for _, name := range append(slices.Clone(d.order), slices.Sorted(maps.Keys(properties))...) {
		if schema, ok := properties[name]; ok {
			params = append(params, parameter{jsonName: name, schema: schema})
			delete(properties, name)
		}
	}
	mentioned := root["additionalProperties"] != nil || root["patternProperties"] != nil ||
		allows(root["unevaluatedProperties"])
	if mentioned || len(params) == 0 && root["type"] == "object" && root["properties"] == nil &&
		root["unevaluatedProperties"] == nil { // an object with any members
		return params, further(root)
	}
	return params, nil
}

// further returns the schemas of an object's members besides its properties. One of them is true if some members may
// have any type.
func further(s object) []any {
	var out []any
	patterns, _ := s["patternProperties"].(object)
	for _, pattern := range slices.Sorted(maps.Keys(patterns)) {
		if patterns[pattern] != false {
			out = append(out, patterns[pattern])
		}
	}
	return append(out, remaining(s["additionalProperties"], s["unevaluatedProperties"])...)
}

// remaining returns the schemas of the members or items that no other keyword names: the schema more if there is one,
// otherwise the schemas of some of them, and true.
func remaining(more any, some ...any) []any {
	if _, typed := more.(object); typed {
		return []any{more}
	}
	if more == false {
		return nil
	}
	var out []any
	for _, schema := range some {
		if _, typed := schema.(object); typed {
			out = append(out, schema)
		}
	}
	return append(out, true)
}

// allows reports whether a schema of further properties accepts any of them.
func allows(schema any) bool {
	_, typed := schema.(object)
	return typed || schema == true
}

// requiredParameters returns the parameters that the server requires: first those that programs must give, then
// those with a default.
func (d document) requiredParameters(properties object, required []string) []parameter {
	var must, may []parameter
	for _, name := range required {
		schema, ok := properties[name]
		if !ok {
			schema = true
		}
		p := parameter{jsonName: name, schema: schema, sent: d.defaultOf(schema)}
		if p.required = p.sent == ""; p.required {
			must = append(must, p)
		} else {
			may = append(may, p)
		}
	}
	return append(must, may...)
}

// propertyOrder returns the names of a schema's properties in the order of the schema's text.
func propertyOrder(schema json.RawMessage) []string {
	var s struct {
		Properties json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil || len(s.Properties) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(s.Properties))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	var names []string
	seen := map[string]bool{}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return nil
		}
		if s, ok := name.(string); ok && !seen[s] {
			seen[s] = true
			names = append(names, s)
		}
	}
	return names
}

// topProperties returns the properties of a schema and of its alternatives, and the names of those that the schema or
// all alternatives require.
func (d document) topProperties(s object, depth int) (properties object, required []string) {
	p, _ := s["properties"].(object)
	properties = object{}
	maps.Copy(properties, p)
	required = stringList(s["required"])
	if depth > 4 {
		return properties, required
	}
	var common []string
	for i, branch := range d.branches(s, 0) {
		more, needed := d.topProperties(branch, depth+1)
		for name, schema := range more {
			if was, both := p[name]; both && reflect.DeepEqual(was, schema) {
				continue
			}
			if was, both := properties[name]; both && !reflect.DeepEqual(was, schema) {
				schema = object{"anyOf": []any{was, schema}}
			}
			properties[name] = schema
		}
		if i == 0 {
			common = needed
		} else {
			in := setOf(needed)
			common = slices.DeleteFunc(common, func(n string) bool { return !in[n] })
		}
	}
	has := setOf(required)
	for _, name := range common {
		if !has[name] {
			required = append(required, name)
		}
	}
	return properties, required
}

// stringList returns the distinct strings of a JSON list.
func stringList(v any) []string {
	var out []string
	seen := map[string]bool{}
	for _, x := range asList(v) {
		if s, ok := x.(string); ok && !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// setOf returns the names as a set.
func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}
