// Package statedoc checks the names and the content of state documents, and converts them between JSON and YAML. It
// does not read or write files.
package statedoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/codefleet/codefleet/internal/state/ignore"
	"github.com/codefleet/codefleet/internal/strictjson"
	"github.com/codefleet/codefleet/internal/text"
)

// MaxSize is the maximum size of a state document in bytes.
const MaxSize = 4 << 20

// maxName is the maximum length of a name in bytes.
const maxName = 255

// ignored matches files that are part of no version of a workspace, whatever its .workspaceignore lists.
var ignored = ignore.Parse([]byte(strings.Join(ignore.Defaults, "\n")))

// NoPickle says why state documents are not pickles.
const NoPickle = "pickle is not supported, because reading a pickle runs whatever code its writer has put into it: " +
	"use json or yaml"

// ErrName is wrapped by the errors of CheckName.
var ErrName = errors.New("not the name of a state document")

// CheckName returns an error that wraps ErrName unless name is a valid name of a state document: NAME.json, NAME.yaml
// or NAME.yml, at the top of a workspace or below state/. Names are ASCII only, so that no two names look the same.
func CheckName(name string) error {
	switch base, below := strings.CutPrefix(name, "state/"); {
	case len(name) > maxName:
		return fmt.Errorf("%w: it is %d bytes; the limit is %d", ErrName, len(name), maxName)
	case name != path.Clean(name) || strings.HasPrefix(name, "/") || strings.HasPrefix(name, ".."):
		return fmt.Errorf("%w: %q is not a clean path within the workspace", ErrName, name)
	case strings.IndexFunc(name, func(r rune) bool { return !allowed(r) }) >= 0:
		return fmt.Errorf("%w: %q: only letters, digits, and . _ - / are allowed", ErrName, name)
	case !below && strings.Contains(base, "/"):
		return fmt.Errorf("%w: %q: it must be at the top of the workspace or below state/", ErrName, name)
	case strings.HasPrefix(path.Base(name), "."):
		return fmt.Errorf("%w: %q begins with a dot", ErrName, name)
	case ignored.MatchBelow(name):
		return fmt.Errorf("%w: %q: no version of a workspace has files below %s", ErrName, name,
			strings.Join(ignore.Defaults, ", "))
	}
	ext := path.Ext(name)
	if ext == ".pkl" || ext == ".pickle" {
		return fmt.Errorf("%w: %q: %s", ErrName, name, NoPickle)
	}
	if ext != ".json" && !IsYAML(name) {
		return fmt.Errorf("%w: %q ends in %q, not in .json, .yaml or .yml", ErrName, name, ext)
	}
	return nil
}

func allowed(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/", r)
}

// IsYAML reports whether a state document of this name is YAML. Otherwise it is JSON.
func IsYAML(name string) bool {
	ext := path.Ext(name)
	return ext == ".yaml" || ext == ".yml"
}

// ToJSON returns the content of a state document as JSON that programs can decode. It returns an error for a file with
// several YAML documents, because to save the state of the first would remove the others.
func ToJSON(name string, content []byte) (json.RawMessage, error) {
	data := bytes.Trim(content, " \t\r\n") // JSON has no other white space
	if IsYAML(name) {
		var err error
		if data, err = fromYAML(content); err != nil {
			return nil, err
		}
	} else if !json.Valid(data) {
		return nil, errors.New("it is not JSON")
	}
	if err := strictjson.Check(data); err != nil {
		return nil, err
	}
	return data, nil
}

func fromYAML(content []byte) ([]byte, error) {
	dec := yaml.NewDecoder(bytes.NewReader(content))
	var v any
	if err := dec.Decode(&v); err != nil && !errors.Is(err, io.EOF) { // an empty file is null
		return nil, fmt.Errorf("it is not YAML: %w", err)
	}
	switch err := dec.Decode(new(yaml.Node)); {
	case err == nil:
		return nil, errors.New("it has more than one YAML document: move the others to files of their own")
	case !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("it is not YAML: %w", err)
	}
	if !fits(v, new(maxJSON)) {
		return nil, fmt.Errorf("its YAML aliases expand to more than %d bytes of JSON", maxJSON)
	}
	data, err := json.Marshal(withFloats(v))
	if err != nil {
		return nil, fmt.Errorf("its YAML cannot be converted to JSON: %w", err)
	}
	return data, nil
}

// withFloats returns v with floats that JSON marks as such: json.Marshal writes 1.0 as 1, and Python would read an int.
func withFloats(v any) any {
	switch v := v.(type) {
	case float64:
		number, err := json.Marshal(v)
		if err == nil && !bytes.ContainsAny(number, ".e") {
			return json.RawMessage(append(number, ".0"...))
		}
	case []any:
		for i := range v {
			v[i] = withFloats(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = withFloats(v[key])
		}
	}
	return v
}

// maxJSON limits the size, in bytes, of JSON that is converted from YAML.
const maxJSON = 4 * MaxSize

// fits estimates whether the JSON of v takes at most *room bytes, and subtracts them from *room. The YAML of v may be
// much shorter: an alias takes three bytes in YAML, but in JSON it becomes the whole text that it refers to.
func fits(v any, room *int) bool {
	*room -= 2
	switch v := v.(type) {
	case string:
		*room -= len(v)
	case []any:
		for _, item := range v {
			if *room < 0 || !fits(item, room) {
				return false
			}
		}
	case map[string]any:
		for key, item := range v {
			if *room -= len(key); *room < 0 || !fits(item, room) {
				return false
			}
		}
	}
	return *room >= 0
}

// FromJSON converts a JSON object to the content of a state document, which is indented JSON or YAML.
func FromJSON(name string, data []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it is not JSON: text follows the object")
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("it must be a JSON object, as in {\"step\": 2}")
	}
	if err := strictjson.Check(data); err != nil {
		return nil, err
	}
	if !IsYAML(name) {
		return append(text.IndentJSON(bytes.TrimSpace(data), "  ", MaxSize), '\n'), nil
	}
	if text.IndentedSize(data, yamlIndent) > MaxSize {
		return nil, errors.New("it is nested too deeply for YAML: use a .json document")
	}
	content, err := yaml.Marshal(node(object))
	if err == nil && CheckYAML(content) != nil { // an integer above float64's range
		err = errors.New("a number is too large for YAML: use a .json document")
	}
	return content, err
}

const yamlIndent = 4 // the indent that package yaml writes

// CheckYAML returns an error unless content is a YAML mapping that can be converted to JSON.
func CheckYAML(content []byte) error {
	data, err := ToJSON("x.yaml", content)
	if err == nil && (len(data) == 0 || data[0] != '{') {
		err = errors.New("it must be a mapping, as in step: 2")
	}
	return err
}

// misread matches texts that package yaml does not quote although some readers take them for something else: the key
// that merges a mapping, and values of YAML 1.1, which Python's yaml reads.
var misread = regexp.MustCompile(`^(?:<<|=|(?i:y|yes|n|no|on|off)|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)$`)

// node converts a JSON value to YAML. Numbers keep their notation.
func node(v any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode}
	switch v := v.(type) {
	case map[string]any:
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
		for _, key := range slices.Sorted(maps.Keys(v)) {
			n.Content = append(n.Content, node(key), node(v[key]))
		}
	case []any:
		n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		for _, item := range v {
			n.Content = append(n.Content, node(item))
		}
	case string:
		n.SetString(v)
		n.Tag = "!!str"
		if misread.MatchString(v) {
			n.Style = yaml.DoubleQuotedStyle
		}
	case json.Number:
		n.Tag, n.Value = "!!float", v.String()
		_, tooLarge := strconv.ParseInt(n.Value, 10, 64)
		_, tooLargeUnsigned := strconv.ParseUint(n.Value, 10, 64)
		if tooLarge == nil || tooLargeUnsigned == nil { // YAML reads larger integers as floats
			n.Tag = "!!int"
		}
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(v)
	default:
		n.Tag, n.Value = "!!null", "null"
	}
	return n
}
