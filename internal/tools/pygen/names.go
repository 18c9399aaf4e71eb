package pygen

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/codefleet/codefleet/internal/tools"
)

// scripts lists the scripts whose letters names may contain.
var scripts = []*unicode.RangeTable{
	unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Hebrew, unicode.Arabic, unicode.Devanagari,
	unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul,
}

// isLetter reports whether r is a letter of one of the scripts, and one that Python 3.9 and later accept in names.
func isLetter(r rune) bool {
	if r < 0x80 {
		return r|0x20 >= 'a' && r|0x20 <= 'z'
	}
	inPython39 := r < 0x530 || (r >= 0x5d0 && r < 0x860) || (r >= 0x900 && r < 0x980) || (r >= 0x1e00 && r < 0x2000) ||
		(r >= 0x3041 && r < 0x9fd0) || (r >= 0xac00 && r < 0xd7a4)
	return inPython39 && unicode.Is(unicode.L, r) && unicode.In(r, scripts...)
}

// Identifier derives the Python name of a function, class or directory from any text. It normalises compatible
// forms (NFKC), replaces every character that is not a letter or digit with an underscore, removes leading
// underscores, and shortens long names. It puts an n before a leading digit, and an underscore after a word that
// Python or generated modules use. It returns "" if no letter or digit is left.
func Identifier(s string) string { return identifier(s, reserved) }

// parameterName is like Identifier, but keeps the names of Python's builtins, such as id and type: a parameter
// may have them.
func parameterName(s string) string { return identifier(s, reservedParameters) }

func identifier(s string, reserved []string) string {
	var b strings.Builder
	for _, r := range norm.NFKC.String(strings.ToValidUTF8(s, "_")) {
		if isLetter(r) || (r >= '0' && r <= '9') {
			b.WriteRune(r)
		} else {
			b.WriteByte('_')
		}
	}
	id := strings.TrimLeft(b.String(), "_")
	if strings.Trim(id, "_") == "" {
		return ""
	}
	if id[0] >= '0' && id[0] <= '9' {
		id = "n" + id
	}
	if utf8.RuneCountInString(id) > maxIdentifier {
		id = truncateID(id) + "_" + shortHash(s)
	}
	if slices.Contains(reserved, id) {
		id += "_"
	}
	return id
}

// maxIdentifier is the maximum length of a name in characters, not counting an added underscore.
const maxIdentifier = 60

// truncateID shortens a name so that "_" and a short hash can follow.
func truncateID(id string) string {
	runes := []rune(id)
	return string(runes[:min(len(runes), maxIdentifier-9)])
}

// shortHash returns the first 8 hex digits of the SHA-256 hash of s.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// assignNames returns a function name for every tool, by the tool's name. A name that was assigned before stays
// with its tool forever. New tools whose name is a valid function name come first, then the others in
// order; a tool whose name is taken gets a short hash as a suffix. Names that differ only in case clash,
// because some file systems ignore case.
func assignNames(before map[string]string, defs []tools.Definition) map[string]string {
	names := map[string]string{}
	taken := map[string]bool{}
	set := func(tool, id string) {
		names[tool] = id
		taken[strings.ToLower(id)] = true
	}
	for _, tool := range slices.Sorted(maps.Keys(before)) {
		id := before[tool]
		if id != "" && id == Identifier(id) && !taken[strings.ToLower(id)] { // the file may have been edited
			set(tool, id)
		}
	}
	setNew := func(tool, id string) {
		id = cmp.Or(id, "tool_"+shortHash(tool))
		base, salt := truncateID(id), tool
		for taken[strings.ToLower(id)] {
			id = base + "_" + shortHash(salt)
			salt += "\x00" // in case another tool has this name, too
		}
		set(tool, id)
	}
	defs = slices.SortedFunc(slices.Values(defs),
		func(a, b tools.Definition) int { return strings.Compare(a.Name, b.Name) })
	for _, exact := range []bool{true, false} {
		for _, d := range defs {
			id := Identifier(d.Name)
			if _, has := names[d.Name]; !has && (id == d.Name) == exact {
				setNew(d.Name, id)
			}
		}
	}
	return names
}

// functionNames returns the names that a tool's function may have: the one that it has if another tool has the usual
// one, the usual one, and the one in a hand-written module, which may have the name of a builtin.
func functionNames(tool string) []string {
	id := Identifier(tool)
	if id == "" {
		return []string{"tool_" + shortHash(tool)}
	}
	names := []string{truncateID(id) + "_" + shortHash(tool), id}
	if id == tool+"_" && !slices.Contains(tools.Keywords, tool) {
		names = append(names, tool)
	}
	return names
}

// unique returns id, with a number as a suffix if id is taken or reserved. It adds the returned name to taken, which
// has the next number to try for each name.
func unique(id string, taken map[string]int, reserved []string) string {
	name, n := id, max(2, taken[id])
	for ; taken[name] > 0 || slices.Contains(reserved, name); n++ {
		name = id + "_" + strconv.Itoa(n)
	}
	taken[name] = max(2, taken[name])
	taken[id] = n
	return name
}

// reservedParameters holds the names that parameters cannot have: Python's keywords, and the names that the body of a
// generated function uses.
var reservedParameters = append(strings.Fields(`
Any Dict arguments extra call_mcp_tool UNSET DEFINITION`), tools.Keywords...)

// reserved holds the names that functions, classes and directories cannot have: those in reservedParameters, Python's
// builtins, and the names that a generated module uses.
var reserved = append(strings.Fields(`
match case type abs aiter all anext any ascii bin bool breakpoint bytearray bytes callable chr classmethod compile
complex copyright credits delattr dict dir divmod enumerate eval exec exit filter float format frozenset getattr
globals hasattr hash help hex id input int isinstance issubclass iter len license list locals map max
memoryview min next object oct open ord pow print property quit range repr reversed round set setattr slice
sorted staticmethod str sum super tuple vars zip self cls
Annotated List Literal Optional Tuple TypedDict Union TYPE_CHECKING annotations tool package servers client Support
Exception BaseException TypeError ValueError Ellipsis NotImplemented`), reservedParameters...)
