package executor

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of a program's result in addition to its size. Beyond them many JSON libraries fail, and some crash. The
// runner's module jsonable enforces them, but a program may write its result to the channel itself.
const (
	maxResultDepth  = 64   // jsonable.MAX_DEPTH, plus levels for objects that stand for values without a JSON form
	maxNumberLength = 4300 // characters; Python's limit for converting integers
)

// validResult reports whether a result is at most MaxResultBytes of JSON in UTF-8 that all common libraries can decode,
// and decode alike. No object has two members with the same name: a check could see the one, and a reader of the result
// the other.
func validResult(data []byte) bool {
	if len(data) > MaxResultBytes || !jsontext.Value(data).IsValid() {
		return false
	}
	depth := 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '[' || c == '{':
			if depth++; depth > maxResultDepth {
				return false
			}
		case c == ']' || c == '}':
			depth--
		case c == '"':
			begin := i
			if i = endOfString(data, i); hasLoneSurrogate(data[begin:i]) {
				return false
			}
		case c == '-' || c >= '0' && c <= '9':
			end := i + 1
			for end < len(data) && strings.IndexByte("+-.eE0123456789", data[end]) >= 0 {
				end++
			}
			if !validNumber(data[i:end]) {
				return false
			}
			i = end - 1
		}
	}
	return true
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

// hasLoneSurrogate reports whether a valid JSON string has an escaped surrogate that is not half of a pair.
func hasLoneSurrogate(s []byte) bool {
	high := false // whether the escape before s[i] is the first half of a pair
	for i := 0; i < len(s); i++ {
		unit := rune(0)
		if s[i] == '\\' {
			if i++; s[i] == 'u' {
				value, _ := strconv.ParseUint(string(s[i+1:i+5]), 16, 16)
				unit = rune(value)
				i += 4
			}
		}
		low := unit >= 0xDC00 && unit < 0xE000
		if high != low {
			return true
		}
		high = unit >= 0xD800 && unit < 0xDC00
	}
	return high
}

// validNumber reports whether a JSON number is short enough and, unless it is an integer, a finite float64.
func validNumber(number []byte) bool {
	if len(number) > maxNumberLength {
		return false
	}
	if bytes.ContainsAny(number, ".eE") {
		_, err := strconv.ParseFloat(string(number), 64)
		return err == nil
	}
	return true
}
