package tools

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/servers"
)

// Support is the content of servers/__init__.py.
var Support = servers.Support

// Export is one function of a server's package.
type Export struct{ Module, Function, Tool string } // Tool is its name in calls; empty if it is that of the module

// packageMark is the first line of every __init__.py that PackageInit returns. Pack regenerates a file
// that has it.
const packageMark = "# codefleet: package\n"

// PackageInit returns the content of servers/<server>/__init__.py. The package imports a module on first
// use of its function, and type checkers see every function. Names must be Python identifiers. The content works with
// the Support of each version: a published catalogue may be older or newer than the worker that adds packages to it.
func PackageInit(doc string, exports []Export) []byte {
	byModule := func(a, b Export) int { return strings.Compare(a.Module, b.Module) }
	exports = slices.SortedFunc(slices.Values(exports), byModule)
	var imports, names, all, named strings.Builder
	for _, e := range exports {
		if e.Tool != "" && e.Tool != e.Module {
			fmt.Fprintf(&named, "    %q: %s,\n", e.Module, PyString(e.Tool))
		}
		fmt.Fprintf(&imports, "    from .%s import %s as %s\n", e.Module, e.Function, e.Function)
		fmt.Fprintf(&names, "    %q: %q,\n", e.Module, e.Function)
		fmt.Fprintf(&all, "    %q,\n", e.Function)
	}
	if imports.Len() == 0 {
		imports.WriteString("    pass\n")
	}
	toolNames := "{}"
	if named.Len() > 0 {
		toolNames = "{\n" + named.String() + "}"
	}
	return fmt.Appendf(nil, packageMark+`%s

from typing import TYPE_CHECKING

from servers import package

if TYPE_CHECKING:
%s
__all__ = [
%s]

_names: "dict[str, str]" = %s

package(__name__, {
%s})
`, PyDoc(doc, ""), imports.String(), all.String(), toolNames, names.String())
}

// PyDoc returns doc as an indented Python docstring, with quotes and backslashes escaped and hidden
// characters spelled out.
func PyDoc(doc, indent string) string {
	doc = strings.ReplaceAll(text.Printable(strings.ToValidUTF8(doc, "\ufffd")), "\r", "")
	doc, quoted := strings.CutSuffix(strings.TrimSpace(doc), `"`)
	doc = strings.ReplaceAll(doc, `\`, `\\`)
	doc = strings.ReplaceAll(doc, `"""`, `\"\"\"`)
	if quoted { // the quote must not become part of the docstring's end
		doc += `\"`
	}
	lines := strings.Split(doc, "\n")
	for i, l := range lines {
		if l = strings.TrimRight(l, " \t"); l != "" && i > 0 {
			l = indent + l
		}
		lines[i] = l
	}
	doc = strings.Join(lines, "\n")
	if len(lines) > 1 {
		doc += "\n" + indent
	}
	return indent + `"""` + doc + `"""`
}

// PyString returns s as a Python string literal in ASCII.
func PyString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range strings.ToValidUTF8(s, "\ufffd") {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r >= ' ' && r < 0x7f:
			b.WriteRune(r)
		case r <= 0xff:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// maxNested bounds the nesting of a Python literal.
const maxNested = 20

// PyLiteral returns a JSON value, as DecodeJSON returns it, as a Python literal on one line. ok is false if a number is
// too large for a float, or if the value is nested so deeply that Python may not parse it.
func PyLiteral(value any) (literal string, ok bool) { return pyLiteral(value, 0) }

func pyLiteral(value any, depth int) (literal string, ok bool) {
	switch v := value.(type) {
	case nil:
		return "None", true
	case bool:
		return map[bool]string{true: "True", false: "False"}[v], true
	case string:
		return PyString(v), true
	case json.Number:
		_, err := v.Float64() // fails if the number is out of range
		return v.String(), err == nil
	case []any:
		parts := make([]string, len(v))
		for i, item := range v {
			if parts[i], ok = pyLiteral(item, depth+1); !ok {
				return "", false
			}
		}
		return "[" + strings.Join(parts, ", ") + "]", depth < maxNested
	}
	fields, _ := value.(map[string]any)
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		item, ok := pyLiteral(fields[key], depth+1)
		if !ok {
			return "", false
		}
		parts = append(parts, PyString(key)+": "+item)
	}
	return "{" + strings.Join(parts, ", ") + "}", depth < maxNested
}
