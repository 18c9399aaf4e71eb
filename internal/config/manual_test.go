package config

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "write config.example.yaml and the tables of docs/configuration.md")

const (
	examplePath = "../../config.example.yaml"
	docsPath    = "../../docs/configuration.md"
)

// TestExampleFile compares config.example.yaml with the structs. The file must load to the defaults, both unchanged and
// with every setting uncommented.
func TestExampleFile(t *testing.T) {
	text := example(fieldComments(t))
	compareOrUpdate(t, examplePath, text)

	env := []string{"HOME=/home/u", "CODEFLEET_WORKER_NAME=w"}
	want, err := Load(Source{Env: env, DotEnv: os.DevNull})
	if err != nil {
		t.Fatal(err)
	}
	// The samples of hashes are invalid on purpose, so that no fleet accepts a token that the manual names.
	hash := strings.Repeat("0123456789abcdef", 4)
	uncommented := regexp.MustCompile(`(?m)^( *)#([^ #].*)$`).ReplaceAllString(text, "$1$2")
	uncommented = strings.ReplaceAll(uncommented, "HASH-OF-YOUR-TOKEN", hash)
	if uncommented == text {
		t.Fatal("the example has no commented setting, want some")
	}
	for name, text := range map[string]string{"as shipped": text, "uncommented": uncommented} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Load(Source{File: path, Env: env, DotEnv: os.DevNull})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ignore := gocmp.FilterPath(func(p gocmp.Path) bool {
			ignored := []string{
				".origins", ".source", ".files", ".filesRead", ".Warnings", ".Tenants", ".Profiles", ".MCPServers",
				".Operators", ".Rules",
			}
			return slices.Contains(ignored, p.Last().String()) || p.String() == "Pools"
		}, gocmp.Ignore())
		if diff := gocmp.Diff(want, got, ignore, cmpopts.EquateEmpty(), gocmp.AllowUnexported(Config{})); diff != "" {
			t.Errorf("%s: differs from the defaults (-want +got):\n%s", name, diff)
		}
	}
}

// TestManual compares the tables of docs/configuration.md with the structs.
func TestManual(t *testing.T) {
	data, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	text := replaceSection(t, string(data), "settings", settingsTable(fieldComments(t)))
	text = replaceSection(t, text, "earlier names", earlierTable())
	if bare := regexp.MustCompile("(?m)^\\| (`[^|]*`) \\| [^|]* \\|  \\|").FindAllString(text, -1); bare != nil {
		t.Errorf("settings without a comment: %q", bare)
	}
	compareOrUpdate(t, docsPath, text)
}

// TestListedVariables checks that each variable in docs/configuration.md sets a setting.
func TestListedVariables(t *testing.T) {
	data, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	settable := map[string]bool{}
	for _, k := range keysOf(Default()) {
		for _, name := range k.env {
			settable[name] = true
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `([^`]*)` .* \\| ([^|]*) \\|$").FindAllStringSubmatch(string(data), -1)
	if len(rows) < 100 {
		t.Fatalf("%s has %d rows, want the table of settings", docsPath, len(rows))
	}
	for _, row := range rows {
		for _, name := range regexp.MustCompile("`([A-Z0-9_]+)`").FindAllStringSubmatch(row[2], -1) {
			if !settable[name[1]] {
				t.Errorf("%s lists %s for %s, which it does not set", docsPath, name[1], row[1])
			}
		}
	}
}

func compareOrUpdate(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is out of date: run go test ./internal/config -update\n%s", path, diff)
	}
}

// replaceSection replaces the text between the marks of name.
func replaceSection(t *testing.T, text, name, content string) string {
	t.Helper()
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	before, rest, ok := strings.Cut(text, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no marks for %s", docsPath, name)
	}
	return before + begin + content + end + after
}

// fieldComments returns the comments of struct fields, by "Type.Field".
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	comments := map[string]string{}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range s.Fields.List {
					if len(field.Names) == 0 {
						continue
					}
					key := spec.Name.Name + "." + field.Names[0].Name
					comments[key] = strings.Join(strings.Fields(field.Doc.Text()), " ")
				}
			}
			return false
		})
	}
	return comments
}

const exampleHeader = `# Settings of codefleet. Copy to config.yaml and uncomment what you change; the values shown are the
# defaults, or examples for settings without one. Variables, .env and flags take precedence over this
# file. docs/configuration.md lists the variables. Generated by: go test ./internal/config -update
`

// example returns config.example.yaml. In a setting, no space follows the #.
func example(comments map[string]string) string {
	var b strings.Builder
	b.WriteString(exampleHeader)
	var walk func(v reflect.Value, path, indent, mark string)
	walk = func(v reflect.Value, path, indent, mark string) {
		for i := range v.NumField() {
			f, field := v.Type().Field(i), v.Field(i)
			name := yamlName(f)
			if name == "" {
				continue
			}
			if indent == "" {
				b.WriteString("\n")
			}
			at := join(path, name)
			b.WriteString(wrap(meaning(at, comments[v.Type().Name()+"."+f.Name]), indent+"# "))
			switch {
			case isScalar(f.Type):
				value := cmp.Or(f.Tag.Get("sample"), defaultText(field))
				fmt.Fprintf(&b, "%s#%s\n", indent, strings.TrimRight(name+": "+value, " "))
			case f.Type.Kind() == reflect.Struct:
				fmt.Fprintf(&b, "%s%s%s:\n", indent, mark, name)
				walk(field, at, indent+"  ", mark)
			case f.Type.Elem().Kind() == reflect.String: // variables, headers
				fmt.Fprintf(&b, "%s#%s: {}\n", indent, name)
			case f.Type.Kind() == reflect.Map:
				sample := cmp.Or(map[string]string{"pools": "science", "profiles": "large"}[name], "acme")
				fmt.Fprintf(&b, "%s#%s:\n%s  #%s:\n", indent, name, indent, sample)
				walk(reflect.New(f.Type.Elem()).Elem(), at, indent+"    ", "#")
			default: // a list of structs, with the dash on its own line so that the fields are aligned
				fmt.Fprintf(&b, "%s#%s:\n%s  #-\n", indent, name, indent)
				walk(reflect.New(f.Type.Elem()).Elem(), at, indent+"    ", "#")
			}
		}
	}
	walk(reflect.ValueOf(Default()).Elem(), "", "", "")
	return b.String()
}

// meaning returns the comment of a setting, with a note if the setting has no effect yet.
func meaning(path, comment string) string {
	if slices.Contains(noEffectYet, path) {
		comment += " The setting has no effect yet."
	}
	return comment
}

func defaultText(v reflect.Value) string {
	if v.Kind() == reflect.Pointer && v.IsNil() || v.Kind() == reflect.Map {
		return ""
	}
	text := format("", v)
	if v.Type() == stringsType {
		return "[" + text + "]"
	}
	return text
}

// wrap breaks text into lines of at most 100 columns that begin with prefix.
func wrap(text, prefix string) string {
	var b strings.Builder
	line := prefix
	for word := range strings.FieldsSeq(text) {
		if len(line)+len(word) > 100 {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = prefix
		}
		line += word + " "
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
	return b.String()
}

func settingsTable(comments map[string]string) string {
	var b strings.Builder
	b.WriteString("| setting | default | meaning | variables |\n|---|---|---|---|\n")
	var walk func(v reflect.Value, path string, vars bool)
	walk = func(v reflect.Value, path string, vars bool) {
		for i := range v.NumField() {
			f, field := v.Type().Field(i), v.Field(i)
			name := yamlName(f)
			if name == "" {
				continue
			}
			at := join(path, name)
			switch {
			case isScalar(f.Type) || f.Type.Kind() == reflect.Map && f.Type.Elem().Kind() == reflect.String:
				names := "–"
				if vars && isScalar(f.Type) {
					names = code(envNames(at, f)...)
				}
				if f.Type == secretType && vars {
					names += " (or `…_FILE`)"
				}
				comment := strings.ReplaceAll(meaning(at, comments[v.Type().Name()+"."+f.Name]), "|", `\|`)
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", at, code(defaultText(field)), comment, names)
			case f.Type.Kind() == reflect.Struct:
				walk(field, at, vars)
			case f.Type.Kind() == reflect.Map:
				walk(reflect.New(f.Type.Elem()).Elem(), at+".NAME", false)
			default:
				walk(reflect.New(f.Type.Elem()).Elem(), at+"[]", false)
			}
		}
	}
	walk(reflect.ValueOf(Default()).Elem(), "", true)
	return b.String()
}

func earlierTable() string {
	var b strings.Builder
	b.WriteString("| name | meaning now |\n|---|---|\n")
	rows := map[string]string{
		"`MCP_SERVER_<NAME>_URL`": "kept: adds `mcp_servers` NAME, or sets its `url`; " +
			"NAME becomes lower case, with `-` for `_`",
	}
	for _, k := range keysOf(Default()) {
		for _, name := range k.env[1:] {
			if !strings.HasPrefix(name, "OTEL_") && !strings.HasPrefix(name, envPrefix) {
				rows[code(name)] = "kept: `" + k.path + "`"
			}
		}
	}
	for name, g := range retiredKeys {
		rows[code(name)] = g.fate
	}
	for name, g := range retiredVars {
		rows[code(name)] = g.fate
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&b, "| %s | %s |\n", name, rows[name])
	}
	return b.String()
}

func code(names ...string) string {
	var parts []string
	for _, n := range names {
		if n != "" && n != "[]" {
			parts = append(parts, "`"+n+"`")
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "–")
}
