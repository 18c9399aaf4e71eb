package form

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// This file reads numbers without rounding them: a person's 9007199254740993.5 is not a whole number, although the
// nearest float64 is one.

// Values are the values of a form's fields. A number of at most 15 digits is a float64, others are a json.Number.
type Values map[string]any

// UnmarshalJSON refuses duplicate members, and numbers that are too large, too small or too long to be checked exactly.
func (v *Values) UnmarshalJSON(data []byte) error {
	err := jsonv2.Unmarshal(data, (*map[string]any)(v), exactNumbers)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNumber):
		return errNumber
	case errors.Is(err, jsontext.ErrDuplicateName):
		return errors.New("the values have the same name twice")
	}
	return errors.New("the values are not a JSON object")
}

// exactNumbers makes a decoder keep the digits of numbers that it decodes into a value of type any.
var exactNumbers = jsonv2.WithUnmarshalers(keepDigits)

var keepDigits = jsonv2.UnmarshalFromFunc(func(d *jsontext.Decoder, v *any) error {
	if d.PeekKind() != '0' {
		return errors.ErrUnsupported
	}
	text, err := d.ReadValue()
	if err == nil {
		*v, err = number(string(text))
	}
	return err
})

// wholeNumbers makes a decoder accept for an int what JSON Schema calls an integer, such as 2.0. Like exactNumbers, it
// keeps the digits of other numbers.
var wholeNumbers = jsonv2.WithUnmarshalers(jsonv2.JoinUnmarshalers(keepDigits, jsonv2.UnmarshalFromFunc(
	func(d *jsontext.Decoder, v *int) error {
		if d.PeekKind() != '0' {
			return errors.ErrUnsupported
		}
		text, err := d.ReadValue()
		if err == nil {
			_, err = number(string(text)) // bounds the exponent
		}
		if err != nil {
			return err
		}
		n := exactNumber(text).value()
		if !n.IsInt() || !n.Num().IsInt64() || n.Num().Int64() > math.MaxInt32 {
			return errNumber
		}
		*v = int(n.Num().Int64())
		return nil
	})))

const (
	maxNumber    = 400 // bytes of a number: exact arithmetic with more takes long
	exactDecimal = 15  // digits that a float64 preserves
)

var errNumber = errors.New("a number is too large, too small or too long")

// number returns the value of a number in JSON, with the Go type that Values has for it.
func number(text string) (any, error) {
	v, err := strconv.ParseFloat(text, 64)
	mantissa, _, _ := strings.Cut(strings.ToLower(text), "e")
	digits := strings.TrimLeft(strings.NewReplacer("-", "", ".", "").Replace(mantissa), "0")
	switch {
	case err != nil, len(text) > maxNumber, v == 0 && digits != "":
		return nil, errNumber
	case len(digits) <= exactDecimal:
		return v, nil
	}
	return json.Number(text), nil
}

// exactNumber is a number in a form's rules, with the digits of its JSON.
type exactNumber string

// UnmarshalJSONFrom refuses what is not a number, and numbers that no value can have.
func (n *exactNumber) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != '0' {
		return errors.New("not a number")
	}
	text, err := d.ReadValue()
	if err == nil {
		*n = exactNumber(text)
		_, err = number(string(text))
	}
	return err
}

// MarshalJSONTo implements jsonv2.MarshalerTo.
func (n exactNumber) MarshalJSONTo(e *jsontext.Encoder) error { return e.WriteValue(jsontext.Value(n)) }

func (n exactNumber) value() *big.Rat {
	if r, ok := new(big.Rat).SetString(string(n)); ok {
		return r
	}
	return new(big.Rat) // a zero with too large an exponent for big.Rat: number has refused all others
}
