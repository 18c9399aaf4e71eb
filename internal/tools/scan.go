package tools

import (
	"fmt"
	"strings"
)

// function describes a Python function of a module.
type function struct {
	name      string
	signature string // name(params) -> type, on one line
	types     string // the classes of a generated module
	doc       string // its docstring, or the module's
}

// syntaxError is the reason why a file cannot be a tool.
type syntaxError struct {
	line    int // 0 if the error has no line
	message string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.message) }

// scanModule finds the function named want in a hand-written module, or else the first public one,
// without running Python. It parses only strings, comments, brackets and top-level def lines, and reports
// no other syntax errors.
func scanModule(src []byte, want string) (function, error) {
	lines, err := newScanner(src).logicalLines()
	if err != nil {
		return function{}, err
	}
	return findFunction(lines, want)
}

func findFunction(lines []logicalLine, want string) (function, error) {
	var found *function
	moduleDoc := ""
	for i, l := range lines {
		if i == 0 {
			moduleDoc = docstring(l.text)
		}
		def, isDef := cutDef(l)
		if !isDef {
			continue
		}
		name, signature, rest, ok := splitDef(def)
		if !ok {
			return function{}, &syntaxError{l.line, "a def line must be def name(parameters):"}
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

// cutDef returns what follows the word def in a top-level function definition.
func cutDef(l logicalLine) (string, bool) {
	if l.indent > 0 {
		return "", false
	}
	def, ok := strings.CutPrefix(strings.TrimPrefix(l.text, "async "), "def ")
	return strings.TrimSpace(def), ok
}

// splitDef splits "f[T](a, b) -> c: rest" into the name, the signature without the type parameters, and the rest.
func splitDef(def string) (name, signature, rest string, ok bool) {
	s := &scanner{src: def, line: 1}
	open, err := s.topLevel('(')
	if err != nil || open < 0 {
		return "", "", "", false
	}
	name, _, _ = strings.Cut(def[:open], "[")
	name = strings.TrimSpace(name)
	end, err := s.topLevel(':')
	if err != nil || end < 0 || !isName(name) {
		return "", "", "", false
	}
	signature = name + strings.Join(strings.Fields(def[open:end]), " ")
	signature = strings.ReplaceAll(strings.ReplaceAll(signature, "( ", "("), ", )", ")")
	return name, strings.ReplaceAll(signature, " )", ")"), strings.TrimSpace(def[end+1:]), true
}

// docstring returns the dedented text of the string literal with which a statement begins, or "" if it begins with
// something else.
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

// logicalLine is a line of Python, joined with its continuation lines, without comments.
type logicalLine struct {
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

func newScanner(src []byte) *scanner {
	return &scanner{src: strings.ReplaceAll(strings.TrimPrefix(string(src), "\ufeff"), "\r\n", "\n"), line: 1}
}

// logicalLines splits the source into logical lines: a line continues inside brackets and strings, and
// after a backslash.
func (s *scanner) logicalLines() ([]logicalLine, error) {
	var out []logicalLine
	var open []bracket
	var b strings.Builder
	start := 1
	flush := func() {
		if raw := strings.TrimRight(b.String(), " \t\f"); strings.TrimSpace(raw) != "" {
			text := strings.TrimLeft(raw, " \t\f")
			out = append(out, logicalLine{line: start, indent: len(raw) - len(text), text: text})
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
				message := fmt.Sprintf("'%c' does not match '%c' on line %d", c, last.open, last.line)
				return nil, &syntaxError{s.line, message}
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

// skipString skips one string literal. A backslash escapes the next character, in raw strings too. It
// does not parse the braces of an f-string, which may contain the same quote since Python 3.12; the
// interpreter decides about such a file.
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
				return &syntaxError{first, "unterminated string"}
			}
			s.line++
		}
		s.pos++
	}
	return &syntaxError{first, "unterminated string"}
}

// topLevel moves to the next wanted byte outside brackets and strings, and returns its position, or -1 if there is
// none.
func (s *scanner) topLevel(wanted byte) (int, error) {
	depth := 0
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; {
		case c == '"' || c == '\'':
			if err := s.skipString(); err != nil {
				return -1, err
			}
			continue
		case c == wanted && depth == 0:
			return s.pos, nil
		case c == '(' || c == '[' || c == '{':
			depth++
		case closing[c] != 0:
			depth--
		}
		s.pos++
	}
	return -1, nil
}

// FunctionSignature returns the signature of a function at the top level of a module, on one line:
// name(params) -> type. It does not run Python.
func FunctionSignature(src []byte, name string) (signature string, ok bool) {
	f, err := scanModule(src, name)
	return f.signature, err == nil && f.name == name
}
