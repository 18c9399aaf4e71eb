// Package text prepares strings for people: it truncates them, makes strings of untrusted origin
// printable, suggests the nearest known name, and indents JSON within a bound. All functions are pure.
package text

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const ellipsis = "…"

// Truncate returns s in at most limit bytes. A longer s is cut between two characters and ends in "…".
// A limit below the three bytes of "…" yields an empty string.
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
// Unlike Truncate it does not mark the cut, so that s[len(Prefix(s, limit)):] is the rest.
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

// TruncateStart is Truncate that keeps the end of s: a longer s begins with "…".
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

// OneLine returns s with every run of white space replaced by one space, and none at its ends.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Printable returns s with every character that a reader cannot see spelled out, as in <U+200B>. Tabs and
// line ends stay. Use it before text of others reaches a terminal, a prompt or a page.
func Printable(s string) string {
	if !strings.ContainsFunc(s, Hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if Hidden(r) {
			fmt.Fprintf(&b, "<U+%04X>", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Hidden reports whether a reader cannot see r: control characters other than tab and line ends, format
// characters (zero width, bidirectional, tags), variation selectors, fillers and private use.
func Hidden(r rune) bool {
	switch r {
	case '\t', '\n', '\r':
		return false
	case 0x115F, 0x1160, 0x3164, 0xFFA0, 0x2800, 0x034F, 0x17B4, 0x17B5, 0x2028, 0x2029, unicode.ReplacementChar:
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Variation_Selector)
}
