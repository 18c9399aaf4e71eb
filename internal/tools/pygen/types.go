package pygen

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
)

// An object with properties is a TypedDict, unless the module already has maxClasses classes or the object has more
// than maxMembers properties. It is then a Dict.
const (
	maxClasses = 100
	maxMembers = 500
)

// typer converts the schemas of one module to type expressions, and collects the classes that they need.
type typer struct {
	taken   map[string]int // module-level names, as unique needs them
	classes []string
	used    map[string]bool // names to import from typing
}

// view is a typer for one document: the arguments or the result.
type view struct {
	*typer
	document
	input bool              // whether the document describes the arguments
	refs  map[string]string // reference → class, set before the class is declared
	open  map[string]bool   // references that are being resolved
}

func (t *typer) view(root any, input bool) *view {
	v := &view{
		typer: t, document: document{root: root, stepsLeft: new(maxSteps)}, input: input,
		refs: map[string]string{}, open: map[string]bool{},
	}
	v.nameSchemas()
	return v
}

// typing returns a name of Python's module typing, and has the generated module import it.
func (v *view) typing(name string) string {
	v.used[name] = true
	return name
}

// maxType is the maximum length of a type expression, in bytes. A longer one becomes Any.
const maxType = 8 << 10

// typeOf returns the Python type of a schema. If the type needs a class, the class is called name, with a number if
// name is taken.
func (v *view) typeOf(schema any, name string, depth int) string {
	s, ok := schema.(object)
	if !ok || depth > maxDepth || !v.step(s) {
		return v.typing("Any")
	}
	if text := v.typeOfObject(s, name, depth); len(text) <= maxType {
		return text
	}
	return v.typing("Any")
}

func (v *view) typeOfObject(s object, name string, depth int) string {
	if ref := v.aliased(s); ref != "" {
		return v.reference(ref, name, depth)
	}
	if s = v.resolve(s, depth); s == nil {
		return v.typing("Any")
	}
	if value, has := s["const"]; has {
		return v.literal([]any{value})
	}
	if values := asList(s["enum"]); len(values) > 0 {
		return v.literal(values)
	}
	if branches := v.alternatives(s, depth, true); branches != nil {
		var parts []string
		for i, b := range branches {
			parts = append(parts, v.typeOf(b, name+strconv.Itoa(i+1), depth+1))
		}
		return v.union(parts)
	}
	if types := asList(s["type"]); types != nil {
		var parts []string
		for _, one := range types {
			parts = append(parts, v.basicType(s, one, name, depth))
		}
		return v.union(parts)
	}
	return v.basicType(s, s["type"], name, depth)
}

// reference returns the type of a $ref. A recursive reference is the name of its class, or Any.
func (v *view) reference(ref, name string, depth int) string {
	if class, ok := v.refs[ref]; ok {
		return class
	}
	target, found := v.lookup(ref)
	if !found || v.open[ref] {
		return v.typing("Any")
	}
	v.open[ref] = true
	defer delete(v.open, ref)
	s, _ := target.(object)
	if flat := v.resolve(s, depth); flat != nil && v.isTypedDict(flat) {
		if last := ref[strings.LastIndexByte(ref, '/')+1:]; Identifier(last) != "" && last != "#" {
			name = pascal(last)
		}
		return v.object(flat, name, depth, ref)
	}
	return v.typeOf(target, name, depth+1)
}

// fits reports whether an object with these properties can be a TypedDict.
func (v *view) fits(properties object) bool {
	return len(properties) > 0 && len(properties) <= maxMembers && len(v.classes) < maxClasses
}

func (v *view) isTypedDict(s object) bool {
	properties, _ := s["properties"].(object)
	_, hasAnyOf := s["anyOf"]
	_, hasOneOf := s["oneOf"]
	return v.fits(properties) && !hasAnyOf && !hasOneOf && s["enum"] == nil && s["const"] == nil &&
		(s["type"] == nil || s["type"] == "object")
}

func (v *view) basicType(s object, kind any, name string, depth int) string {
	switch kind {
	case "string":
		return v.text(s, name, depth)
	case "integer":
		return "int"
	case "number":
		return "float"
	case "boolean":
		return "bool"
	case "null":
		return "None"
	case "array":
		return v.array(s, name, depth)
	case "object":
		return v.object(s, name, depth, "")
	case nil:
		if s["properties"] != nil {
			return v.object(s, name, depth, "")
		}
	}
	return v.typing("Any")
}

// text returns the type of a string, with the type of its content if the string is JSON.
func (v *view) text(s object, name string, depth int) string {
	if _, typed := s["contentSchema"].(object); !typed || s["contentMediaType"] != "application/json" {
		return "str"
	}
	content := v.typeOf(s["contentSchema"], name, depth+1)
	return v.typing("Annotated") + "[str, " + tools.PyString("JSON of "+content) + "]"
}

func (v *view) array(s object, name string, depth int) string {
	prefix, rest := asList(s["prefixItems"]), s["items"]
	if old, ok := rest.([]any); ok {
		prefix, rest = old, s["additionalItems"]
	}
	more := remaining(rest, s["unevaluatedItems"], s["contains"])
	if len(prefix) > 0 && len(prefix) <= 16 && rest != true && (len(more) == 0 || more[0] == true) {
		var parts []string
		for i, item := range prefix {
			parts = append(parts, v.typeOf(item, name+strconv.Itoa(i+1), depth+1))
		}
		return v.typing("Tuple") + "[" + strings.Join(parts, ", ") + "]"
	}
	return v.typing("List") + "[" + v.anyOf(slices.Concat(prefix, more), name+"Item", depth+1) + "]"
}

// object returns the type of an object, and keeps it as the type of the reference ref unless that is empty.
func (v *view) object(s object, name string, depth int, ref string) string {
	properties, _ := s["properties"].(object)
	more := further(s)
	if len(properties) == 0 {
		return v.dict(v.anyOf(more, name+"Value", depth+1))
	}
	if !v.fits(properties) {
		return v.dict(v.typing("Any"))
	}
	class := unique(name, v.taken, reserved)
	keep := func(t string) string {
		if ref != "" {
			v.refs[ref] = t
		}
		return t
	}
	if !v.input || s["additionalProperties"] != true && (len(more) == 0 || more[0] == true) {
		keep(class)
		v.typedDict(s, class, depth)
		return class
	}
	keep(v.union([]string{class, v.dict(v.typing("Any"))})) // for references in the members
	v.typedDict(s, class, depth)
	return keep(v.union([]string{class, v.dict(v.anyOf(append(more, true), class+"Value", depth+1))}))
}

func (v *view) dict(value string) string { return v.typing("Dict") + "[str, " + value + "]" }

// anyOf returns the type of values that match one of several schemas. If some may have any type, the type of an
// argument names the types of the others, too, so that programs can learn their members.
func (v *view) anyOf(schemas []any, name string, depth int) string {
	var known []string
	for _, schema := range schemas {
		if t := v.typeOf(schema, name, depth); t != "Any" {
			known = append(known, t)
		}
	}
	t := v.union(known)
	switch {
	case len(known) == len(schemas) || t == "Any":
		return t
	case !v.input:
		return v.typing("Any")
	}
	return v.typing("Union") + "[" + t + ", " + v.typing("Any") + "]"
}

// attributeKey matches keys that can be attributes of a class under their own name, except those in
// reservedAttributes: Python's keywords, and names of types, which would hide the types that other attributes use.
var (
	attributeKey       = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
	reservedAttributes = append(
		strings.Fields("str int float bool Annotated Any Dict List Literal Optional Tuple TypedDict Union"),
		tools.Keywords...)
)

// typedDict declares a TypedDict. Optional keys are in a second class, because Python 3.9 does not have NotRequired.
func (v *view) typedDict(s object, class string, depth int) {
	properties, _ := s["properties"].(object)
	required := setOf(stringList(s["required"]))
	v.typing("TypedDict")
	byName := true
	var needed, optional []field
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		byName = byName && attributeKey.MatchString(key) && !slices.Contains(reservedAttributes, key)
		property := properties[key]
		f := field{key: key, typ: v.typeOf(property, class+pascal(key), depth+1), note: v.comment(property, depth)}
		if required[key] {
			needed = append(needed, f)
		} else {
			optional = append(optional, f)
		}
	}
	switch {
	case len(optional) == 0:
		v.declare(class, "TypedDict", needed, true, byName)
	case len(needed) == 0:
		v.declare(class, "TypedDict", optional, false, byName)
	case byName:
		base := unique("_"+class, v.taken, reserved)
		v.declare(base, "TypedDict", needed, true, true)
		v.declare(class, base, optional, false, true)
	default:
		base, rest := unique("_"+class, v.taken, reserved), unique("_"+class+"Optional", v.taken, reserved)
		v.declare(base, "TypedDict", needed, true, false)
		v.declare(rest, "TypedDict", optional, false, false)
		v.classes = append(v.classes, fmt.Sprintf("class %s(%s, %s):\n    pass\n", class, base, rest))
	}
}

type field struct{ key, typ, note string }

// declare adds a TypedDict. total says that all keys are required. byName says that the keys can be attributes of a
// class; otherwise TypedDict is called with the keys as strings.
func (v *view) declare(class, base string, fields []field, total, byName bool) {
	var b strings.Builder
	if !byName {
		fmt.Fprintf(&b, "%s = TypedDict(%q, {\n", class, class)
		for _, f := range fields {
			fmt.Fprintf(&b, "    %s: %s,%s\n", tools.PyString(f.key), tools.PyString(f.typ), f.note)
		}
		b.WriteString("}")
		if !total {
			b.WriteString(", total=False")
		}
		b.WriteString(")\n")
	} else {
		suffix := ""
		if !total {
			suffix = ", total=False"
		}
		fmt.Fprintf(&b, "class %s(%s%s):\n", class, base, suffix)
		for _, f := range fields {
			fmt.Fprintf(&b, "    %s: %s%s\n", f.key, f.typ, f.note)
		}
	}
	v.classes = append(v.classes, b.String())
}

// comment returns a property's description, and the values that its type does not show, as a trailing comment.
func (v *view) comment(schema any, depth int) string {
	s, _ := schema.(object)
	text, _ := s["description"].(string)
	text = oneLine(text, 80)
	if rest, isType := strings.CutPrefix(text, "type:"); isType { // "# type:" would be a type comment
		text = "Type:" + rest
	}
	switch values := shorten(v.permitted(schema, depth), 200); {
	case text == "" && values == "":
		return ""
	case text == "":
		return "  # " + values
	case values != "":
		return "  # " + text + " (" + values + ")"
	}
	return "  # " + text
}

// permitted returns the values that a schema permits, if its type is wider, such as float for 0.5.
func (v *view) permitted(schema any, depth int) string {
	if list, wide := v.listed(schema, depth, 3); wide {
		return list
	}
	return ""
}

// listed returns the values that a schema or its items permit besides null, and whether its type is wider. The list is
// empty if the schema or one of its alternatives does not list them. levels bounds the alternatives and items in one
// another.
func (v *view) listed(schema any, depth, levels int) (list string, wide bool) {
	s := v.resolve(schema, depth)
	if s == nil || levels == 0 {
		return "", false
	}
	values := asList(s["enum"])
	if value, has := s["const"]; has {
		values = []any{value}
	}
	if values != nil {
		return v.literals(values)
	}
	if branches := v.branches(s, depth); branches != nil {
		var lists []string
		for _, branch := range branches {
			if branch["type"] == "null" {
				continue
			}
			one, isWide := v.listed(branch, depth+1, levels-1)
			if one == "" {
				return "", false
			}
			if !slices.Contains(lists, one) {
				lists = append(lists, one)
			}
			wide = wide || isWide
		}
		return strings.Join(lists, " or "), wide
	}
	if item, typed := s["items"].(object); typed {
		if list, wide = v.listed(item, depth+1, levels-1); list != "" {
			return "each " + list, wide
		}
	}
	return "", false
}

// literals returns a list of values, and whether Literal does not show each. The list is empty if it would be too long.
func (v *view) literals(values []any) (list string, wide bool) {
	if len(values) > maxType/4 {
		return "", false
	}
	list = "one of "
	for i, value := range values {
		literal, ok := tools.PyLiteral(value)
		*v.stepsLeft -= 1 + len(literal)/100
		if !ok || *v.stepsLeft < 0 || len(list)+len(literal) > maxType {
			return "", false
		}
		switch x := value.(type) {
		case json.Number:
			wide = wide || !integer.MatchString(x.String())
		case []any, object:
			wide = true
		}
		if i > 0 {
			list += ", "
		}
		list += literal
	}
	return list, wide
}

// integer matches the integers whose Python literal is their JSON. Python refuses to read one with more than maxDigits.
var integer = regexp.MustCompile(`^(-?[1-9][0-9]*|0)$`)

const maxDigits = 4300

// literal returns a type for the given values. A value that Literal does not support is replaced by its
// type. If the values are too many or too long, the type is Any.
func (v *view) literal(values []any) string {
	var fixed, wide []string
	if len(values) > maxType/4 {
		return v.typing("Any")
	}
	if *v.stepsLeft -= len(values); *v.stepsLeft < 0 {
		return v.typing("Any")
	}
	size := 0
	for _, value := range values {
		switch x := value.(type) {
		case string:
			if size += len(x); size > maxType {
				return v.typing("Any")
			}
			fixed = append(fixed, tools.PyString(x))
		case bool:
			fixed = append(fixed, map[bool]string{true: "True", false: "False"}[x])
		case nil:
			fixed = append(fixed, "None")
		case json.Number:
			if integer.MatchString(x.String()) && len(x) <= maxDigits {
				fixed = append(fixed, x.String())
			} else {
				wide = append(wide, "float")
			}
		default:
			wide = append(wide, v.typing("Any"))
		}
	}
	if len(fixed) > 200 {
		return v.typing("Any")
	}
	if fixed != nil {
		slices.Sort(fixed)
		wide = append(wide, v.typing("Literal")+"["+strings.Join(slices.Compact(fixed), ", ")+"]")
	}
	return v.union(wide)
}

// union returns the type whose alternatives are the given types. It is Any if one of them is Any, or they are too long.
func (v *view) union(parts []string) string {
	var distinct []string
	size := 0
	for _, p := range parts {
		if p == "Any" {
			return p
		}
		if !slices.Contains(distinct, p) {
			distinct = append(distinct, p)
			if size += len(p); size > maxType {
				return v.typing("Any")
			}
		}
	}
	if i := slices.Index(distinct, "None"); i >= 0 && len(distinct) == 2 {
		return v.typing("Optional") + "[" + distinct[1-i] + "]"
	}
	switch len(distinct) {
	case 0:
		return v.typing("Any")
	case 1:
		return distinct[0]
	}
	return v.typing("Union") + "[" + strings.Join(distinct, ", ") + "]"
}

// pascal converts any text to an ASCII part of a class name.
func pascal(s string) string {
	var b strings.Builder
	up := true
	for _, r := range s {
		switch {
		case r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)):
			if up {
				r = unicode.ToUpper(r)
			}
			b.WriteRune(r)
			up = false
		default:
			up = true
		}
		if b.Len() >= 40 {
			break
		}
	}
	if b.Len() == 0 || unicode.IsDigit(rune(b.String()[0])) {
		return "T" + b.String()
	}
	return b.String()
}

// oneLine returns s printable, on one line and truncated to limit characters.
func oneLine(s string, limit int) string {
	return shorten(text.OneLine(text.Printable(strings.ToValidUTF8(s, "?"))), limit)
}

// shorten truncates s to limit characters.
func shorten(s string, limit int) string {
	if runes := []rune(s); len(runes) > limit {
		s = strings.TrimRight(string(runes[:limit-1]), " ") + "…"
	}
	return s
}
