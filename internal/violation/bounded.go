package violation

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
)

const maxNumber = 400 // the most bytes of a number that the validator gets: exact arithmetic with longer ones is slow

// Bounded replaces, in place, the numbers of a document decoded by jsonschema.UnmarshalJSON that are dangerous for the
// validator, and returns the document. The validator calculates exactly: 1e9999999 makes it panic, and long numbers
// make it slow. A number that float64 cannot hold, or that is longer than maxNumber, becomes the nearest finite
// float64. Only zero becomes zero: a tiny number becomes the smallest float64 of its sign.
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
