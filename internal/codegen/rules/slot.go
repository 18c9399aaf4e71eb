package rules

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/codegen"
)

// wordSlots are the kinds of values in a sentence that are one token.
var wordSlots = map[string]func(w *writer, t token) (python string, ok bool){
	"key": readKey, "field": readField, "name": readName, "noun": readNoun, "file": readFile, "text": readText,
	"count": literal(number, `^[1-9]\d{0,2}$`), "positive": literal(number, `^\d+(?:\.\d*[1-9])?$`),
	"object": literal(jsonText, `^\{`), "document": literal(jsonText, ``), "skill": readSkill,
	"quoted":    literal(quoted, ``),
	"select":    literal(quoted, `(?i)^\s*(?:select|with)\b`),
	"change":    literal(quoted, `(?i)^\s*(?:insert|update|delete|create|drop|alter)\b`),
	"text-file": literal(path, `\.(?:txt|csv|md|log|yaml|yml|xml|html|py|tsv|db)$|/[^./]+$`),
	"json-file": literal(path, `\.json$`), "csv-file": literal(path, `\.csv$`), "bare": literal(path, `^[^/]*$`),
}

// slots are the other kinds of values, besides the phrases of the grammar.
var slots = map[string]func(w *writer, t []token) (value, bool){
	"number": readNumber, "numbers": readNumbers, "expr": readExpression, "operand": readOperand, "value": readValue,
	"reference": readReference, "places": readPlaces, "city": readCity, "call": readCall,
}

// read reads tokens as the value of a slot or of a phrase.
func (w *writer) read(slot string, t []token) (v value, ok bool) {
	if read := slots[slot]; read != nil {
		v, ok = read(w, t)
	} else if read := wordSlots[slot]; read == nil {
		v.py, ok = w.grammar.phrase(slot, t)
	} else if len(t) == 1 {
		v.py, ok = read(w, t[0])
	}
	if v.py == "" {
		v.py = strings.Join(v.list, ", ")
	}
	return v, ok
}

var (
	numeral   = regexp.MustCompile(`^-?(?:0|[1-9]\d*)(?:\.\d+)?$`)
	snakeCase = regexp.MustCompile(`^[A-Za-z]\w*_\w+$`)
	plainName = regexp.MustCompile(`^[A-Za-z_]\w*$`)
	keyName   = regexp.MustCompile(`^[A-Za-z_][\w-]*$`)
	inside    = regexp.MustCompile(`^/workspace(?:/|$)`)
	escapes   = regexp.MustCompile(`/\.\.(?:/|$)|~`)
)

const maxDigits = 300 // of a number; Python's limit is 4,300

// signedNumber returns the number that tokens form, with its sign, or "" if they form none.
func signedNumber(t []token) string {
	sign := ""
	if len(t) == 2 && t[0].is("-−") {
		sign, t = "-", t[1:]
	}
	if len(t) != 1 || t[0].kind != number || len(t[0].text) > maxDigits {
		return ""
	}
	return sign + t[0].text
}

func readNumber(_ *writer, t []token) (value, bool) {
	n := signedNumber(t)
	return value{py: strings.ReplaceAll(n, ",", "")}, n != ""
}

// readNumbers reads "1, 2 and 3". A number such as 100,200 may be two.
func readNumbers(_ *writer, t []token) (v value, ok bool) {
	v, ok = listOf(t, func(part []token) (string, bool) {
		n := signedNumber(part)
		return n, n != "" && !strings.Contains(n, ",")
	})
	return v, ok && len(v.list) > 1
}

// listed divides tokens at ",", "and" and ", and".
func listed(t []token) [][]token {
	if len(t) == 0 {
		return nil
	}
	return divideAtConnectors(t, func(_ int, then bool) bool { return !then })
}

// listOf reads what listed divides.
func listOf(t []token, read func(part []token) (string, bool)) (v value, ok bool) {
	for _, part := range listed(t) {
		item, ok := read(part)
		if !ok {
			return v, false
		}
		v.list = append(v.list, item)
	}
	return v, true
}

// literal returns a function that reads a token of the kind k whose text matches the pattern.
func literal(k kind, pattern string) func(*writer, token) (string, bool) {
	re := regexp.MustCompile(pattern)
	return func(_ *writer, t token) (string, bool) {
		switch {
		case t.kind != k && (k != path || t.kind != quoted) || !re.MatchString(t.text):
			return "", false
		case k == path:
			return readFile(nil, t)
		case k == number:
			return strings.ReplaceAll(t.text, ",", ""), len(t.text) <= maxDigits
		case k == jsonText:
			return pythonLiteral(t.text), true
		}
		return quote(t.text), true
	}
}

// readJSON reads the value of a field or of a parameter as JSON. A bare word is a value only if it can only be text: a
// status or snake_case. It reads no 1.10, which may be a version and would become 1.1.
func (g *grammar) readJSON(t []token) (json string, ok bool) {
	if n := signedNumber(t); n != "" {
		return n, numeral.MatchString(n) && (!strings.HasSuffix(n, "0") || !strings.Contains(n, "."))
	}
	if len(t) != 1 {
		return "", false
	}
	if constant, ok := g.phrase("constant", t); ok {
		return constant, true
	}
	if t[0].kind == jsonText {
		return t[0].text, true
	}
	isText := t[0].kind == word && (g.has("status", t...) || snakeCase.MatchString(t[0].text))
	return quote(t[0].text), isText || t[0].kind == quoted
}

// readValue reads the value of a field.
func readValue(w *writer, t []token) (value, bool) {
	json, ok := w.grammar.readJSON(t)
	return value{py: pythonLiteral(json)}, ok
}

// readKey reads a field's name.
func readKey(w *writer, t token) (string, bool) {
	named := t.kind == word && keyName.MatchString(t.text) && !w.grammar.has("unnamed", t)
	return quote(t.text), named || t.kind == quoted
}

// readField reads the name of one field, which is no word for contents such as "data" or "the top".
func readField(w *writer, t token) (string, bool) {
	py, ok := readKey(w, t)
	return py, ok && (t.kind == quoted || !w.grammar.has("contents", t))
}

// readName reads the name of a table, a column or a skill.
func readName(w *writer, t token) (string, bool) {
	py, ok := readField(w, t)
	return py, ok && t.lower != w.vars["table"] && plainName.MatchString(t.text)
}

// readSkill reads the name of a skill, which is no tool.
func readSkill(w *writer, t token) (string, bool) {
	isTool := slices.ContainsFunc(w.request.Tools, func(tool codegen.Tool) bool { return tool.Name == t.text })
	return quote(t.text), t.kind == word && snakeCase.MatchString(t.text) && !isTool
}

// readNoun reads a noun that refers to the last rows.
func readNoun(w *writer, t token) (string, bool) {
	return "", t.lower != "" && (w.grammar.has("nouns", t) || t.lower == w.vars["table"])
}

// readText reads quoted text that is no file name: "replace a.txt with 'b.txt'" may mean the text or the file.
func readText(_ *writer, t token) (string, bool) {
	return quote(t.text), t.kind == quoted && !quotedPath.MatchString(t.text)
}

// readFile reads a path in the workspace. It may stand in quotes.
func readFile(_ *writer, t token) (string, bool) {
	p := strings.TrimPrefix(t.text, "./")
	if !strings.HasPrefix(p, "/") {
		p = "/workspace/" + p
	}
	isPath := t.kind == path || t.kind == quoted && quotedPath.MatchString(t.text)
	return quote(p), isPath && inside.MatchString(p) && !escapes.MatchString(p)
}

// pythonLiteral returns a JSON value in Python.
func pythonLiteral(raw string) string {
	if raw != "" && strings.Contains("{[", raw[:1]) {
		return "json.loads(" + quote(raw) + ")"
	}
	return cmp.Or(map[string]string{"true": "True", "false": "False", "null": "None"}[raw], raw)
}

// quote writes a Python string.
func quote(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}
