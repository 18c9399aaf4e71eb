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

// resolve returns the function that the program calls for a kind of tool, or "" if there is none, and the first
// selected tool of this kind, or nil.
func (w *writer) resolve(k toolKind) (function string, tool *codegen.Tool) {
	for i := range w.request.Tools {
		t := &w.request.Tools[i]
		var required []string
		for _, p := range t.Params {
			if p.Required {
				required = append(required, p.Name)
			}
		}
		signature := strings.ToLower(t.Server + "/" + t.Name + "(" + strings.Join(required, " ") + ")")
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

// readCall reads a tool's name with arguments: "add(2, 3)", "add(a=2, b=3)", "add with a 2 and b 3". It fails if
// several tools have the name.
func readCall(w *writer, t []token) (v value, ok bool) {
	tools, named := w.request.Tools, func(tool codegen.Tool) bool { return tool.Name == t[0].text }
	i := slices.IndexFunc(tools, named)
	if i < 0 || slices.ContainsFunc(tools[i+1:], named) {
		return v, false
	}
	rest := t[1:]
	for len(rest) > 0 && w.grammar.has("tool-word", rest[0]) {
		rest = rest[1:]
	}
	inParentheses := len(rest) > 1 && rest[0].is("(") && rest[len(rest)-1].is(")")
	if inParentheses {
		rest = rest[1 : len(rest)-1]
	}
	var arguments []string
	missing := slices.Clone(tools[i].Params)
	for _, part := range listed(rest) {
		name := ""
		if len(part) > 0 && (!inParentheses || len(part) > 1 && part[0].kind == word) {
			name, part = part[0].text, part[1:]
			if len(part) > 0 && part[0].is(":=") {
				part = part[1:]
			}
		}
		p := slices.IndexFunc(missing, func(p codegen.Param) bool { return p.Name == name || name == "" && p.Required })
		if p < 0 || !w.isArgument(missing[p], part) {
			return v, false
		}
		json, _ := w.grammar.readJSON(part)
		arguments = append(arguments, missing[p].Name+"="+pythonLiteral(json))
		missing = slices.Delete(missing, p, p+1)
	}
	if slices.ContainsFunc(missing, func(p codegen.Param) bool { return p.Required }) {
		return v, false
	}
	call := w.importTool(&tools[i]) + "(" + strings.Join(arguments, ", ") + ")"
	return value{text: tools[i].Name, py: call}, true
}

// isArgument reports whether tokens are a value of a parameter.
func (w *writer) isArgument(p codegen.Param, t []token) bool {
	json, ok := w.grammar.readJSON(t)
	pattern := types[strings.ToLower(p.Type)]
	return ok && (t[0].kind != word || w.grammar.has("constant", t[0])) && pattern != nil &&
		pattern.MatchString(json) && (len(p.Enum) == 0 || slices.Contains(p.Enum, t[0].text))
}

// types are the patterns of JSON values by the parameter's type in lower case.
var types = map[string]*regexp.Regexp{
	"str": regexp.MustCompile(`^"`), "float": numeral, "int": regexp.MustCompile(`^-?\d+$`),
	"bool": regexp.MustCompile(`^(?:true|false)$`), "any": regexp.MustCompile(``),
	"list[any]": regexp.MustCompile(`^\[`), "dict[str, any]": regexp.MustCompile(`^\{`),
}
