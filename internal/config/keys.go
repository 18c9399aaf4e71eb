package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// key is a setting whose value is one line of text, so that variables and flags can set it.
type key struct {
	path  string        // as in the file, such as nats.url
	value reflect.Value // settable
	env   []string      // the variables that set it, CODEFLEET_… first
}

func (k key) isSecret() bool { return k.value.Type() == secretType }

// isHeader reports whether requests may carry the value, as a token, a password or a header. They do not carry the
// environment variables of MCP servers, which may have several lines.
func (k key) isHeader() bool { return k.isSecret() && !strings.Contains(k.path, ".env.") }

// keysOf returns the keys of c in the order of the struct fields.
func keysOf(c *Config) []key {
	var keys []key
	var walk func(v reflect.Value, prefix string)
	walk = func(v reflect.Value, prefix string) {
		for i := range v.NumField() {
			name, field := yamlName(v.Type().Field(i)), v.Field(i)
			switch path := prefix + name; {
			case name == "":
			case isScalar(field.Type()):
				keys = append(keys, key{path, field, envNames(path, v.Type().Field(i))})
			case field.Kind() == reflect.Struct:
				walk(field, path+".")
			}
		}
	}
	walk(reflect.ValueOf(c).Elem(), "")
	return keys
}

func yamlName(f reflect.StructField) string {
	if name := f.Tag.Get("yaml"); name != "-" {
		return name
	}
	return ""
}

const envPrefix = "CODEFLEET_"

// envNames returns the variables of a setting: the name derived from its path, then its other names: those of earlier
// versions, and those that other programs use.
func envNames(path string, f reflect.StructField) []string {
	names := []string{envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))}
	if extra := f.Tag.Get("env"); extra != "" {
		names = append(names, strings.Split(extra, ",")...)
	}
	return names
}

// didYouMean returns the end of a message about an unknown name: the nearest known name, if one is similar.
func didYouMean(name string, known []string) string {
	if best := text.Nearest(name, known, max(2, len(name)/3)); best != "" {
		return fmt.Sprintf("; did you mean %s?", best)
	}
	return ""
}

// Value is an effective setting as `config show` prints it, with secrets hidden.
type Value struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	Origin
}

// Values returns all effective settings with their origins, in the order of the struct fields.
func (c *Config) Values() []Value {
	var out []Value
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		switch {
		case isScalar(v.Type()):
			if v.Kind() == reflect.Pointer {
				if v.IsNil() {
					return
				}
				v = v.Elem()
			}
			out = append(out, Value{path, format(path, v), c.Origin(path)})
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				if name := yamlName(v.Type().Field(i)); name != "" {
					walk(v.Field(i), strings.TrimPrefix(path+"."+name, "."))
				}
			}
		case v.Kind() == reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
			}
		case v.Kind() == reflect.Map:
			for _, k := range sortedKeys(v) {
				walk(v.MapIndex(k), path+"."+k.String())
			}
		}
	}
	walk(reflect.ValueOf(c).Elem(), "")
	return out
}

// byKey returns the effective values by their keys.
func (c *Config) byKey() map[string]string {
	values := map[string]string{}
	for _, v := range c.Values() {
		values[v.Key] = v.Value
	}
	return values
}

func sortedKeys(m reflect.Value) []reflect.Value {
	return slices.SortedFunc(slices.Values(m.MapKeys()), func(a, b reflect.Value) int {
		return cmp.Compare(a.String(), b.String())
	})
}
