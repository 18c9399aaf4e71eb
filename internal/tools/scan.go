package tools

import (
	"fmt"
	"strings"
)

// function is what the catalogue knows of a Python function without running Python.
type function struct {
	name      string
	signature string // name(params) -> type, on one line
	doc       string // its docstring, or the module's
}

// syntaxError is the first place where a file is certainly no Python.
type syntaxError struct {
	line    int
	message string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.message) }

// scanModule finds the function called want, or else the first public one, in a hand-written
// module. It reads strings, comments, brackets and the top level's def lines, and nothing more: it
// accepts everything that Python accepts, and refuses what is broken in those four.
func scanModule(src []byte, want string) (function, error) {
	s := &scanner{src: strings.ReplaceAll(strings.TrimPrefix(string(src), "\ufeff"), "\r\n", "\n"), line: 1}
	lines, err := s.logicalLines()
	if err != nil {
		return function{}, err
	}
	return pick(lines, want)
}

func pick(lines []logical, want string) (function, error) {
	var found *function
	moduleDoc := ""
	for i, l := range lines {
		if i == 0 {
			moduleDoc = docstring(l.text)
		}
		head, isDef := defHead(l)
		if !isDef {
			continue
		}
		name, signature, rest, ok := splitDef(head)
		if !ok {
			return function{}, &syntaxError{l.line, "a def line is name(parameters): and nothing else"}
		}
		if strings.HasPrefix(name, "_") || (found != nil && name != want) {
			continue
		}
		doc := docstring(rest)
		if rest == "" && i+1 < len(lines) && lines[i+1].indent > 0 {
			doc = docstring(lines[i+1].text)
		}
		found = &function{name: name, signature: signature, doc: doc}
		if name == want {
			break
		}
	}
	if found == nil {
		return function{}, &syntaxError{0, "no public function at the top level"}
	}
	if found.doc == "" {
		found.doc = moduleDoc
	}
	return *found, nil
}

func defHead(l logical) (string, bool) {
	if l.indent > 0 {
		return "", false
	}
	if head, ok := strings.CutPrefix(strings.TrimPrefix(l.text, "async "), "def "); ok {
		return strings.TrimSpace(head), true
	}
	return "", false
}

// splitDef takes "f(a, b) -> c: rest" apart.
func splitDef(head string) (name, signature, rest string, ok bool) {
	name, after, ok := strings.Cut(head, "(")
	name = strings.TrimSpace(name)
	if !ok || name == "" || strings.ContainsAny(name, " :)") {
		return "", "", "", false
	}
	s := &scanner{src: "(" + after, line: 1}
	end, err := s.topLevelColon()
	if err != nil || end < 0 {
		return "", "", "", false
	}
	signature = name + strings.Join(strings.Fields("("+after[:end-1]), " ")
	signature = strings.ReplaceAll(strings.ReplaceAll(signature, "( ", "("), ", )", ")")
	return name, strings.ReplaceAll(signature, " )", ")"), strings.TrimSpace(after[end:]), true
}

// docstring returns the text of a statement that is one plain string literal, dedented, or "".
func docstring(stmt string) string {
	t := strings.TrimLeft(stmt, "rRuU")
	for _, q := range []string{`"""`, `'''`, `"`, `'`} {
		body, ok := strings.CutPrefix(t, q)
		if !ok {
			continue
		}
		text, _, ended := strings.Cut(body, q)
		if !ended {
			return ""
		}
		return dedent(strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\'`, `'`).Replace(text))
	}
	return ""
}

func dedent(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	margin := -1
	for _, l := range lines[1:] {
		if trimmed := strings.TrimLeft(l, " \t"); trimmed != "" {
			if n := len(l) - len(trimmed); margin < 0 || n < margin {
				margin = n
			}
		}
	}
	for i, l := range lines {
		if i > 0 && len(l) >= margin && margin > 0 {
			l = l[margin:]
		}
		lines[i] = strings.TrimRight(l, " \t")
	}
	return strings.Join(lines, "\n")
}

// logical is one statement's text, comments gone, as it starts on a line.
type logical struct {
	line, indent int
	text         string
}

type scanner struct {
	src  string
	pos  int
	line int
}

type bracket struct {
	open byte
	line int
}

var closing = map[byte]byte{')': '(', ']': '[', '}': '{'}

// logicalLines cuts the source into statements: a line goes on inside brackets, strings, and after
// a backslash.
func (s *scanner) logicalLines() ([]logical, error) {
	var out []logical
	var open []bracket
	var b strings.Builder
	start := 1
	flush := func() {
		if raw := strings.TrimRight(b.String(), " \t\f"); strings.TrimSpace(raw) != "" {
			text := strings.TrimLeft(raw, " \t\f")
			out = append(out, logical{line: start, indent: len(raw) - len(text), text: text})
		}
		b.Reset()
		start = s.line
	}
	for s.pos < len(s.src) {
		c := s.src[s.pos]
		switch {
		case c == '#':
			s.skipComment()
			continue
		case c == '"' || c == '\'':
			from := s.pos
			if err := s.skipString(); err != nil {
				return nil, err
			}
			b.WriteString(s.src[from:s.pos])
			continue
		case c == '\\' && s.pos+1 < len(s.src) && s.src[s.pos+1] == '\n':
			s.pos += 2
			s.line++
			b.WriteByte(' ')
			continue
		case c == '(' || c == '[' || c == '{':
			open = append(open, bracket{c, s.line})
		case closing[c] != 0:
			if len(open) == 0 {
				return nil, &syntaxError{s.line, fmt.Sprintf("unmatched '%c'", c)}
			}
			if last := open[len(open)-1]; last.open != closing[c] {
				return nil, &syntaxError{s.line, fmt.Sprintf("'%c' does not match '%c' of line %d", c, last.open, last.line)}
			}
			open = open[:len(open)-1]
		case c == '\n':
			s.line++
			if len(open) == 0 {
				s.pos++
				flush()
				continue
			}
		}
		b.WriteByte(c)
		s.pos++
	}
	if len(open) > 0 {
		return nil, &syntaxError{open[0].line, fmt.Sprintf("'%c' was never closed", open[0].open)}
	}
	flush()
	return out, nil
}

func (s *scanner) skipComment() {
	for s.pos < len(s.src) && s.src[s.pos] != '\n' {
		s.pos++
	}
}

// skipString passes one literal. A backslash keeps the next character from ending it, in raw
// strings too. What an f-string holds in braces is not looked at: from Python 3.12 it may even
// hold the same quote, and such a file is left to the interpreter.
func (s *scanner) skipString() error {
	quote := s.src[s.pos : s.pos+1]
	first := s.line
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(s.src[s.pos:], triple) {
		quote = triple
	}
	s.pos += len(quote)
	for s.pos < len(s.src) {
		switch {
		case s.src[s.pos] == '\\' && s.pos+1 < len(s.src):
			if s.src[s.pos+1] == '\n' {
				s.line++
			}
			s.pos += 2
			continue
		case strings.HasPrefix(s.src[s.pos:], quote):
			s.pos += len(quote)
			return nil
		case s.src[s.pos] == '\n':
			if len(quote) == 1 {
				return &syntaxError{first, "a string is not ended on its line"}
			}
			s.line++
		}
		s.pos++
	}
	return &syntaxError{first, "a string is never ended"}
}

// topLevelColon returns the position after the first colon outside of brackets and strings, or -1.
func (s *scanner) topLevelColon() (int, error) {
	depth := 0
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; {
		case c == '"' || c == '\'':
			if err := s.skipString(); err != nil {
				return -1, err
			}
			continue
		case c == '(' || c == '[' || c == '{':
			depth++
		case closing[c] != 0:
			depth--
		case c == ':' && depth == 0:
			return s.pos, nil
		}
		s.pos++
	}
	return -1, nil
}
