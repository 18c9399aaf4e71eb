package expression

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"cel.dev/cel-go/cel"

	"github.com/codefleet/codefleet/internal/text"
)

const maxMessage = 200 // bytes of the text about an error in an expression

// unexpected matches the parser's messages about a token at which no rule of the grammar continues.
var unexpected = regexp.MustCompile(`(?s)^Syntax error: (?:(?:mismatched|extraneous) input '(.*)' expecting .*` +
	`|no viable alternative at input '(.*)'|token recognition error at: '(.*)')$`)

// corrections says what to write in place of a token of other languages.
var corrections = map[string]string{
	"=": "compare with ==", "and": "combine conditions with &&", "&": "combine conditions with &&",
	"or": "combine conditions with ||", "|": "combine conditions with ||",
}

// explain returns an error with the position and the text of the first of the compiler's errors. It replaces the
// parser's text about an unexpected token, which lists all tokens that may follow.
func explain(issues *cel.Issues) error {
	first := issues.Errors()[0]
	message := first.Message
	if m := unexpected.FindStringSubmatch(message); m != nil {
		message = explainToken(strings.TrimSpace(cmp.Or(m[1], m[2], m[3])))
	}
	if rest, ok := strings.CutPrefix(message, "Syntax error: missing "); ok {
		token, _, _ := strings.Cut(rest, " at ")
		message = token + " is missing"
	}
	message = text.Printable(text.Truncate(message, maxMessage))
	line, column := first.Location.Line(), first.Location.Column()+1
	switch {
	case line < 1 || column < 1: // the error concerns the whole expression
		return errors.New(message)
	case line == 1:
		return fmt.Errorf("column %d: %s", column, message)
	}
	return fmt.Errorf("line %d, column %d: %s", line, column, message)
}

func explainToken(token string) string {
	correction := corrections[token]
	switch {
	case token == "<EOF>":
		return "the expression ends too early"
	case strings.HasPrefix(token, "'") || strings.HasPrefix(token, `"`):
		return "the text has no closing " + token[:1]
	case correction != "":
		return "unexpected '" + token + "'; " + correction
	}
	return "unexpected '" + text.Truncate(token, 40) + "'"
}
