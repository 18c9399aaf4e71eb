package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/codefleet/codefleet/internal/limited"
	"github.com/codefleet/codefleet/internal/text"
)

// maxFile limits the size of the configuration and of files that it names.
const maxFile = 1 << 20

// readFile applies the configuration file.
func (l *loader) readFile(path string) {
	path = cmp.Or(path, l.lookup("CODEFLEET_CONFIG"))
	if path == "" {
		path = "config.yaml"
		if l.stamp(path); !exists(path) {
			return
		}
	}
	l.stamp(path)
	data, err := l.read(path)
	if err != nil {
		l.problem("", "", "%v", err)
		return
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF): // empty
		return
	case err != nil:
		where, message := yamlError(path, err)
		l.problem(where, "", "%s", message)
		return
	}
	f := &file{loader: l, path: path}
	f.node(doc.Content[0], reflect.ValueOf(l.cfg).Elem(), "")
	if err := dec.Decode(&doc); !errors.Is(err, io.EOF) {
		l.problem(path, "", "want one YAML document, without another one after ---")
	}
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

func yamlError(path string, err error) (where, message string) {
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		return path + ":" + m[1], "not valid YAML: " + strings.TrimPrefix(err.Error(), m[0])
	}
	return path, "not valid YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")
}

func readSmall(path string) ([]byte, error) {
	if strings.Contains(path, "://") {
		return nil, fmt.Errorf("%s is an address; want the path of a file", text.HideCredentials(path))
	}
	data, err := limited.ReadFile(path, maxFile)
	if errors.Is(err, limited.ErrTooLarge) {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, reason(err))
	}
	return data, nil
}

// file decodes a parsed configuration file into the structs, so that each problem has its line.
type file struct {
	*loader
	path string
}

func (f *file) where(n *yaml.Node) string { return fmt.Sprintf("%s:%d", f.path, n.Line) }

// node sets v, which is the setting or section at path, from n.
func (f *file) node(n *yaml.Node, v reflect.Value, path string) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Tag == "!!null" {
		return // a key without a value keeps the default
	}
	if n.Kind != yaml.ScalarNode {
		f.cfg.origins[path] = Origin{LayerFile, f.where(n)}
	}
	switch {
	case v.Kind() == reflect.Struct:
		f.mapping(n, v, path)
	case v.Kind() == reflect.Map:
		f.table(n, v, path)
	case v.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		f.list(n, v, path)
	case n.Kind == yaml.ScalarNode && isScalar(v.Type()):
		f.set(key{path: path, value: v}, n.Value, Origin{LayerFile, f.where(n)})
	case v.Kind() == reflect.Slice:
		f.problem(f.where(n), path, "want a list")
	default:
		f.problem(f.where(n), path, "want a single value")
	}
}

// mapping reads a section with known keys.
func (f *file) mapping(n *yaml.Node, v reflect.Value, path string) {
	fields, names := map[string]reflect.Value{}, []string(nil)
	for i := range v.NumField() {
		if name := yamlName(v.Type().Field(i)); name != "" {
			fields[name], names = v.Field(i), append(names, name)
		}
	}
	for k, value := range f.pairs(n, path) {
		at := join(path, k.Value)
		base, isFile := strings.CutSuffix(k.Value, "_file")
		switch {
		case fields[k.Value].IsValid():
			f.node(value, fields[k.Value], at)
		case isFile && fields[base].IsValid() && fields[base].Type() == secretType:
			f.secretFile(key{path: join(path, base), value: fields[base]}, value, hasKey(n, base))
		case retiredKeys[at].fate != "":
			f.retired(at, value)
		default:
			f.problem(f.where(k), at, "no such setting%s", f.hint(k.Value, path, names))
		}
	}
}

// hint suggests a similar name in the section, or the same name in another section.
func (f *file) hint(name, section string, names []string) string {
	if hint := didYouMean(name, names); hint != "" {
		return hint
	}
	for _, k := range f.keys {
		if leaf := k.path[strings.LastIndexByte(k.path, '.')+1:]; leaf == name {
			return fmt.Sprintf("; did you mean %s?", k.path)
		}
	}
	if section == "" {
		return ""
	}
	return fmt.Sprintf("; %s has %s", section, strings.Join(names, ", "))
}

// table reads a section whose keys the user chooses.
func (f *file) table(n *yaml.Node, v reflect.Value, path string) {
	m := reflect.MakeMap(v.Type())
	for k, value := range f.pairs(n, path) {
		elem := reflect.New(v.Type().Elem()).Elem()
		name, isFile := strings.CutSuffix(k.Value, "_file")
		if isFile = isFile && name != "" && elem.Type() == secretType; isFile {
			f.secretFile(key{path: join(path, name), value: elem}, value, hasKey(n, name))
		} else {
			name = k.Value
			f.node(value, elem, join(path, name))
		}
		m.SetMapIndex(reflect.ValueOf(name), elem)
	}
	v.Set(m)
}

func (f *file) list(n *yaml.Node, v reflect.Value, path string) {
	s := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		f.node(item, s.Index(i), fmt.Sprintf("%s[%d]", path, i))
	}
	v.Set(s)
}

// pairs yields the keys and values of a mapping, and reports a node that is not a mapping.
func (f *file) pairs(n *yaml.Node, path string) func(yield func(k, v *yaml.Node) bool) {
	return func(yield func(k, v *yaml.Node) bool) {
		if n.Kind != yaml.MappingNode {
			f.problem(f.where(n), path, "want `name: value` lines")
			return
		}
		lines := map[string]int{}
		for i := 0; i < len(n.Content); i += 2 {
			k := n.Content[i]
			if k.Tag == "!!merge" || k.Kind != yaml.ScalarNode {
				f.problem(f.where(k), path, "a key must be a string; merge keys are not supported")
				continue
			}
			if line := lines[k.Value]; line > 0 {
				f.problem(f.where(k), join(path, k.Value), "is set twice; the first time in line %d", line)
				continue
			}
			lines[k.Value] = k.Line
			if !yield(k, n.Content[i+1]) {
				return
			}
		}
	}
}

// secretFile reads a secret from the file that n names. both says that the value is set, too.
func (f *file) secretFile(k key, n *yaml.Node, both bool) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case both:
		f.problem(f.where(n), k.path, "set either the value or the file, not both")
	case n.Tag == "!!null":
	case n.Kind != yaml.ScalarNode:
		f.problem(f.where(n), k.path+"_file", "want a single value")
	default:
		f.fromFile(k, n.Value, Origin{LayerFile, f.where(n)})
	}
}

// hasKey reports whether a mapping has a key.
func hasKey(n *yaml.Node, name string) bool {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return true
		}
	}
	return false
}

// fromFile sets a secret from the content of a file, without white space around it, and returns it, or "" if the file
// cannot be read.
func (l *loader) fromFile(k key, path string, from Origin) (value string) {
	l.stamp(path)
	data, err := l.read(path)
	if err != nil {
		l.problem(from.Where, k.path+"_file", "%v", err)
		return ""
	}
	l.set(k, string(data), from)
	return strings.TrimSpace(string(data))
}

// readTokens sets the hashes of tokens that are in files.
func (l *loader) readTokens(path string, tokens []Token) {
	for i := range tokens {
		at, t := fmt.Sprintf("%s[%d]", path, i), &tokens[i]
		if t.File == "" {
			continue
		}
		where := l.cfg.Origin(at + ".file").Where
		data, err := l.read(t.File)
		token := strings.TrimSpace(string(data))
		switch {
		case t.SHA256 != "":
			l.problem(where, at, "set either sha256 or file, not both")
		case err != nil:
			l.problem(where, at+".file", "%v", err)
		case len(token) < 16:
			l.problem(where, at+".file", "a token needs at least 16 characters")
		default:
			sum := sha256.Sum256([]byte(token))
			t.SHA256 = Secret(hex.EncodeToString(sum[:]))
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
