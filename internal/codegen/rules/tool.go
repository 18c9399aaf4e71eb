package rules

import (
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

// toolNamed returns the tool with a name, or nil if there is none or several have it.
func (w *writer) toolNamed(name string) *codegen.Tool {
	tools, has := w.request.Tools, func(t codegen.Tool) bool { return t.Name == name }
	i := slices.IndexFunc(tools, has)
	if i < 0 || slices.ContainsFunc(tools[i+1:], has) {
		return nil
	}
	return &tools[i]
}

// readCall reads a tool's name with arguments: "add(2, 3)", "add(a=2, b=3)", "add with a 2 and b 3".
func readCall(w *writer, t []token) (v value, ok bool) {
	tool := w.toolNamed(t[0].text)
	if tool == nil {
		return v, false
	}
	if t = t[1:]; len(t) > 0 && w.grammar.has("tool-word", t[0]) {
		t = t[1:]
	}
	if len(t) > 0 && t[0].lower == "with" {
		t = t[1:]
	}
	inParentheses := len(t) > 1 && t[0].is("(") && t[len(t)-1].is(")")
	if inParentheses {
		t = t[1 : len(t)-1]
	}
	var arguments []string
	missing := slices.Clone(tool.Params)
	for _, part := range listed(t) {
		name := ""
		if len(part) > 0 && (!inParentheses || len(part) > 1 && part[0].kind == word) {
			name, part = part[0].text, part[1:]
			if len(part) > 0 && (part[0].is(":=") || slices.Contains([]string{"is", "as", "of"}, part[0].lower)) {
				part = part[1:]
			}
		}
		i := slices.IndexFunc(missing, func(p codegen.Param) bool { return p.Name == name || name == "" && p.Required })
		if i < 0 {
			return v, false
		}
		python, ok := w.readArgument(missing[i], part)
		if !ok {
			return v, false
		}
		arguments = append(arguments, missing[i].Name+"="+python)
		missing = slices.Delete(missing, i, i+1)
	}
	if slices.ContainsFunc(missing, func(p codegen.Param) bool { return p.Required }) {
		return v, false
	}
	return value{text: tool.Name, py: w.importTool(tool) + "(" + strings.Join(arguments, ", ") + ")"}, true
}

// readArgument reads the value of a parameter, which has the parameter's type.
func (w *writer) readArgument(p codegen.Param, t []token) (python string, ok bool) {
	json, isValue := w.grammar.readJSON(t)
	pattern := types[strings.ToLower(p.Type)]
	if !isValue || t[0].kind == word && !w.grammar.has("constant", t[0]) ||
		pattern == nil || !pattern.MatchString(json) || len(p.Enum) > 0 && !slices.Contains(p.Enum, t[0].text) {
		return "", false
	}
	return pythonLiteral(json), true
}

// types are the patterns of JSON values by the parameter's type in lower case.
var types = map[string]*regexp.Regexp{
	"str": regexp.MustCompile(`^"`), "float": numeral, "int": regexp.MustCompile(`^-?\d+$`),
	"bool": regexp.MustCompile(`^(?:true|false)$`), "any": regexp.MustCompile(``),
	"list[any]": regexp.MustCompile(`^\[`), "dict[str, any]": regexp.MustCompile(`^\{`),
}
