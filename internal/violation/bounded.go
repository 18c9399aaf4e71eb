package violation

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
)

const maxNumber = 400 // bytes of a number in JSON that the validator gets: exact arithmetic with more takes long

// Bounded replaces numbers in a document that jsonschema.UnmarshalJSON has decoded, and returns it. The validator
// calculates exactly: numbers such as 1e9999999 make it panic, and long ones slow. Instead of a number above
// float64's range, below it or longer than maxNumber, the document gets the nearest float64, but neither infinity nor,
// unless the number is zero, zero.
func Bounded(doc any) any {
	switch v := doc.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = Bounded(member)
		}
	case []any:
		for i, element := range v {
			v[i] = Bounded(element)
		}
	case json.Number:
		return bounded(v)
	}
	return doc
}

func bounded(n json.Number) json.Number {
	f, err := strconv.ParseFloat(string(n), 64)
	mantissa, _, _ := strings.Cut(strings.ToLower(string(n)), "e")
	isZero := !strings.ContainsAny(mantissa, "123456789")
	switch {
	case errors.Is(err, strconv.ErrRange):
		f = math.Copysign(math.MaxFloat64, f)
	case f == 0 && !isZero:
		f = math.Copysign(math.SmallestNonzeroFloat64, f)
	case f != 0 && len(n) <= maxNumber:
		return n
	}
	return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
}
