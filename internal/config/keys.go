package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// key is one setting that a line of text can set, so that the environment and flags can too.
type key struct {
	path  string        // as in the file: nats.url
	value reflect.Value // settable
	env   []string      // its variables, ours first
}

func (k key) secret() bool { return k.value.Type() == secretType }

// keysOf lists the settings of c in the order of the structs.
func keysOf(c *Config) []key {
	var keys []key
	var walk func(v reflect.Value, prefix string)
	walk = func(v reflect.Value, prefix string) {
		for i := range v.NumField() {
			name, field := yamlName(v.Type().Field(i)), v.Field(i)
			switch path := prefix + name; {
			case name == "":
			case scalar(field.Type()):
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

// ours begins the names of our variables.
const ours = "CODEFLEET_"

// envNames are the variables of a setting: ours, made from its path, then those of earlier versions.
func envNames(path string, f reflect.StructField) []string {
	names := []string{ours + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))}
	if extra := f.Tag.Get("env"); extra != "" {
		names = append(names, strings.Split(extra, ",")...)
	}
	return names
}

// didYouMean ends a message about an unknown name with the nearest of the known ones.
func didYouMean(name string, known []string) string {
	if best := nearest(name, known); best != "" {
		return fmt.Sprintf("; did you mean %s?", best)
	}
	return ""
}

// nearest is the known name that takes the fewest edits, or "" when none is near.
func nearest(name string, known []string) string {
	best, distance := "", max(2, len(name)/3)+1
	for _, k := range slices.Sorted(slices.Values(known)) {
		if d := edits(strings.ToLower(name), strings.ToLower(k)); d < distance {
			best, distance = k, d
		}
	}
	return best
}

// edits is the number of insertions, deletions, replacements and swaps of neighbours between a and b.
func edits(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := 1
			if a[i-1] == b[j-1] {
				replace = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// Value is one effective setting, as `config show` prints it. Secrets are hidden.
type Value struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	Origin
}

// Values lists every effective setting with where it came from, by section, those of tenants and
// MCP servers by name.
func (c *Config) Values() []Value {
	var out []Value
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		switch {
		case scalar(v.Type()):
			if v.Kind() == reflect.Pointer {
				if v.IsNil() {
					return
				}
				v = v.Elem()
			}
			out = append(out, Value{path, format(v), c.Origin(path)})
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

func sortedKeys(m reflect.Value) []reflect.Value {
	return slices.SortedFunc(slices.Values(m.MapKeys()), func(a, b reflect.Value) int {
		return cmp.Compare(a.String(), b.String())
	})
}
