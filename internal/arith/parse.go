// Package arith parses arithmetic expressions with Python's operator precedence, and evaluates them for the
// calculator tool. The key type is Grammar, which defines how operators are spelled and which names exist.
package arith

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Kind says what a Node is.
type Kind int

// The kinds of a Node.
const (
	Number   Kind = iota
	Constant      // a constant, by its name
	Call          // a function call with the arguments Args
	Sign          // a sign before Args[0]
	Binary        // an operator between Args[0] and Args[1]
	Group         // Args[0] in parentheses
)

// Node is a parsed expression.
type Node struct {
	Kind Kind
	Text string // the number, the name or the operator, as written
	At   int    // the character, from 1, at which a name begins or an operator ends
	Args []*Node
}

// Grammar defines a dialect. Power is right-associative and binds tighter than a preceding sign; Product and
// Sum bind less tightly, in this order. An operator is a word or a symbol; a symbol of Sum or Sign is one character.
type Grammar struct {
	Sum, Product, Power, Sign []string

	Names      []string // constants and functions, in the order in which an error lists them
	IsFunction func(name string) bool

	Thousands  bool // numbers may have thousands separators, such as 1,000
	MaxNesting int  // the maximum number of nested operands: 1 for an expression without parentheses, powers and signs
}

// Parse parses an expression. A syntax error says at which character, counted from 1, the text is unexpected.
func (g *Grammar) Parse(text string) (*Node, error) {
	p := &parser{grammar: g, text: text}
	n, err := p.sum()
	if err != nil {
		return nil, err
	}
	if p.peek() != "" {
		return nil, p.unexpected("an operator or the end")
	}
	return n, nil
}

// parser parses by recursive descent: it has a method for each level of precedence.
type parser struct {
	grammar *Grammar
	text    string
	pos     int // in bytes
	nesting int
}

// character returns the number of characters up to the parser's position.
func (p *parser) character() int { return utf8.RuneCountInString(p.text[:p.pos]) }

var thousands = regexp.MustCompile(`^\d{1,3}(?:,\d{3})+(?:\.\d+)?`)

// peek skips white space, and returns the next token without consuming it, or "" at the end.
func (p *parser) peek() string {
	rest := strings.TrimLeftFunc(p.text[p.pos:], unicode.IsSpace)
	p.pos = len(p.text) - len(rest)
	if rest == "" {
		return ""
	}
	switch c := rest[0]; {
	case isDigit(c) || c == '.':
		if p.grammar.Thousands {
			if number := thousands.FindString(rest); number != "" {
				return number
			}
		}
		return rest[:numberLength(rest)]
	case isLetter(c):
		end := 1
		for end < len(rest) && (isLetter(rest[end]) || isDigit(rest[end])) {
			end++
		}
		return rest[:end]
	}
	_, size := utf8.DecodeRuneInString(rest)
	for _, operators := range [][]string{p.grammar.Product, p.grammar.Power} {
		for _, op := range operators {
			if len(op) > size && strings.HasPrefix(rest, op) {
				return op
			}
		}
	}
	return rest[:size]
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// numberLength returns the length of the number at the start of s: digits with at most one point, and an
// optional exponent.
func numberLength(s string) int {
	digits := func(i int) int {
		for i < len(s) && isDigit(s[i]) {
			i++
		}
		return i
	}
	end := digits(0)
	if end < len(s) && s[end] == '.' {
		end = digits(end + 1)
	}
	if end < len(s) && s[end]|0x20 == 'e' {
		from := end + 1
		if from < len(s) && (s[from] == '+' || s[from] == '-') {
			from++
		}
		if to := digits(from); to > from {
			end = to
		}
	}
	return end
}

// accept consumes and returns the next token if it is one of tokens. Otherwise it returns "".
func (p *parser) accept(tokens ...string) string {
	if t := p.peek(); t != "" && slices.Contains(tokens, t) {
		p.pos += len(t)
		return t
	}
	return ""
}

func (p *parser) unexpected(wanted string) error {
	at := p.character() + 1
	if t := p.peek(); t != "" {
		return fmt.Errorf("unexpected %q at character %d: %s was expected", t, at, wanted)
	}
	return fmt.Errorf("the expression ends too early: %s was expected at character %d", wanted, at)
}

func (p *parser) sum() (*Node, error)     { return p.chain(p.product, p.grammar.Sum) }
func (p *parser) product() (*Node, error) { return p.chain(p.sign, p.grammar.Product) }

// chain parses left-associative operators of one precedence.
func (p *parser) chain(operand func() (*Node, error), operators []string) (*Node, error) {
	left, err := operand()
	for err == nil {
		op := p.accept(operators...)
		if op == "" {
			return left, nil
		}
		at := p.character()
		var right *Node
		right, err = operand()
		left = &Node{Kind: Binary, Text: op, At: at, Args: []*Node{left, right}}
	}
	return nil, err
}

func (p *parser) sign() (*Node, error) {
	if p.nesting++; p.nesting > p.grammar.MaxNesting {
		return nil, fmt.Errorf("the expression is nested deeper than %d levels", p.grammar.MaxNesting)
	}
	defer func() { p.nesting-- }()
	if op := p.accept(p.grammar.Sign...); op != "" {
		n, err := p.sign()
		return &Node{Kind: Sign, Text: op, Args: []*Node{n}}, err
	}
	return p.power()
}

func (p *parser) power() (*Node, error) {
	base, err := p.atom()
	if err != nil {
		return nil, err
	}
	op := p.accept(p.grammar.Power...)
	if op == "" {
		return base, nil
	}
	at := p.character()
	exponent, err := p.sign() // right-associative: 2**3**2 is 2**(3**2)
	return &Node{Kind: Binary, Text: op, At: at, Args: []*Node{base, exponent}}, err
}

func (p *parser) atom() (*Node, error) {
	t := p.peek()
	switch {
	case t == "(":
		p.pos++
		n, err := p.sum()
		if err == nil && p.accept(")") == "" {
			err = p.unexpected(`")"`)
		}
		return &Node{Kind: Group, Args: []*Node{n}}, err
	case t != "" && (t[0] == '.' || isDigit(t[0])):
		p.pos += len(t)
		return &Node{Kind: Number, Text: t}, nil
	case t != "" && isLetter(t[0]):
		return p.name(t)
	}
	return nil, p.unexpected("a number, a name or (")
}

func (p *parser) name(name string) (*Node, error) {
	n := &Node{Kind: Constant, Text: name, At: p.character() + 1}
	if !slices.Contains(p.grammar.Names, name) {
		return nil, fmt.Errorf("unknown name %q at character %d; want one of %s", name, n.At,
			strings.Join(p.grammar.Names, ", "))
	}
	p.pos += len(name)
	if p.grammar.IsFunction == nil || !p.grammar.IsFunction(name) {
		return n, nil
	}
	n.Kind = Call
	return n, p.arguments(n)
}

// arguments parses "(a, b, …)" with at least one argument.
func (p *parser) arguments(call *Node) error {
	if p.accept("(") == "" {
		return p.unexpected(`"("`)
	}
	for {
		n, err := p.sum()
		if err != nil {
			return err
		}
		call.Args = append(call.Args, n)
		if p.accept(",") != "" {
			continue
		}
		if p.accept(")") == "" {
			return p.unexpected(`"," or ")"`)
		}
		return nil
	}
}
