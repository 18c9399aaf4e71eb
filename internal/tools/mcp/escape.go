package mcp

import (
	"html"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
)

// maxEscapes is how often a text may be escaped: JSON may be a string in JSON, which is part of a URL.
const maxEscapes = 3

// A decodedText is a text whose escapes may be decoded.
type decodedText struct {
	text string
	at   []int // where in the original text each byte begins, and the original's length; nil if nothing was decoded
}

// origin returns where in the original text the i-th byte of d begins.
func (d decodedText) origin(i int) int {
	if d.at == nil {
		return i
	}
	return d.at[i]
}

// escape matches what one character is in JSON, in the strings of programming languages, in URLs and in HTML.
var escape = regexp.MustCompile(`\\u[dD][89abAB][[:xdigit:]]{2}\\u[dD][c-fC-F][[:xdigit:]]{2}|\\u[[:xdigit:]]{4}|` +
	`\\x[[:xdigit:]]{2}|\\[nrtbf[:punct:]]|%[[:xdigit:]]{2}|&(?:amp|lt|gt|quot|apos|#\d{1,7}|#[xX][[:xdigit:]]{1,6});`)

// cutEscape matches the start of an escape at the end of a text.
var cutEscape = regexp.MustCompile(`(?:\\u[dD][89abAB][[:xdigit:]]{2})?` +
	`(?:\\+(?:u[[:xdigit:]]{0,3}|x[[:xdigit:]]?)?|%[[:xdigit:]]?|&#?\w{0,7})$`)

// decode returns the text with each escape replaced by its character. It returns false if the text has no escapes.
func (d decodedText) decode() (decodedText, bool) {
	if !strings.ContainsAny(d.text, `\%&`) {
		return d, false
	}
	found := escape.FindAllStringIndex(d.text, -1)
	if found == nil {
		return d, false
	}
	var b strings.Builder
	at, last := make([]int, 0, len(d.text)+1), 0
	add := func(decoded string, from int, step int) {
		b.WriteString(decoded)
		for i := range len(decoded) {
			at = append(at, d.origin(from+i*step))
		}
	}
	for _, f := range found {
		add(d.text[last:f[0]], last, 1)
		add(character(d.text[f[0]:f[1]]), f[0], 0)
		last = f[1]
	}
	add(d.text[last:], last, 1)
	return decodedText{b.String(), append(at, d.origin(len(d.text)))}, true
}

// character returns the character of which a text is the escape.
func character(text string) string {
	hex := func(from, to int) rune {
		n, _ := strconv.ParseUint(text[from:to], 16, 32) // escape matches only digits
		return rune(n)
	}
	switch {
	case text[0] == '&':
		return html.UnescapeString(text)
	case text[0] == '%':
		return string([]byte{byte(hex(1, 3))})
	case text[1] == 'x':
		return string([]byte{byte(hex(2, 4))})
	case len(text) == len(`\uD83D\uDE00`):
		return string(utf16.DecodeRune(hex(2, 6), hex(8, 12)))
	case text[1] == 'u':
		return string(hex(2, 6))
	}
	if i := strings.IndexByte("nrtbf", text[1]); i >= 0 {
		return "\n\r\t\b\f"[i : i+1]
	}
	return text[1:]
}
