// Package text prepares strings for people: it truncates them, makes untrusted strings printable, hides credentials in
// addresses, suggests the nearest known name, and indents JSON within a bound. It also encodes and decodes tokens of
// JSON Pointers. All functions are pure.
package text

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const ellipsis = "…"

// Truncate returns s if it has at most limit bytes, or else a beginning of s and "…", in at most limit bytes.
// It cuts between two characters. If limit is less than the three bytes of "…", it returns "".
func Truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	if limit < len(ellipsis) {
		return ""
	}
	return Prefix(s, limit-len(ellipsis)) + ellipsis
}

// Prefix returns the longest beginning of s that has at most limit bytes and ends between two characters.
// Unlike Truncate, it does not mark the cut, so that s[len(Prefix(s, limit)):] is the rest.
func Prefix(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := max(limit, 0)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// TruncateStart is like Truncate, but keeps the end of s and puts "…" at the start.
func TruncateStart(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	if limit < len(ellipsis) {
		return ""
	}
	start := len(s) - limit + len(ellipsis)
	for start < len(s) && !utf8.RuneStart(s[start]) {
		start++
	}
	return ellipsis + s[start:]
}

// OneLine returns s with each run of white space replaced by one space, and without white space at its ends.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Duration formats a duration without zero units, such as 5m instead of 5m0s.
func Duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Count returns a number with a noun, in the plural unless the number is 1.
func Count[N int | int64 | uint64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprint(n, " ", noun)
}

// Printable returns s with every Hidden character written as its code point, such as <U+200B>. Use it before
// untrusted text reaches a terminal, a prompt or a page.
func Printable(s string) string { return spell(s, Hidden, "<U+%04X>") }

// PrintableLine is Printable for a text that must stay on one line: it writes line ends and tabs as code points, too.
func PrintableLine(s string) string {
	return spell(s, func(r rune) bool { return Hidden(r) || r == '\n' || r == '\r' || r == '\t' }, "<U+%04X>")
}

// Terminal returns s with every character that Controls a terminal written as its code point, like Printable.
// Other characters, such as the joiners of emoji, are unchanged.
func Terminal(s string) string { return spell(s, Controls, "<U+%04X>") }

// TerminalJSON is Terminal for valid JSON: the result is equivalent JSON.
func TerminalJSON(s string) string { return spell(s, Controls, `\u%04x`) }

// spell returns s with each character for which hidden is true in a printable form.
func spell(s string, hidden func(rune) bool, form string) string {
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			fmt.Fprintf(&b, form, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Controls reports whether a terminal acts on r or displays other characters in another order because of it:
// control characters other than tabs and line ends, bytes that are not UTF-8, and bidirectional controls.
func Controls(r rune) bool {
	switch r {
	case '\t', '\n', '\r':
		return false
	case unicode.ReplacementChar:
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Bidi_Control)
}

// Hidden reports whether a reader cannot see or recognise r: control characters other than tabs and line ends, format
// characters (zero width, bidirectional, tags), line separators of Unicode, variation selectors, fillers, private use
// and bytes that are not UTF-8.
func Hidden(r rune) bool {
	switch r {
	case '\t', '\n', '\r':
		return false
	case 0x115F, 0x1160, 0x3164, 0xFFA0, 0x2800, 0x034F, 0x17B4, 0x17B5, 0x2028, 0x2029, unicode.ReplacementChar:
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Variation_Selector)
}
