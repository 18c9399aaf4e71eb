package mcp

import (
	"html"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxEscapes is how often a text may be escaped: JSON may be a string in JSON, which is part of a URL.
const maxEscapes = 3

// A decodedText is a text after some decoding, with the origin of each byte.
type decodedText struct {
	text string
	at   []int32 // where in the original text each byte begins, and the original's length; nil if nothing was decoded
}

// origin returns where in the original text the i-th byte of d begins.
func (d decodedText) origin(i int) int {
	if d.at == nil {
		return i
	}
	return int(d.at[i])
}

// cutEscape matches the start of an escape at the end of a text.
var cutEscape = regexp.MustCompile(`(?:\\u[dD][89abAB][[:xdigit:]]{2})?` +
	`(?:\\+(?:u[[:xdigit:]]{0,3}|U[[:xdigit:]]{0,7}|x[[:xdigit:]]?)?|%[[:xdigit:]]?|&#?\w{0,7})$`)

// decode returns the text with each escape replaced by its character. It returns false if the text has no escapes. An
// untrusted text may be megabytes of escapes, so decode allocates no more than a few bytes for each of its bytes.
func (d decodedText) decode() (decodedText, bool) {
	var out []byte
	var at []int32
	last := 0 // the text before it is in out
	add := func(to int) {
		for ; last < to; last++ {
			out, at = append(out, d.text[last]), append(at, int32(d.origin(last)))
		}
	}
	for i := 0; i < len(d.text); {
		next := strings.IndexAny(d.text[i:], `\%&`)
		if next < 0 {
			break
		}
		i += next
		character, n := escapeAt(d.text[i:])
		if n == 0 {
			i++
			continue
		}
		if out == nil {
			out, at = make([]byte, 0, len(d.text)), make([]int32, 0, len(d.text)+1)
		}
		add(i)
		for range len(character) {
			at = append(at, int32(d.origin(i)))
		}
		out = append(out, character...)
		i += n
		last = i
	}
	if out == nil {
		return d, false
	}
	add(len(d.text))
	return decodedText{string(out), append(at, int32(d.origin(len(d.text))))}, true
}

// escapeAt returns the character whose escape is at the start of a text, and the length of the escape. It knows the
// escapes of JSON, of the strings of programming languages, of URLs and of HTML. The length is 0 if there is none.
func escapeAt(text string) (character string, n int) {
	hex := func(from, to int) (rune, bool) {
		if len(text) < to {
			return 0, false
		}
		n, err := strconv.ParseUint(text[from:to], 16, 32)
		return rune(n), err == nil
	}
	switch text[0] {
	case '%':
		if c, ok := hex(1, 3); ok {
			return string([]byte{byte(c)}), 3
		}
		return "", 0
	case '&':
		if end := strings.IndexByte(text[:min(len(text), len("&#x10FFFF;"))], ';'); end > 0 {
			if c := html.UnescapeString(text[:end+1]); c != text[:end+1] && utf8.RuneCountInString(c) == 1 {
				return c, end + 1
			}
		}
		return "", 0
	}
	if len(text) == 1 {
		return "", 0
	}
	switch c := text[1]; c {
	case 'x': // a byte in most languages; see latin1
		if c, ok := hex(2, 4); ok {
			return string([]byte{byte(c)}), 4
		}
	case 'u':
		if c, ok := hex(2, 6); ok {
			if low, ok := hex(8, 12); ok && text[6:8] == `\u` && utf16.DecodeRune(c, low) != utf8.RuneError {
				return string(utf16.DecodeRune(c, low)), 12
			}
			return string(c), 6
		}
	case 'U':
		if c, ok := hex(2, 10); ok {
			return string(c), 10
		}
	default:
		if i := strings.IndexByte("nrtbf", c); i >= 0 {
			return "\n\r\t\b\f"[i : i+1], 2
		}
		if strings.IndexByte(punctuation, c) >= 0 {
			return text[1:2], 2
		}
	}
	return "", 0
}

const punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

// latin1 returns a text with each character from U+0080 to U+00FF as one byte: Python writes é as \xe9.
func latin1(text string) string {
	out := make([]byte, 0, len(text))
	for _, c := range text {
		if c >= 0x80 && c <= 0xff {
			out = append(out, byte(c))
		} else {
			out = utf8.AppendRune(out, c)
		}
	}
	return string(out)
}
