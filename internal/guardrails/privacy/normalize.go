package privacy

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// normalized is a text in which every decimal digit, space and hyphen is the ASCII one, as are a full-width or small @
// and full stop. Invisible characters are left out, and escaped white space, such as \n, is blank. So a value is found
// however it is written.
type normalized struct {
	text   string
	shifts []shift // in order; empty if no offset has changed
}

// shift maps offsets. Up to the next shift, offset at+n of the normalized text corresponds to offset from+n of the
// original.
type shift struct{ at, from int }

func normalize(text string) normalized {
	text = blankEscapes(text)
	i := firstChange(text)
	if i < 0 {
		return normalized{text: text}
	}
	var b strings.Builder
	b.Grow(len(text))
	b.WriteString(text[:i])
	var shifts []shift
	for i < len(text) {
		r, size := utf8.DecodeRuneInString(text[i:])
		to := ascii(r)
		if to == r { // also an invalid byte, which DecodeRuneInString returns as U+FFFD
			b.WriteString(text[i : i+size])
			i += size
			continue
		}
		if to >= 0 {
			shifts = append(shifts, shift{b.Len(), i})
			b.WriteByte(byte(to))
		}
		i += size
		shifts = append(shifts, shift{b.Len(), i})
	}
	return normalized{b.String(), shifts}
}

// blankEscapes replaces each escape of white space in JSON, Python and other languages, such as \n, with two spaces, so
// that the escape's letter is not taken for part of a value.
func blankEscapes(text string) string {
	i := strings.IndexByte(text, '\\')
	if i < 0 {
		return text
	}
	b := []byte(text)
	for i++; i < len(b); i++ {
		if b[i-1] == '\\' && class[b[i]]&isEscaped != 0 {
			b[i-1], b[i] = ' ', ' '
		}
	}
	return string(b)
}

// firstChange returns the offset of the first character that differs in the normalized text, or -1.
func firstChange(text string) int {
	for i := 0; i < len(text); i++ {
		if text[i] < utf8.RuneSelf {
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		if ascii(r) != r {
			return i
		}
		i += size - 1
	}
	return -1
}

// original returns the offset in the original text.
func (n normalized) original(offset int) int {
	i := sort.Search(len(n.shifts), func(i int) bool { return n.shifts[i].at > offset })
	if i == 0 {
		return offset
	}
	s := n.shifts[i-1]
	return s.from + offset - s.at
}

// ascii returns the ASCII character that stands for r in a normalized text, -1 if r is left out, or r itself.
func ascii(r rune) rune {
	switch {
	case r < utf8.RuneSelf:
		return r
	case unicode.Is(unicode.Nd, r):
		return digit(r)
	case unicode.Is(unicode.Cf, r):
		return -1
	case unicode.Is(unicode.Zs, r):
		return ' '
	case unicode.Is(unicode.Pd, r):
		return '-'
	case r == '＠' || r == '﹫':
		return '@'
	case r == '．' || r == '﹒':
		return '.'
	}
	return r
}

// digit returns the ASCII digit of a decimal digit. Unicode encodes the ten digits of a script in a row from zero.
func digit(r rune) rune {
	for _, t := range unicode.Nd.R16 {
		if r >= rune(t.Lo) && r <= rune(t.Hi) {
			return '0' + (r-rune(t.Lo))%10
		}
	}
	for _, t := range unicode.Nd.R32 {
		if r >= rune(t.Lo) && r <= rune(t.Hi) {
			return '0' + (r-rune(t.Lo))%10
		}
	}
	return r
}
