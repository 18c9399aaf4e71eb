package pygen

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
)

// module is one generated file.
type module struct {
	source    Source
	function  string
	def       tools.Definition
	params    []parameter
	types     map[string]string // by the parameter's JSON name
	extra     string            // the type of additional arguments; empty if there are none
	result    string            // the type of the value that the program gets
	output    any               // the schema of that value
	typer     *typer
	signature string
}

func newModule(s Source, function string, d tools.Definition) *module {
	m := &module{source: s, function: function, def: d, types: map[string]string{}}
	m.typer = &typer{taken: map[string]int{function: 2}, used: map[string]bool{"Any": true, "Dict": true}}
	class := pascal(function)
	in := m.typer.view(decode(d.InputSchema), true)
	in.order = propertyOrder(d.InputSchema)
	params, extra := in.parameters()
	taken := map[string]int{}
	for _, exact := range []bool{true, false} { // parameters that keep their names come first
		for i, p := range params {
			if id := parameterName(p.jsonName); (id == p.jsonName) == exact {
				params[i].pythonName = unique(cmp.Or(id, "argument_"+shortHash(p.jsonName)), taken, reservedParameters)
			}
		}
	}
	m.params = params
	for i, p := range params {
		params[i].permitted = in.permitted(p.schema, 1)
		m.types[p.jsonName] = in.typeOf(p.schema, class+pascal(p.jsonName), 1)
	}
	if extra != nil {
		m.extra = in.anyOf(extra, class+"Extra", 1)
	}
	m.result = "Any"
	if len(d.OutputSchema) > 0 {
		output := decode(d.OutputSchema)
		out := m.typer.view(output, false)
		m.output = unwrap(output)
		m.result = out.typeOf(m.output, class+"Result", 0)
	}
	m.signature = fmt.Sprintf("%s(%s) -> %s", function, strings.Join(m.declarations(), ", "), m.result)
	return m
}

// unwrap returns the schema of the value that a program gets. Because results must be objects, servers
// wrap other values in a property "result" and mark the schema with "x-fastmcp-wrap-result".
func unwrap(output any) any {
	s, _ := output.(object)
	properties, _ := s["properties"].(object)
	if s["x-fastmcp-wrap-result"] == true && len(properties) == 1 && properties["result"] != nil {
		return properties["result"]
	}
	return output
}

// declarations returns the parameters as the signature declares them.
func (m *module) declarations() []string {
	var out []string
	for _, p := range m.params {
		if p.required {
			out = append(out, fmt.Sprintf("%s: %s", p.pythonName, m.types[p.jsonName]))
			continue
		}
		out = append(out, fmt.Sprintf("%s: %s = UNSET", p.pythonName, m.types[p.jsonName]))
	}
	if m.extra != "" {
		out = append(out, "**extra: "+m.extra)
	}
	return out
}

// render returns the content of the module's file.
func (m *module) render() []byte {
	var b bytes.Buffer
	title := oneLine(cmp.Or(m.def.Title, m.def.Description), 100)
	fmt.Fprintf(&b, "%s\n\nfrom __future__ import annotations\n\n",
		tools.PyDoc(m.source.Server+"/"+m.def.Name+": "+title, ""))
	fmt.Fprintf(&b, "from typing import %s\n\n", strings.Join(slices.Sorted(maps.Keys(m.typer.used)), ", "))
	b.WriteString("from client.mcp_client import call_mcp_tool\n")
	if slices.ContainsFunc(m.params, func(p parameter) bool { return !p.required }) {
		b.WriteString("from servers import UNSET, tool\n")
	} else {
		b.WriteString("from servers import tool\n")
	}
	fmt.Fprintf(&b, "\nDEFINITION = %q\n\n\n", m.def.Hash())
	for _, class := range m.typer.classes {
		b.WriteString(class + "\n\n")
	}
	b.WriteString("@tool\n" + m.defLine())
	b.WriteString(tools.PyDoc(m.doc(), "    ") + "\n")
	m.body(&b)
	return tools.Seal(tools.Header{
		Generator: tools.Generator, Server: m.source.Server, Tool: m.def.Name, Function: m.function,
		Hash: m.def.Hash(), Version: oneLine(m.source.About.Version, 60), Signature: m.signature,
	}, b.Bytes())
}

// defLine returns the def statement of the function, on several lines if it is long.
func (m *module) defLine() string {
	if len(m.signature) <= 100 {
		return "def " + m.signature + ":\n"
	}
	return fmt.Sprintf("def %s(\n    %s,\n) -> %s:\n", m.function, strings.Join(m.declarations(), ",\n    "), m.result)
}

func (m *module) body(b *bytes.Buffer) {
	var always []string // the arguments that are sent in each call
	for _, p := range m.params {
		if p.required {
			always = append(always, tools.PyString(p.jsonName)+": "+p.pythonName)
		} else if p.sent != "" {
			always = append(always, fmt.Sprintf("%s: %s if %s is UNSET else %[3]s", tools.PyString(p.jsonName),
				p.sent, p.pythonName))
		}
	}
	fmt.Fprintf(b, "    arguments: Dict[str, Any] = {%s}\n", strings.Join(always, ", "))
	for _, p := range m.params {
		if !p.required && p.sent == "" {
			fmt.Fprintf(b, "    if %s is not UNSET:\n        arguments[%s] = %s\n", p.pythonName,
				tools.PyString(p.jsonName), p.pythonName)
		}
	}
	if m.extra != "" {
		b.WriteString("    arguments.update(extra)\n")
	}
	fmt.Fprintf(b, "    return call_mcp_tool(%s, %s, arguments, DEFINITION)\n", tools.PyString(m.source.Server),
		tools.PyString(m.def.Name))
}

// doc returns the function's docstring: the description, effects, arguments and result of the tool.
func (m *module) doc() string {
	var b strings.Builder
	text := strings.TrimSpace(strings.ToValidUTF8(m.def.Description, "?"))
	if runes := []rune(text); len(runes) > 1500 {
		text = string(runes[:1500]) + "…"
	}
	fmt.Fprintf(&b, "%s\n\n", cmp.Or(text, oneLine(m.def.Title, 200), "No description."))
	fmt.Fprintf(&b, "Effects, as the server declares them: %s.\n", m.def.Annotations.Effects())
	if len(m.params) > 0 {
		b.WriteString("\nArgs:\n")
	}
	for _, p := range m.params {
		fmt.Fprintf(&b, "    %s: %s\n", p.pythonName, describeParam(p))
	}
	if returns := m.returns(); returns != "" {
		fmt.Fprintf(&b, "\nReturns:\n    %s\n", returns)
	}
	b.WriteString("\nRaises:\n    ToolError: the call was rejected or could not be made, or the tool failed.\n")
	return b.String()
}

// describeParam returns a parameter's docstring line, with its description and main constraints.
func describeParam(p parameter) string {
	s, _ := p.schema.(object)
	var parts []string
	if text, _ := s["description"].(string); text != "" {
		parts = append(parts, strings.TrimRight(oneLine(text, 300), "."))
	}
	if p.pythonName != p.jsonName {
		parts = append(parts, "sent as "+tools.PyString(p.jsonName))
	}
	if p.permitted != "" {
		parts = append(parts, shorten(p.permitted, 200))
	}
	for _, c := range [...]struct{ key, text string }{
		{"minimum", "at least %s"},
		{"exclusiveMinimum", "more than %s"},
		{"maximum", "at most %s"},
		{"exclusiveMaximum", "less than %s"},
		{"multipleOf", "a multiple of %s"},
		{"minLength", "length %s or more"},
		{"maxLength", "length %s or less"},
		{"minItems", "%s items or more"},
		{"maxItems", "%s items or fewer"},
		{"pattern", "matches %s"},
		{"format", "format %s"},
		{"default", "default %s"},
	} {
		if value, ok := s[c.key]; ok {
			parts = append(parts, fmt.Sprintf(c.text, compactJSON(value)))
		}
	}
	if len(parts) == 0 {
		return "no description."
	}
	return strings.Join(parts, "; ") + "."
}

func compactJSON(v any) string {
	data, err := tools.EncodeJSON(v)
	if err != nil {
		return "?"
	}
	return shorten(text.Printable(strings.TrimSpace(string(data))), 80)
}

// returns describes the result for the docstring. It returns "" if the type says everything.
func (m *module) returns() string {
	s, _ := m.output.(object)
	text, _ := s["description"].(string)
	if text = oneLine(text, 200); text != "" {
		return text
	}
	if properties, _ := s["properties"].(object); len(properties) > 0 {
		keys := slices.Sorted(maps.Keys(properties))
		return "an object with " + oneLine(strings.Join(keys, ", "), 200)
	}
	if m.def.OutputSchema == nil {
		return "the tool's text, decoded if it is a JSON object or list."
	}
	return ""
}

func readme(server string, defs []tools.Definition, names map[string]string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\nGenerated. The descriptions come from the MCP server.\n", oneLine(server, 80))
	for _, d := range defs {
		fmt.Fprintf(&b, "\n- `%s`: %s", names[d.Name], oneLine(cmp.Or(d.Description, d.Title), 160))
	}
	b.WriteString("\n")
	return b.Bytes()
}
