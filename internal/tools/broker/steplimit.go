package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"regexp/syntax"
	"slices"
	"strings"
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

// maxSteps bounds a validation. A step takes about a microsecond.
const maxSteps = 300_000

// The amounts of work that count as one step.
const (
	stepNames   = 16   // members of an object, elements of a list, or names that a schema lists
	stepBytes   = 1024 // bytes of a string
	stepKey     = 64   // bytes of a string that is parsed, or of a value that is compared
	stepPattern = 256  // bytes of a string, times the size of the pattern that it is matched with
	stepDepth   = 8    // levels of a value: the validation copies the location of each part
)

var errSteps = errors.New("too many steps")

// spend counts steps. When none is left, it panics with errSteps, which ends the validation: the library would go on
// after an error.
func (c *boundedSchema) spend(steps int) {
	if c.stepsLeft -= steps; c.stepsLeft < 0 {
		panic(errSteps)
	}
}

// countedPattern is a pattern whose matching takes steps.
type countedPattern struct {
	*patterns.Pattern

	schema *boundedSchema
}

// MatchString implements jsonschema.Regexp.
func (p countedPattern) MatchString(s string) bool {
	p.schema.spend(1 + len(s)*p.Size/stepPattern)
	return p.Pattern.MatchString(s)
}

// anyText replaces a pattern that is not RE2: it has a lookahead or a backreference, for example.
type anyText string

func (p anyText) MatchString(string) bool { return true }
func (p anyText) String() string          { return string(p) }

// pattern compiles a pattern of the schema. The library calls it.
func (c *boundedSchema) pattern(p string) (jsonschema.Regexp, error) {
	compiled, err := c.patterns.Compile(p)
	if syntaxErr := (*syntax.Error)(nil); errors.As(err, &syntaxErr) {
		return anyText(p), nil
	}
	return countedPattern{compiled, c}, err
}

// mayIgnorePatterns reports whether values can be validated although the schemas have patterns that are replaced with
// anyText: none of these may be the reason why a value is refused.
func mayIgnorePatterns(schemas map[*jsonschema.Schema]bool) bool {
	ignored, refuses := false, false
	for s := range schemas {
		_, is := s.Pattern.(anyText)
		ignored = ignored || is
		refuses = refuses || s.Not != nil || s.If != nil || s.Contains != nil || len(s.OneOf) > 0
		for p := range s.PatternProperties {
			if _, is := p.(anyText); is {
				return false
			}
		}
	}
	return !ignored || !refuses
}

// patternBytes returns about how many bytes of memory the compiled patterns take.
func (c *boundedSchema) patternBytes() int {
	const ofPart = 100
	if c == nil {
		return 0
	}
	return c.patterns.Size * ofPart
}

// count adds a step counter to s, which becomes c's schema, and each schema that it refers to. It returns false if one
// of them applies too many schemas to the same value, or has patterns that cannot be ignored.
func (c *boundedSchema) count(s *jsonschema.Schema) bool {
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
	return longestChain(seen) <= maxChain && mayIgnorePatterns(seen)
}

// addCounter has the format validation of s count steps, before the library follows any reference or looks at parts of
// the value. The keywords that the library would check before are checked there, too, as are those that compare values.
func (c *boundedSchema) addCounter(s *jsonschema.Schema) {
	first := newChecks(s)
	s.Bool, s.Types, s.Const, s.Enum, s.UniqueItems = nil, nil, nil, nil, false
	was := s.Format
	format := &jsonschema.Format{Name: "any"}
	if was != nil {
		format.Name = was.Name
	}
	if format.Name == "regex" { // the library would compile the value with c.pattern
		was, format.Name = &jsonschema.Format{Validate: isPattern}, "pattern"
	}
	format.Validate = func(v any) error {
		c.spend(1 + cost(v, first.names))
		if problem := first.check(c, v); problem != nil {
			return &mismatch{problem}
		}
		if was == nil {
			return nil
		}
		if text, ok := v.(string); ok {
			c.spend(len(text) / stepKey)
		}
		return was.Validate(v)
	}
	s.Format = format
}

// cost returns how many steps the library needs for the parts of a value that it does not count itself. names is how
// many names the schema lists.
func cost(v any, names int) int {
	switch v := v.(type) {
	case map[string]any:
		return (len(v) + names) / stepNames
	case []any:
		return len(v) / stepNames
	case string:
		return len(v) / stepBytes
	case json.Number:
		if len(v) > 20 || strings.ContainsAny(string(v), "eE") {
			return 30 // the library calculates with all digits
		}
	}
	return 0
}

// mismatch is the error of a format that stands for a violation of another keyword.
type mismatch struct{ jsonschema.ErrorKind }

func (m *mismatch) Error() string { return violation.Describe(m.ErrorKind) }

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
// nil, and leaves the decision to the server, if the schema is nil or if the validation takes more than maxSteps, fewer
// for values of many levels.
func (c *boundedSchema) validate(v any) (err error) {
	if c == nil {
		return nil
	}
	v = violation.Bounded(v)
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		if r := recover(); r == errSteps { //nolint:errorlint // the panic of spend
			err = nil
		} else if r != nil {
			panic(r)
		}
	}()
	c.stepsLeft = maxSteps / (1 + levels(v)/stepDepth)
	return c.schema.Validate(v)
}

// levels returns how deeply lists and objects are nested in a value.
func levels(v any) (n int) {
	switch v := v.(type) {
	case map[string]any:
		for member := range maps.Values(v) {
			n = max(n, levels(member))
		}
	case []any:
		for element := range slices.Values(v) {
			n = max(n, levels(element))
		}
	default:
		return 0
	}
	return n + 1
}

// Limits of a schema. The library's time to compile it is proportional to the square of the number of its parts, and
// each of them has its path. Its time to apply a schema is proportional to the number of schemas that led to it for the
// same value.
const (
	maxParts = 5000
	maxPaths = 4 << 20 // bytes
	maxChain = 500
)

// countable reports whether the library compiles a schema in bounded time and memory, and whether count reaches every
// schema that a validation can reach.
func countable(doc any) bool {
	text, err := json.Marshal(doc)
	if err != nil || bytes.Contains(text, []byte(`"$dynamicRef"`)) || bytes.Contains(text, []byte(`"$recursiveRef"`)) {
		return false
	}
	parts, paths := 0, 0
	var visit func(v any, path int)
	visit = func(v any, path int) {
		switch v := v.(type) {
		case map[string]any:
			parts, paths = parts+1, paths+path
			for name, member := range v {
				visit(member, path+1+len(name))
			}
		case []any:
			for _, element := range v {
				visit(element, path+len("/0000"))
			}
		case bool:
			parts, paths = parts+1, paths+path
		}
	}
	visit(doc, 0)
	return parts <= maxParts && paths <= maxPaths
}

// longestChain returns how many schemas follow each other that apply to the same value. The result is more than
// maxChain if one of them follows itself: such a schema would accept no value at all.
func longestChain(schemas map[*jsonschema.Schema]bool) (longest int) {
	length := map[*jsonschema.Schema]int{nil: 0}
	var visit func(s *jsonschema.Schema) int
	visit = func(s *jsonschema.Schema) int {
		if n, ok := length[s]; ok {
			return n
		}
		length[s] = maxChain // while it is visited
		next := slices.Concat([]*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else}, s.AllOf, s.AnyOf, s.OneOf,
			slices.Collect(maps.Values(s.DependentSchemas)))
		for _, dependency := range s.Dependencies {
			if schema, ok := dependency.(*jsonschema.Schema); ok {
				next = append(next, schema)
			}
		}
		n := 0
		for _, follower := range next {
			n = max(n, visit(follower))
		}
		length[s] = n + 1
		return n + 1
	}
	for s := range schemas {
		longest = max(longest, visit(s))
	}
	return longest
}

// namesOf returns how many names a schema lists for objects.
func namesOf(s *jsonschema.Schema) int {
	n := len(s.Required) + len(s.Dependencies) + len(s.DependentSchemas) + len(s.DependentRequired)
	for _, d := range s.Dependencies {
		if names, ok := d.([]string); ok {
			n += len(names)
		}
	}
	for _, names := range s.DependentRequired {
		n += len(names)
	}
	return n
}

// checks are the keywords of a schema that the library would check without counting steps.
type checks struct {
	never   bool     // the schema is false
	types   []string // nil allows all
	values  []any    // of enum
	allowed map[string]bool
	unique  bool
	names   int // that the schema lists

	constant    any
	constantKey string // empty without const
}

func newChecks(s *jsonschema.Schema) checks {
	k := checks{never: s.Bool != nil && !*s.Bool, unique: s.UniqueItems, names: namesOf(s)}
	if s.Types != nil {
		k.types = s.Types.ToStrings()
	}
	if s.Enum != nil {
		k.values, k.allowed = s.Enum.Values, map[string]bool{}
		for _, v := range k.values {
			k.allowed[string(appendKey(nil, v))] = true
		}
	}
	if s.Const != nil {
		k.constant, k.constantKey = *s.Const, string(appendKey(nil, *s.Const))
	}
	return k
}

// check returns the first violation by v, or nil.
func (k *checks) check(c *boundedSchema, v any) jsonschema.ErrorKind {
	if k.never {
		return &kind.FalseSchema{}
	}
	if k.types != nil {
		got := typeOf(v)
		whole := got == "number" && slices.Contains(k.types, "integer") && isWhole(v)
		if !whole && !slices.Contains(k.types, got) {
			return &kind.Type{Got: got, Want: k.types}
		}
	}
	if k.constantKey != "" || k.allowed != nil {
		key := c.key(v)
		if k.constantKey != "" && key != k.constantKey {
			return &kind.Const{Got: v, Want: k.constant}
		}
		if k.allowed != nil && !k.allowed[key] {
			return &kind.Enum{Got: v, Want: k.values}
		}
	}
	if list, ok := v.([]any); ok && k.unique {
		first := map[string]int{}
		for i, element := range list {
			key := c.key(element)
			if j, twice := first[key]; twice {
				return &kind.UniqueItems{Duplicates: [2]int{j, i}}
			}
			first[key] = i
		}
	}
	return nil
}

// key returns a text that is the same for equal JSON values only.
func (c *boundedSchema) key(v any) string {
	key := appendKey(nil, v)
	c.spend(1 + len(key)/stepKey)
	return string(key)
}
