package bridge

import (
	"unicode/utf8"

	"github.com/codefleet/codefleet/internal/text"
)

// textSize returns the size of a string in the JSON that marshal writes.
func textSize(s string) int {
	size := len(`""`)
	for _, r := range s {
		size += runeSize(r)
	}
	return size
}

func runeSize(r rune) int {
	switch {
	case r == '"', r == '\\', r == '\n', r == '\r', r == '\t', r == '\b', r == '\f':
		return 2
	case r < ' ', r == utf8.RuneError, r == '\u2028', r == '\u2029':
		return 6
	}
	return utf8.RuneLen(r)
}

// textPrefix returns the longest prefix of s that takes at most limit bytes of JSON.
func textPrefix(s string, limit int) string {
	size := len(`""`)
	for i, r := range s {
		if size += runeSize(r); size > limit {
			return s[:i]
		}
	}
	return s
}

// textStart is like textPrefix, but marks a truncated text.
func textStart(s string, limit int) string {
	if textSize(s) <= limit {
		return s
	}
	return textPrefix(s, limit-len("…")) + "…"
}

// textEnd returns the end of s in at most limit bytes of JSON, and marks a truncated text.
func textEnd(s string, limit int) string {
	end := text.TruncateStart(s, limit)
	for n := limit; textSize(end) > limit; n -= n/8 + 1 {
		end = text.TruncateStart(s, n)
	}
	return end
}

// textMiddle is like textStart, but leaves out the middle of the text.
func textMiddle(s string, limit int) string {
	if textSize(s) <= limit {
		return s
	}
	return textPrefix(s, limit/2) + textEnd(s, limit/2)
}

// listPrefix returns the longest prefix of a list that takes at most limit bytes of JSON.
func listPrefix[T any](list []T, limit int) []T {
	size := len("[]")
	for i, v := range list {
		if size += jsonSize(v) + len(","); size > limit {
			return list[:i]
		}
	}
	return list
}

// suffix returns the rest of s from a byte offset on. An offset within a character counts as the character's beginning.
func suffix(s string, from int) string {
	from = min(from, len(s))
	for from > 0 && from < len(s) && !utf8.RuneStart(s[from]) {
		from--
	}
	return s[from:]
}
