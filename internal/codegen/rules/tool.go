package rules

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/codegen"
)

// toolKind describes a tool that forms use: a pattern that its signature "server/name(required parameters)" must match
// in lower case, and the function of the prelude that replaces a missing tool.
type toolKind struct {
	signature *regexp.Regexp
	fallback  string
}

func parseToolKind(s string) toolKind {
	signature, fallback, _ := strings.Cut(s, " => ")
	return toolKind{regexp.MustCompile(signature + "$"), fallback}
}

// resolve returns the function that the program calls for a kind of tool, or "" if there is none, and the first
// selected tool of this kind, or nil.
func (w *writer) resolve(k toolKind) (function string, tool *codegen.Tool) {
	for i := range w.request.Tools {
		t := &w.request.Tools[i]
		signature := strings.ToLower(t.Server + "/" + t.Name + "(" + strings.Join(required(t), " ") + ")")
		if k.signature.MatchString(signature) {
			return w.importTool(t), t
		}
	}
	return k.fallback, nil
}

// importTool imports the function of a tool and returns the function's name in the program.
func (w *writer) importTool(t *codegen.Tool) string {
	name, statement := t.FunctionName(), importOf(t)
	if old := w.imports[name]; old != statement && (old != "" || w.names["_"+name] || reserved(name)) {
		name = t.ModuleName() + "_" + name
		statement += " as " + name
	}
	w.imports[name] = statement
	return name
}

func importOf(t *codegen.Tool) string {
	return "from servers." + t.ModuleName() + " import " + t.FunctionName()
}

func required(t *codegen.Tool) (names []string) {
	for _, p := range t.Params {
		if p.Required {
			names = append(names, p.Name)
		}
	}
	return names
}

func hasParam(t *codegen.Tool, name string) bool {
	return t != nil && slices.ContainsFunc(t.Params, func(p codegen.Param) bool { return p.Name == name })
}

// callTool reads "add(2, 3)", "find_customer with name 'Ada'" and "find customer name 'Ada'": every word belongs to the
// tool's name, to a parameter or to a value. It fails if the words fit several tools. "user" fits delete_users if no
// tool is called delete_user.
func (w *writer) callTool(m match) bool {
	var found []toolCall
	for _, ending := range []string{"", "s"} {
		for i := range w.request.Tools {
			c := toolCall{w: w, tool: &w.request.Tools[i], given: map[string]bool{}, ending: ending}
			if c.read(m["rest"].tokens) {
				found = append(found, c)
			}
		}
		if len(found) > 0 {
			break
		}
	}
	if len(found) != 1 {
		return false
	}
	c := found[0]
	m["tool"] = value{text: c.tool.Name, py: w.importTool(c.tool) + "(" + strings.Join(c.arguments, ", ") + ")"}
	return true
}

// types are the patterns of JSON values by the parameter's type.
var types = map[string]*regexp.Regexp{
	"str": regexp.MustCompile(`^"`), "float": numeral, "int": regexp.MustCompile(`^-?\d+$`),
	"bool": regexp.MustCompile(`^(?:true|false)$`), "list": regexp.MustCompile(`^\[`), "dict": regexp.MustCompile(`^\{`),
}

// fits reports whether a JSON value is of a parameter's type, such as Optional[List[str]]. Other types than those in
// types have any value.
func fits(value, kind string) bool {
	kind, inner, _ := strings.Cut(strings.TrimSuffix(strings.ToLower(kind), "]"), "[")
	var items []json.RawMessage
	switch pattern := types[kind]; {
	case kind == "optional":
		return value == "null" || fits(value, inner)
	case kind == "list" && json.Unmarshal([]byte(value), &items) == nil && items != nil:
		return !slices.ContainsFunc(items, func(item json.RawMessage) bool { return !fits(string(item), inner) })
	default:
		return pattern == nil || pattern.MatchString(value)
	}
}

// toolCall is a call while its arguments are read.
type toolCall struct {
	w         *writer
	tool      *codegen.Tool
	given     map[string]bool
	ending    string // of words, which is ignored
	arguments []string
}

// add adds an argument for the named parameter, or for the next required one if name is empty.
func (c *toolCall) add(name string, t []token) bool {
	i := slices.IndexFunc(c.tool.Params, func(p codegen.Param) bool {
		return !c.given[p.Name] && (p.Name == name || name == "" && p.Required)
	})
	if i < 0 || len(t) == 0 {
		return false
	}
	p := c.tool.Params[i]
	value, ok := c.w.grammar.readJSON(t)
	python, isValue := pythonLiteral(value)
	if !ok || !isValue || !c.isValue(t[0]) || !fits(value, p.Type) ||
		len(p.Enum) > 0 && !slices.Contains(p.Enum, t[0].text) {
		return false
	}
	c.given[p.Name] = true
	c.arguments = append(c.arguments, p.Name+"="+python)
	return true
}

// read reads the words of the tool's name and "parameter value" pairs. In parentheses after the name, it also reads
// values without a name.
func (c *toolCall) read(t []token) bool {
	called := len(t) > 2 && t[1].is("(") && t[len(t)-1].is(")")
	if called {
		t = slices.Concat(t[:1], t[2:len(t)-1])
	}
	var name []string
	for at := 0; at < len(t); at++ {
		parameter, size := c.parameter(t[at:])
		switch {
		case t[at].is(",:"):
		case parameter != "" || called && at > 0 && c.isValue(t[at]):
			end := at + size + 1
			if t[at+size].is("-−") {
				end = min(end+1, len(t))
			}
			if !c.add(parameter, t[at+size:end]) {
				return false
			}
			at = end - 1
		case t[at].kind == word:
			name = append(name, t[at].text)
		default:
			return false
		}
	}
	missing := slices.ContainsFunc(required(c.tool), func(name string) bool { return !c.given[name] })
	return !missing && c.isNamed(name)
}

func (c *toolCall) isValue(t token) bool { return t.kind != word || c.w.grammar.has("constant", t) }

// parameter returns the parameter that tokens begin with, and the size of "name", "name is" or "name =" before a value.
func (c *toolCall) parameter(t []token) (name string, size int) {
	for _, p := range c.tool.Params {
		size := len(strings.Split(p.Name, "_"))
		if t[0].text == p.Name {
			size = 1
		} else if !strings.EqualFold(strings.ReplaceAll(p.Name, "_", " "), join(t[:min(size, len(t))])) {
			continue
		}
		if size < len(t) && (t[size].is(":=") || slices.Contains([]string{"is", "as", "of"}, t[size].lower)) {
			size++
		}
		if size < len(t) && c.isValue(t[size]) {
			return p.Name, size
		}
	}
	return "", 0
}

// isNamed reports whether words are those of the tool's name, in order. The server's name and words such as "tool" and
// "with" may precede and follow them, but only "a" and "an" may stand between them: "turn on" is no "turn".
func (c *toolCall) isNamed(words []string) bool {
	name, at := wordsOf(c.tool.Name), 0
	for _, word := range wordsOf(strings.Join(words, " ")) {
		isFiller := c.w.grammar.phrases["filler"][word] != "" || word == strings.ToLower(c.tool.Server)
		switch {
		case at < len(name) && strings.TrimSuffix(word, c.ending) == strings.TrimSuffix(name[at], c.ending):
			at++
		case word != "a" && word != "an" && (!isFiller || at > 0 && at < len(name)):
			return false
		}
	}
	return at == len(name)
}

func wordsOf(name string) []string {
	return strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return strings.ContainsRune(" _-.", r) })
}
