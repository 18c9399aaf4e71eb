// Package strictjson decodes JSON that callers send. It refuses what encoding/json passes over in silence, because a
// request would then do something else, or more, than its sender meant: members with the same name (which one counts
// depends on the decoder), names in another case, null in place of a value, invalid Unicode, and text after the value.
//
// The functions return an *Error.
package strictjson

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/codefleet/codefleet/internal/text"
)

// Error says why JSON was refused. It quotes names of members and numbers that are too large, but no other values.
type Error struct {
	Path    string // JSON Pointer to the value, or "" for the whole text
	Offset  int64  // in bytes, or -1 if the text is well-formed
	Reason  string
	TooMany bool // a list has more elements than its Limit
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Reason
	}
	return e.Path + ": " + e.Reason
}

// Limit bounds the lists of one type. Without it, a short text such as [{},{}] may become a list of many times its
// size.
type Limit struct{ unmarshalers *jsonv2.Unmarshalers }

// MaxElements refuses a list of the type []T with more than limit elements, as soon as it has decoded so many.
func MaxElements[T any](limit int) Limit {
	return Limit{jsonv2.UnmarshalFromFunc(func(d *jsontext.Decoder, list *[]T) error {
		if d.PeekKind() != '[' {
			return errors.ErrUnsupported
		}
		if _, err := d.ReadToken(); err != nil {
			return err
		}
		*list = []T{}
		for d.PeekKind() != ']' {
			if len(*list) == limit {
				return tooManyError(limit)
			}
			var element T
			if err := jsonv2.UnmarshalDecode(d, &element); err != nil {
				return err
			}
			*list = append(*list, element)
		}
		_, err := d.ReadToken()
		return err
	})}
}

// tooManyError is the limit of a list that has more elements.
type tooManyError int

func (e tooManyError) Error() string {
	return fmt.Sprintf("the list has more than %d elements", int(e))
}

// withLimits returns the unmarshalers of the limits, followed by last. Without limits it joins nothing, because joined
// unmarshalers look up each type again.
func withLimits(limits []Limit, last *jsonv2.Unmarshalers) jsonv2.Options {
	if len(limits) == 0 {
		return jsonv2.WithUnmarshalers(last)
	}
	var all []*jsonv2.Unmarshalers
	for _, l := range limits {
		all = append(all, l.unmarshalers)
	}
	return jsonv2.WithUnmarshalers(jsonv2.JoinUnmarshalers(append(all, last)...))
}

// Decode decodes a value with no unknown members into v, which must be a pointer to its zero value. It refuses null,
// except for values of the types any and json.RawMessage. If v points to a struct, it also refuses empty texts, lists
// and times for fields whose empty value is not encoded: there it means the default.
func Decode(data []byte, v any, limits ...Limit) error {
	err := jsonv2.Unmarshal(data, v, jsonv2.RejectUnknownMembers(true), withLimits(limits, strict))
	if err != nil {
		return explain(err)
	}
	return emptyMember(data, reflect.ValueOf(v).Elem())
}

// DecodeOpen is like Decode, but for JSON from programs other than our clients: it ignores unknown members, permits
// empty members, and treats a member that is null as if it were left out. Only a json.RawMessage gets the null.
func DecodeOpen(data []byte, v any, limits ...Limit) error {
	if jsontext.Value(data).Kind() == 'n' {
		return &Error{Offset: -1, Reason: errNull.Error()}
	}
	return explain(jsonv2.Unmarshal(data, v, withLimits(limits, integers)))
}

// Limits of what Check accepts. Python's json refuses longer integers, and many decoders limit their recursion.
const (
	MaxDigits = 4300 // of a number; its sign is no digit
	MaxDepth  = 500  // levels of arrays and objects
)

// Check returns an error unless data is one JSON value that programs can decode. It permits null.
func Check(data []byte) error { return CheckDepth(data, MaxDepth) }

// CheckDepth is like Check, but with its own limit of levels.
func CheckDepth(data []byte, maxDepth int) error {
	var value jsontext.Value
	if err := jsonv2.Unmarshal(data, &value); err != nil {
		return explain(err)
	}
	return checkLimits(data, maxDepth)
}

// checkLimits returns an error if JSON is nested too deeply, or has a number with too many digits, or a number with a
// fraction or an exponent that is beyond the range of float64. data must be valid.
func checkLimits(data []byte, maxDepth int) error {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '[' || c == '{':
			if depth++; depth > maxDepth {
				return &Error{Offset: -1, Reason: fmt.Sprintf("it is nested more than %d levels deep", maxDepth)}
			}
		case c == ']' || c == '}':
			depth--
		case c == '"':
			i = endOfString(data, i)
		case c == '-' || c >= '0' && c <= '9':
			end := i + 1
			for end < len(data) && strings.IndexByte("+-.eE0123456789", data[end]) >= 0 {
				end++
			}
			if err := checkNumber(string(data[i:end])); err != nil {
				return err
			}
			i = end - 1
		}
	}
	return nil
}

// endOfString returns the index of the closing quote of the string that begins at data[i]. data must be valid JSON.
func endOfString(data []byte, i int) int {
	for i++; data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return i
}

func checkNumber(number string) error {
	digits := 0
	for _, c := range number {
		if c >= '0' && c <= '9' {
			digits++
		}
	}
	if digits > MaxDigits {
		return &Error{Offset: -1, Reason: fmt.Sprintf("a number has more than %d digits", MaxDigits)}
	}
	if strings.ContainsAny(number, ".eE") {
		if _, err := strconv.ParseFloat(number, 64); err != nil {
			return &Error{Offset: -1, Reason: "a number is too large for a float: " + quote(text.Truncate(number, 40))}
		}
	}
	return nil
}

var errNull = errors.New("it is null: leave it out, or give it a value")

// noNull refuses null for values that are not any JSON.
var noNull = jsonv2.UnmarshalFromFunc(func(d *jsontext.Decoder, v any) error {
	switch v.(type) {
	case *any, *json.RawMessage, *jsontext.Value:
		return errors.ErrUnsupported
	}
	if d.PeekKind() == 'n' {
		return errNull
	}
	return errors.ErrUnsupported
})

// strict are the unmarshalers of Decode.
var strict = jsonv2.JoinUnmarshalers(noNull, integers)

// integers accept each form of an integer, such as 512.0 and 1e3, as JSON Schema does.
var integers = jsonv2.JoinUnmarshalers(
	jsonv2.UnmarshalFromFunc(integer[int]), jsonv2.UnmarshalFromFunc(integer[int32]),
	jsonv2.UnmarshalFromFunc(integer[int64]), jsonv2.UnmarshalFromFunc(integer[uint64]),
)

var errNoInteger = errors.New("it is not a whole number")

// Limits of a number that is computed exactly. An exponent of ten digits would fill the memory.
const (
	maxForm     = 1000 // bytes
	maxExponent = 1000
)

// smallExponent reports whether the exponent of a valid number is within the limit.
func smallExponent(number string) bool {
	i := strings.IndexAny(number, "eE")
	if i < 0 {
		return true
	}
	exponent, err := strconv.Atoi(number[i+1:])
	return err == nil && exponent >= -maxExponent && exponent <= maxExponent
}

func integer[T int | int32 | int64 | uint64](d *jsontext.Decoder, v *T) error {
	if d.PeekKind() != '0' {
		return errors.ErrUnsupported
	}
	value, err := d.ReadValue()
	if err != nil {
		return err
	}
	number := string(value)
	if strings.ContainsAny(number, ".eE") && len(number) <= maxForm && smallExponent(number) {
		exact, _ := new(big.Rat).SetString(number) // the number is valid
		if !exact.IsInt() {
			return errNoInteger
		}
		number = exact.Num().String()
	}
	if jsonv2.Unmarshal([]byte(number), v) != nil {
		least, most := int64(math.MinInt64), uint64(math.MaxInt64)
		switch any(v).(type) {
		case *int32:
			least, most = math.MinInt32, math.MaxInt32
		case *uint64:
			least, most = 0, math.MaxUint64
		}
		return fmt.Errorf("want a whole number from %d to %d", least, most)
	}
	return nil
}

// maxName bounds what an error quotes, in bytes.
const maxName = 300

// emptyMember returns an error if data has an empty member whose field is tagged omitempty or omitzero. For the
// default, callers must leave such a member out.
func emptyMember(data []byte, v reflect.Value) error {
	if v.Kind() != reflect.Struct {
		return nil
	}
	var members map[string]jsontext.Value
	if err := jsonv2.Unmarshal(data, &members); err != nil {
		return explain(err)
	}
	for _, f := range reflect.VisibleFields(v.Type()) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		_, sent := members[name]
		optional := slices.ContainsFunc(strings.Split(options, ","), func(o string) bool {
			return o == "omitempty" || o == "omitzero"
		})
		if sent && optional && isEmpty(v.FieldByIndex(f.Index)) {
			return &Error{Path: "/" + name, Offset: -1, Reason: "it is empty: leave it out for its default"}
		}
	}
	return nil
}

// isEmpty reports whether v is an empty text or list, or a zero struct such as a time.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String, reflect.Slice:
		return v.Len() == 0
	case reflect.Struct:
		return v.IsZero()
	default:
		return false
	}
}

// explain returns the *Error for an error of the decoder.
func explain(err error) error {
	if err == nil {
		return nil
	}
	syntax, isSyntax := errors.AsType[*jsontext.SyntacticError](err)
	semantic, isSemantic := errors.AsType[*jsonv2.SemanticError](err)
	switch {
	case isSyntax && errors.Is(err, jsontext.ErrDuplicateName):
		return &Error{Path: quote(string(syntax.JSONPointer)), Offset: -1, Reason: "the name occurs twice"}
	case isSyntax && errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{Offset: syntax.ByteOffset, Reason: "the JSON ends too early"}
	case isSyntax && strings.Contains(syntax.Err.Error(), "surrogate"):
		return &Error{Offset: syntax.ByteOffset, Reason: "a text has half of a surrogate pair"}
	case isSyntax:
		return &Error{Offset: syntax.ByteOffset, Reason: quote(cmp.Or(syntax.Err, err).Error())}
	case isSemantic && errors.Is(err, jsonv2.ErrUnknownName):
		return &Error{Path: quote(string(semantic.JSONPointer)), Offset: -1, Reason: "there is no such field here"}
	case isSemantic:
		_, tooMany := errors.AsType[tooManyError](err)
		return &Error{Path: quote(string(semantic.JSONPointer)), Offset: -1, Reason: reason(semantic), TooMany: tooMany}
	}
	return &Error{Offset: -1, Reason: quote(err.Error())}
}

// reason says what is wrong with a well-formed value.
func reason(e *jsonv2.SemanticError) string {
	kinds := map[jsontext.Kind]string{
		'n': "null", 't': "a boolean", 'f': "a boolean", '"': "a string", '0': "a number", '{': "an object",
		'[': "an array",
	}
	switch kind := kinds[e.JSONKind]; {
	case errors.Is(e.Err, errNull):
		return errNull.Error()
	case e.GoType == reflect.TypeFor[time.Time]() && kind == "a string":
		return "want a time with its date and zone, such as 2026-01-02T15:04:05Z (RFC 3339)"
	case e.Err != nil:
		return quote(e.Err.Error())
	case kind != "":
		return "it is " + kind
	}
	return "it has the wrong type"
}

func quote(s string) string { return text.Printable(text.Truncate(s, maxName)) }
