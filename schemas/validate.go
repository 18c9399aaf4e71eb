package schemas

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/codefleet/codefleet/internal/strictjson"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/violation"
)

// Invalid is a place where a document violates its schema.
type Invalid struct {
	Path    string // JSON Pointer (RFC 6901) into the document; "" is the whole document
	Message string
}

// InvalidError lists places where a document violates its schema, sorted by path. If it leaves out others, its last
// element says so.
type InvalidError struct {
	Schema string
	At     []Invalid
}

func (e *InvalidError) Error() string {
	parts := make([]string, len(e.At))
	for i, at := range e.At {
		parts[i] = fmt.Sprintf("%s: %s", cmp.Or(at.Path, "/"), at.Message)
	}
	return strings.Join(parts, "; ")
}

var compiled = sync.OnceValues(compile)

func compile() (map[string]*jsonschema.Schema, error) {
	names, err := fs.Glob(files, "*.json")
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.AssertContent()
	for _, n := range names {
		data, err := files.ReadFile(n)
		if err != nil {
			return nil, err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("schema %s: %w", n, err)
		}
		if err := c.AddResource(n, doc); err != nil {
			return nil, fmt.Errorf("schema %s: %w", n, err)
		}
	}
	all := make(map[string]*jsonschema.Schema, len(names))
	for _, n := range names {
		if all[n], err = c.Compile(n); err != nil {
			return nil, fmt.Errorf("schema %s: %w", n, err)
		}
	}
	return all, nil
}

// Text returns the JSON Schema with the given name.
func Text(schema string) ([]byte, error) { return files.ReadFile(schema) }

// Validate checks a JSON document against the named schema. It returns an *InvalidError that lists the first
// violations, or another error if data is not JSON.
func Validate(schema string, data []byte) error {
	all, err := compiled()
	if err != nil {
		return err
	}
	s, ok := all[schema]
	if !ok {
		return fmt.Errorf("schema %q: %w", schema, fs.ErrNotExist)
	}
	if !utf8.Valid(data) { // Go's decoder would replace invalid characters
		return errors.New("not valid JSON: it is not UTF-8")
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("not valid JSON: %w", err)
	}
	if userWritten[schema] {
		if found := measure(s, doc); found != nil {
			return &InvalidError{Schema: schema, At: []Invalid{found.truncated()}}
		}
	}
	return asInvalid(schema, s.Validate(violation.Bounded(doc)))
}

// Decode validates data against the named schema and decodes it into v, which must point to a zero value.
func Decode(schema string, data []byte, v any) error {
	if err := Validate(schema, data); err != nil {
		return err
	}
	// encoding/json refuses integers such as 512.0, which the schemas permit, and accepts duplicate names.
	return strictjson.DecodeOpen(data, v)
}

const (
	maxListed      = 20  // violations that an InvalidError lists
	maxInvalidText = 500 // bytes of each path and each message: both may contain values of the document
)

// violated is a place at which the validator has found a violation.
type violated struct {
	at      []string
	message func() string
}

// asInvalid returns an *InvalidError if err is the validator's list of violations, and else err itself.
func asInvalid(schema string, err error) error {
	ve, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return err
	}
	var all []violated
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if k, ok := e.ErrorKind.(*kind.OneOf); ok {
			file, pointer, _ := strings.Cut(e.SchemaURL, "#")
			if properties := alternatives()[path.Base(file)+"#"+pointer]; properties != nil {
				all = append(all, violated{e.InstanceLocation, func() string { return exactlyOne(properties, k) }})
				return
			}
		}
		if _, ofName := e.ErrorKind.(*kind.PropertyNames); !ofName && len(e.Causes) > 0 {
			for _, c := range e.Causes {
				_, ofAlternatives := c.ErrorKind.(*kind.OneOf)
				if ofAlternatives && slices.ContainsFunc(e.Causes, isWrongType) {
					continue // required permits a value that is not an object, so every alternative matches it
				}
				walk(c)
			}
			return
		}
		for _, leaf := range violation.Leaves(e) {
			describe := func() string { return violation.Describe(leaf.ErrorKind) }
			all = append(all, violated{leaf.InstanceLocation, describe})
		}
	}
	walk(ve)
	slices.SortStableFunc(all, func(a, b violated) int { return slices.Compare(a.at, b.at) })
	return &InvalidError{Schema: schema, At: listed(all)}
}

func isWrongType(e *jsonschema.ValidationError) bool {
	_, is := e.ErrorKind.(*kind.Type)
	return is
}

// listed returns the first violations, without duplicates.
func listed(all []violated) []Invalid {
	var list []Invalid
	for _, v := range all {
		at := Invalid{Path: pointer(v.at), Message: v.message()}.truncated()
		if slices.Contains(list, at) {
			continue
		}
		if len(list) == maxListed {
			return append(sorted(list), Invalid{Message: "there are other violations: these are the first"})
		}
		list = append(list, at)
	}
	return sorted(list)
}

func sorted(list []Invalid) []Invalid {
	slices.SortFunc(list, func(a, b Invalid) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	return list
}

// truncated returns i with at most maxInvalidText bytes of its texts.
func (i Invalid) truncated() Invalid {
	return Invalid{Path: text.Truncate(i.Path, maxInvalidText), Message: text.Truncate(i.Message, maxInvalidText)}
}

// alternatives returns the names of the properties of which an object must have exactly one, by the location of the
// schema that says so.
var alternatives = sync.OnceValue(func() map[string][]string {
	found := map[string][]string{}
	for _, name := range []string{TaskV1, WorkflowV1} {
		var doc any
		if data, err := files.ReadFile(name); err == nil && json.Unmarshal(data, &doc) == nil { // compile has read it
			findAlternatives(name+"#", doc, found)
		}
	}
	return found
})

// findAlternatives adds the alternatives of v, the schema at a location, and those of its members.
func findAlternatives(at string, v any, found map[string][]string) {
	members, _ := v.(map[string]any)
	for name, member := range members {
		findAlternatives(at+"/"+text.EncodeToken(name), member, found)
	}
	var properties []string
	list, _ := members["oneOf"].([]any)
	for _, alternative := range list {
		only, _ := alternative.(map[string]any)
		if required, _ := only["required"].([]any); len(required) == 1 {
			properties = append(properties, fmt.Sprint(required[0]))
		}
	}
	if len(list) > 0 && len(properties) == len(list) {
		found[at] = properties
	}
}

// exactlyOne returns the message for an object that must have exactly one of several properties. It is clearer than a
// list of missing properties.
func exactlyOne(properties []string, k *kind.OneOf) string {
	last := len(properties) - 1
	rule := "want exactly one of " + strings.Join(properties[:last], ", ") + " and " + properties[last]
	if len(k.Subschemas) == 0 {
		return rule + "; it has none"
	}
	return rule + "; it has " + properties[k.Subschemas[0]] + " and " + properties[k.Subschemas[1]]
}

// pointer returns a JSON Pointer (RFC 6901).
func pointer(tokens []string) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteByte('/')
		b.WriteString(text.EncodeToken(t))
	}
	return b.String()
}
