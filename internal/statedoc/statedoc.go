// Package statedoc is what the fleet knows of the state files of a workspace: which names they may
// have, and how JSON and YAML turn into one another. It reads and writes no file itself.
package statedoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/codefleet/codefleet/internal/text"
)

// MaxSize is the most bytes of a state file.
const MaxSize = 4 << 20

// maxName is the most bytes of a name.
const maxName = 255

// ErrName is wrapped by errors of CheckName.
var ErrName = errors.New("not the name of a state file")

// CheckName accepts the names that state files have: NAME.json, NAME.yaml or NAME.yml at the top of a
// workspace, or anywhere below state/, in plain letters: what looks like another name is none.
func CheckName(name string) error {
	switch base, below := strings.CutPrefix(name, "state/"); {
	case len(name) > maxName:
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrName, len(name), maxName)
	case name != path.Clean(name) || strings.HasPrefix(name, "/") || strings.HasPrefix(name, ".."):
		return fmt.Errorf("%w: %q leads elsewhere", ErrName, name)
	case strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) >= 0:
		return fmt.Errorf("%w: %q: letters, digits, and . _ - / only", ErrName, name)
	case !below && strings.Contains(base, "/"):
		return fmt.Errorf("%w: %q: state files are at the top or below state/", ErrName, name)
	case strings.HasPrefix(path.Base(name), "."):
		return fmt.Errorf("%w: %q begins with a dot", ErrName, name)
	}
	if ext := path.Ext(name); ext != ".json" && !IsYAML(name) {
		return fmt.Errorf("%w: %q ends in %q, not in .json, .yaml or .yml", ErrName, name, ext)
	}
	return nil
}

func plain(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/", r)
}

// IsYAML reports whether a state file of this name is YAML; otherwise it is JSON.
func IsYAML(name string) bool {
	ext := path.Ext(name)
	return ext == ".yaml" || ext == ".yml"
}

// ToJSON returns the content of a state file as JSON.
func ToJSON(name string, content []byte) (json.RawMessage, error) {
	if !IsYAML(name) {
		if !json.Valid(content) {
			return nil, errors.New("it is not JSON")
		}
		return bytes.TrimSpace(content), nil
	}
	var v any
	if err := yaml.Unmarshal(content, &v); err != nil {
		return nil, fmt.Errorf("it is not YAML: %w", err)
	}
	if !fits(v, new(maxJSON)) {
		return nil, fmt.Errorf("it is YAML that repeats itself: as JSON it has more than %d bytes", maxJSON)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("it is YAML that JSON cannot say: %w", err)
	}
	return data, nil
}

// maxJSON is about how long JSON may be that YAML of MaxSize becomes.
const maxJSON = 4 * MaxSize

// fits reports whether v has at most some room bytes of text: an alias costs YAML three bytes, and
// JSON all that it stands for.
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

// FromJSON returns JSON as the content of a state file: an object, indented or as YAML.
func FromJSON(name string, data []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it is not JSON: something comes after it")
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("state is a JSON object, as in {\"step\": 2}")
	}
	if !IsYAML(name) {
		return append(text.IndentJSON(bytes.TrimSpace(data), "  ", MaxSize), '\n'), nil
	}
	if text.IndentedSize(data, yamlIndent) > MaxSize {
		return nil, errors.New("it is nested too deep for YAML: keep it in a .json file")
	}
	return yaml.Marshal(node(object))
}

const yamlIndent = 4 // of package yaml

// CheckYAML accepts YAML that is an object and that JSON can say too.
func CheckYAML(content []byte) error {
	data, err := ToJSON("x.yaml", content)
	if err == nil && (len(data) == 0 || data[0] != '{') {
		err = errors.New("state is a mapping, as in step: 2")
	}
	return err
}

// node is a JSON value as YAML that keeps numbers as they are written.
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
	case json.Number:
		n.Tag, n.Value = "!!float", v.String()
		if _, err := strconv.ParseInt(n.Value, 10, 64); err == nil { // larger ones are floats to YAML
			n.Tag = "!!int"
		}
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(v)
	default:
		n.Tag, n.Value = "!!null", "null"
	}
	return n
}
