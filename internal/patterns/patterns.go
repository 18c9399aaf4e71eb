// Package patterns compiles untrusted regular expressions. In Go, a short expression such as (?:(?:a{10}){100}){1000}
// can have a program of 100 MB, because each repeat is a copy. The package refuses such an expression before it
// compiles it. The key type is Set.
package patterns

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
)

// Limits of patterns. The size of a pattern is how many characters, classes and operators it has if its repeats are
// written out.
const (
	MaxLength = 8 << 10 // bytes of a pattern
	MaxSize   = 10_000  // of a pattern
	MaxTotal  = 50_000  // size of all patterns of a Set
)

// runesPerSize is how many ends of ranges in character classes count as 1: \pL has more than 1000.
const runesPerSize = 8

// Pattern is a compiled regular expression (RE2).
type Pattern struct {
	*regexp.Regexp

	Size int
}

// Set compiles the patterns of one schema, each only once. Its zero value is ready to use. It is not safe for
// concurrent use.
type Set struct {
	Size int // of all patterns so far

	compiled map[string]*Pattern
}

// TooLargeError says that a pattern, or all patterns of a Set, exceed a limit.
type TooLargeError struct{ message string }

func (e *TooLargeError) Error() string { return e.message }

// Compile compiles a pattern. The error is a *TooLargeError, or says why the pattern is not RE2.
func (s *Set) Compile(pattern string) (*Pattern, error) {
	if p := s.compiled[pattern]; p != nil {
		return p, nil
	}
	if len(pattern) > MaxLength {
		return nil, &TooLargeError{fmt.Sprintf("it has %d bytes; the limit is %d", len(pattern), MaxLength)}
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, Reason(err)
	}
	program, ranges := size(parsed)
	total := program + ranges/runesPerSize
	if total > MaxSize {
		return nil, &TooLargeError{fmt.Sprintf(
			"with its repeats written out, it has more than %d parts: use fewer repeats", MaxSize)}
	}
	if s.Size += total; s.Size > MaxTotal {
		return nil, &TooLargeError{fmt.Sprintf(
			"with repeats written out, all patterns together have more than %d parts: use fewer repeats", MaxTotal)}
	}
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	if s.compiled == nil {
		s.compiled = map[string]*Pattern{}
	}
	s.compiled[pattern] = &Pattern{Regexp: compiled, Size: total}
	return s.compiled[pattern], nil
}

// Check returns why a pattern is not RE2, without compiling it.
func Check(pattern string) error {
	_, err := syntax.Parse(pattern, syntax.Perl)
	return Reason(err)
}

// Reason returns what is wrong with a pattern, from an error of package regexp, whose own text names its parser. A
// *syntax.Error stays one.
func Reason(err error) error {
	if e, ok := errors.AsType[*syntax.Error](err); ok {
		return syntaxError{e}
	}
	return err
}

type syntaxError struct{ err *syntax.Error }

func (e syntaxError) Error() string { return fmt.Sprintf("%s: `%s`", e.err.Code, e.err.Expr) }
func (e syntaxError) Unwrap() error { return e.err }

// size returns how many parts a pattern has if its repeats are written out, but at most MaxSize+1, and how many ends of
// ranges its classes have, which the copies of a class share.
func size(re *syntax.Regexp) (parts, ranges int) {
	parts = 1
	switch re.Op { //nolint:exhaustive // the other operators have no text of their own
	case syntax.OpLiteral:
		parts = len(re.Rune)
	case syntax.OpCharClass:
		ranges = len(re.Rune)
	}
	for _, sub := range re.Sub {
		p, r := size(sub)
		parts, ranges = min(parts+p, MaxSize+1), ranges+r
	}
	if re.Op == syntax.OpRepeat {
		parts *= max(1, re.Min, re.Max)
	}
	return min(parts, MaxSize+1), ranges
}
