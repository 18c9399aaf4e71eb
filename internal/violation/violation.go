// Package violation words the violations of a JSON Schema. Unlike the validator's own texts, it writes numbers plainly:
// 36000000, not 3.6 × 10⁷.
package violation

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/text"
)

// Leaves returns the violations of e that have no causes of their own. If a schema refuses the name of a property, the
// violation has the location of the property, which begins with what objectOf returns.
func Leaves(e *jsonschema.ValidationError) []*jsonschema.ValidationError {
	return appendLeaves(nil, e, nil)
}

// appendLeaves appends the leaves of e to all. If at is not nil, it replaces the leaves' own locations.
func appendLeaves(
	all []*jsonschema.ValidationError, e *jsonschema.ValidationError, at []string,
) []*jsonschema.ValidationError {
	if refused, ofName := e.ErrorKind.(*kind.PropertyNames); ofName && at == nil && len(e.Causes) > 0 {
		at = append(objectOf(e.SchemaURL), refused.Property)
	}
	for _, cause := range e.Causes {
		all = appendLeaves(all, cause, at)
	}
	if len(e.Causes) > 0 {
		return all
	}
	if at != nil {
		moved := *e
		moved.InstanceLocation = at
		e = &moved
	}
	return append(all, e)
}

// objectOf returns the location of the object whose property names the schema at schemaURL restricts. It returns nil if
// the path to that schema has keywords other than properties. The location in the violation itself is wrong if the
// validator has gone on to other properties.
func objectOf(schemaURL string) []string {
	_, pointer, _ := strings.Cut(schemaURL, "#/")
	tokens := strings.Split(pointer, "/")
	var location []string
	for ; len(tokens) > 1 && tokens[0] == "properties"; tokens = tokens[2:] {
		location = append(location, text.DecodeToken(tokens[1]))
	}
	if len(tokens) != 1 {
		return nil
	}
	return location
}

// english writes texts. It is safe for concurrent use: each of its methods copies it.
var english = message.NewPrinter(language.English)

// Describe returns the text for one violation.
func Describe(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Minimum:
		return bound("minimum", k.Got, k.Want)
	case *kind.Maximum:
		return bound("maximum", k.Got, k.Want)
	case *kind.ExclusiveMinimum:
		return bound("exclusiveMinimum", k.Got, k.Want)
	case *kind.ExclusiveMaximum:
		return bound("exclusiveMaximum", k.Got, k.Want)
	case *kind.MultipleOf:
		return bound("multipleOf", k.Got, k.Want)
	case *kind.MinLength:
		return count("minLength", k.Got, k.Want)
	case *kind.MaxLength:
		return count("maxLength", k.Got, k.Want)
	case *kind.MinItems:
		return count("minItems", k.Got, k.Want)
	case *kind.MaxItems:
		return count("maxItems", k.Got, k.Want)
	case *kind.MinProperties:
		return count("minProperties", k.Got, k.Want)
	case *kind.MaxProperties:
		return count("maxProperties", k.Got, k.Want)
	case *kind.FalseSchema:
		return "the schema allows no value here"
	case *kind.Not:
		return "the schema excludes this value (not)"
	case *kind.Enum:
		if text, plain := oneOf(k.Want); plain {
			return text
		}
	case *kind.Const:
		if text, plain := oneOf([]any{k.Want}); plain {
			return text
		}
	case *kind.Pattern:
		if words := patterns[k.Want]; words != "" {
			return fmt.Sprintf("%.80q: %s", k.Got, words)
		}
	}
	return k.LocalizedString(english)
}

// oneOf describes the values that enum or const allow: strings in single quotes, other values as in JSON. plain is
// false if one is a list or an object.
func oneOf(values []any) (words string, plain bool) {
	var list []string
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			list = append(list, "null")
		case string:
			quoted := strconv.Quote(v)
			list = append(list, "'"+quoted[1:len(quoted)-1]+"'")
		case bool, json.Number, float64:
			list = append(list, fmt.Sprint(v))
		default:
			return "", false
		}
	}
	if len(list) == 1 {
		return "value must be " + list[0], true
	}
	return "value must be one of " + strings.Join(list, ", "), true
}

// patterns describes the patterns of the fleet's schemas, because most users do not read regular expressions.
var patterns = map[string]string{
	names.Pattern:     "a name is " + names.Rule,
	names.SlugPattern: "a name is " + names.SlugRule,

	`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`: "want words of a-z and 0-9, joined by -, " +
		"starting with a letter, such as double-number",

	`^[A-Za-z_][A-Za-z0-9_]{0,127}$`:   "want 1 to 128 letters (a-z, A-Z), digits and _, not starting with a digit",
	`^[a-z][a-z0-9_]{0,39}$`:           "want 1 to 40 of a-z, 0-9 and _, starting with a letter",
	`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`: "want a time with its unit (ms, s, m or h), such as 90s, 15m or 1h30m",
	`^[^/\s]+/[^/\s]+$`:                "want SERVER/TOOL, such as calculator/add",
	`^([^/.]|\.[^/.]|\.\.[^/])[^/]{0,253}(/([^/.]|\.[^/.]|\.\.[^/])[^/]{0,253})*$`: "" +
		"want the path of a file below the workspace, such as data/in.csv",
}

func bound(rule string, got, want *big.Rat) string {
	return fmt.Sprintf("%s: got %s, want %s", rule, Number(got), Number(want))
}

func count(rule string, got, want int) string {
	return fmt.Sprintf("%s: got %d, want %d", rule, got, want)
}

// Number writes a number without an exponent if it is 0, or if its absolute value is at least 1e-6 and below 1e21.
func Number(r *big.Rat) string {
	f, _ := r.Float64()
	format := byte('f')
	abs := max(f, -f)
	if r.IsInt() && abs < 1e21 {
		return r.Num().String()
	}
	if abs >= 1e21 || abs < 1e-6 && abs > 0 {
		format = 'e'
	}
	return strconv.FormatFloat(f, format, -1, 64)
}
