package rules

import (
	"encoding/json"
	"regexp"
	"strings"
)

const maxNesting = 50 // levels of a JSON value; Python's parser accepts about 200

var (
	jsonPart  = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\d{300,}|true|false|null|[][{}]`)
	constants = map[string]string{"true": "True", "false": "False", "null": "None"}
)

// pythonLiteral returns a JSON value in Python. It returns false if the value has too many levels or too long a number.
func pythonLiteral(raw string) (python string, ok bool) {
	depth, ok := 0, true
	python = jsonPart.ReplaceAllStringFunc(raw, func(part string) string {
		var s string
		switch part[0] {
		case '{', '[':
			depth++
			ok = ok && depth <= maxNesting
		case '}', ']':
			depth--
		case '"':
			ok = ok && json.Unmarshal([]byte(part), &s) == nil
			return quote(s)
		case 't', 'f', 'n':
			return constants[part]
		default:
			ok = false
		}
		return part
	})
	return python, ok
}

// quote writes a Python string.
func quote(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // a string always encodes
	}
	return strings.TrimSuffix(b.String(), "\n")
}
