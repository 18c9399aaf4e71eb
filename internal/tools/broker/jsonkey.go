package broker

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// appendKey appends to b a text for a value of a JSON document. Two values have the same text if and only if they are
// equal. Numbers are equal if they have the same value, such as 10 and 1e1.
func appendKey(b []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		b = append(b, '{')
		for _, name := range slices.Sorted(maps.Keys(v)) {
			b = append(appendKey(append(strconv.AppendQuote(b, name), ':'), v[name]), ',')
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for _, element := range v {
			b = append(appendKey(b, element), ',')
		}
		return append(b, ']')
	case string:
		return strconv.AppendQuote(b, v)
	case json.Number:
		sign, digits, exponent := decimal(v)
		return strconv.AppendInt(append(b, sign+digits+"e"...), exponent, 10)
	case bool:
		return strconv.AppendBool(b, v)
	}
	return append(b, "null"...)
}

// decimal returns a number as sign ("-" or ""), an integer without zeros at either end, and a power of ten. Zero has
// neither sign nor digits, and the power 0. The power fits because of violation.Bounded.
func decimal(n json.Number) (sign, digits string, exponent int64) {
	mantissa, power, _ := strings.Cut(strings.ToLower(string(n)), "e")
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "", "", 0
	}
	exponent, _ = strconv.ParseInt(power, 10, 64)
	exponent -= int64(len(fraction))
	trimmed := strings.TrimRight(digits, "0")
	exponent += int64(len(digits) - len(trimmed))
	if negative {
		sign = "-"
	}
	return sign, trimmed, exponent
}

// isWhole reports whether v is a number without a fraction.
func isWhole(v any) bool {
	n, ok := v.(json.Number)
	if !ok {
		return false
	}
	_, _, exponent := decimal(n)
	return exponent >= 0
}

// typeOf returns the JSON type of a value of a document, which is never integer.
func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case json.Number:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}
