package workflow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/expression"
	"github.com/codefleet/codefleet/internal/text"
)

// template is a JSON value in whose texts ${ } stands for the value of an expression. A text that is nothing but one
// expression becomes its value, of any type; in other texts, values that are not texts become JSON. $${ stands for ${.
type template struct {
	literal json.RawMessage // the value, which counts if no other field is set
	parts   []part          // parts of a text with expressions
	list    []*template
	object  map[string]*template

	uses []*expression.Expression // all expressions in it
}

// part is a piece of a text: an expression, or else a literal.
type part struct {
	literal string
	value   *expression.Expression
}

// template compiles a JSON value. It returns nil if an expression is not valid.
func (c *checker) template(path string, value json.RawMessage, in scope) *template {
	before := len(c.found)
	if tooDeep(value) {
		c.add(path, "the value is nested more than %d deep", maxNesting)
		return nil
	}
	t := c.compile(path, value, in)
	if len(c.found) > before {
		return nil
	}
	return t
}

// tooDeep reports whether lists and objects of a JSON value are nested more than maxNesting deep.
func tooDeep(value json.RawMessage) bool {
	depth := 0
	for d := json.NewDecoder(bytes.NewReader(value)); ; {
		token, err := d.Token()
		if err != nil {
			return false // the end
		}
		switch token {
		case json.Delim('['), json.Delim('{'):
			depth++
		case json.Delim(']'), json.Delim('}'):
			depth--
		}
		if depth > maxNesting {
			return true
		}
	}
}

// text returns the template of a text.
func (c *checker) text(path, s string, in scope) *template {
	value, err := json.Marshal(s)
	if err != nil {
		c.add(path, "%s", err)
		return nil
	}
	return c.template(path, value, in)
}

// compile returns the template of a JSON value and of the values in it.
func (c *checker) compile(path string, value json.RawMessage, in scope) *template {
	t := &template{literal: value}
	var s string
	var list []json.RawMessage
	var object map[string]json.RawMessage
	switch {
	case string(value) == "null":
	case json.Unmarshal(value, &s) == nil:
		c.compileText(t, path, s, in)
	case json.Unmarshal(value, &list) == nil:
		t.list = []*template{}
		for i, item := range list {
			t.list = append(t.list, c.compile(fmt.Sprint(path, "/", i), item, in))
			t.uses = append(t.uses, t.list[i].uses...)
		}
	case json.Unmarshal(value, &object) == nil:
		t.object = map[string]*template{}
		for _, name := range slices.Sorted(maps.Keys(object)) {
			t.object[name] = c.compile(path+"/"+text.EncodeToken(name), object[name], in)
			t.uses = append(t.uses, t.object[name].uses...)
		}
	}
	return t
}

// compileText adds the parts of a text to t: literals and expressions.
func (c *checker) compileText(t *template, path, s string, in scope) {
	for s != "" {
		i := strings.Index(s, "${")
		if i < 0 {
			break
		}
		if i > 0 && s[i-1] == '$' {
			t.parts = append(t.parts, part{literal: s[:i-1] + "${"})
			s = s[i+2:]
			continue
		}
		end := closing(s[i+2:])
		if end < 0 {
			c.add(path, "a ${ has no }")
			return
		}
		e := c.expression(path, strings.TrimSpace(s[i+2:i+2+end]), in)
		if e == nil {
			return
		}
		if i > 0 {
			t.parts = append(t.parts, part{literal: s[:i]})
		}
		t.parts = append(t.parts, part{value: e})
		t.uses = append(t.uses, e)
		s = s[i+2+end+1:]
	}
	if len(t.parts) > 0 && s != "" {
		t.parts = append(t.parts, part{literal: s})
	}
}

// closing returns the index of the } that ends an expression, or -1. It skips braces in strings, and pairs of braces.
func closing(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\'':
			n := stringSize(s[i:], rawPrefix.MatchString(s[max(0, i-4):i]))
			if n == 0 {
				return -1
			}
			i += n - 1
		case c == '{':
			depth++
		case c == '}' && depth == 0:
			return i
		case c == '}':
			depth--
		}
	}
	return -1
}

// rawPrefix matches what precedes a raw string of CEL: the last four bytes suffice.
var rawPrefix = regexp.MustCompile(`(?i)(?:^|\W)b?rb?$`)

// stringSize returns the size of the CEL string with which s begins, with its quotes, or 0 if it does not end. In a raw
// string, a backslash escapes nothing.
func stringSize(s string, raw bool) int {
	quote := s[:1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(s, triple) {
		quote = triple
	}
	for i := len(quote); i < len(s); i++ {
		switch {
		case s[i] == '\\' && !raw:
			i++
		case strings.HasPrefix(s[i:], quote):
			return i + len(quote)
		}
	}
	return 0
}

// evaluate returns the value of a template. eval returns the value of an expression.
func (t *template) evaluate(
	ctx context.Context, eval func(context.Context, *expression.Expression) (json.RawMessage, error),
) (json.RawMessage, error) {
	room := MaxValue
	value, err := t.fill(ctx, eval, &room)
	if err == nil && len(value) > MaxValue {
		err = errTooLarge
	}
	return value, err
}

var errTooLarge = fmt.Errorf("the value is larger than %d bytes: pass large data in a file of the workspace", MaxValue)

// fill does the work of evaluate. It subtracts the size of each expression's value from room, and fails if there is no
// room left.
func (t *template) fill(
	ctx context.Context, eval func(context.Context, *expression.Expression) (json.RawMessage, error), room *int,
) (json.RawMessage, error) {
	switch {
	case t.list != nil:
		out := make([]json.RawMessage, len(t.list))
		for i, item := range t.list {
			var err error
			if out[i], err = item.fill(ctx, eval, room); err != nil {
				return nil, err
			}
		}
		return json.Marshal(out)
	case t.object != nil:
		out := make(map[string]json.RawMessage, len(t.object))
		for name, item := range t.object {
			var err error
			if out[name], err = item.fill(ctx, eval, room); err != nil {
				return nil, err
			}
		}
		return json.Marshal(out)
	case len(t.parts) == 0:
		return t.literal, nil
	}
	var s strings.Builder
	for _, p := range t.parts {
		if p.value == nil {
			s.WriteString(p.literal)
			continue
		}
		value, err := eval(ctx, p.value)
		if err != nil {
			return nil, err
		}
		if *room -= len(value); *room < 0 {
			return nil, errTooLarge
		}
		if len(t.parts) == 1 {
			return value, nil
		}
		var words string
		if string(value) != "null" && json.Unmarshal(value, &words) == nil {
			s.WriteString(words)
		} else {
			s.Write(value)
		}
	}
	return json.Marshal(s.String())
}

// textOf returns the value of a template that checker.text has compiled, as a string.
func textOf(value json.RawMessage) (string, error) {
	var s string
	if json.Unmarshal(value, &s) != nil {
		return "", errors.New("the value is not a text: " + text.Truncate(string(value), 100))
	}
	return s, nil
}
