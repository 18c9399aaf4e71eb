// Package terms turns names and sentences into index terms: identifiers are split, words lower-cased and
// stemmed, filler words dropped, literals (paths, addresses, amounts) replaced by words for their kind. Catalogue,
// queries, past tasks and word vectors all use these terms.
package terms

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

const (
	maxText = 64 << 10 // bytes of a text that are read; the rest is ignored
	maxWord = 48       // bytes; longer ones, such as hashes and keys, are no words
)

// Document returns the terms of a name, a description or any other text of the catalogue, in order.
func Document(s string) []string { return terms(s, Stem) }

// Query returns the terms of a user's sentence, after Literals has replaced its literal values.
func Query(s string) []string { return terms(Literals(s), Stem) }

func terms(s string, stem func(string) string) []string {
	words := Words(s)
	out := words[:0]
	for _, w := range words {
		if !stopWords[w] {
			out = append(out, stem(w))
		}
	}
	return out
}

// Documents returns Document with a cache: texts of a catalogue repeat, and their words even more. The function is not
// safe for concurrent use; callers must not change its results.
func Documents() func(string) []string {
	known, stems := map[string][]string{}, map[string]string{}
	stem := func(word string) string {
		s, ok := stems[word]
		if !ok {
			s = Stem(word)
			stems[word] = s
		}
		return s
	}
	return func(s string) []string {
		found, ok := known[s]
		if !ok {
			found = terms(s, stem)
			known[s] = found
		}
		return found
	}
}

// Words splits a text into lower-case words. It divides camelCase and snake_case, and also keeps the joined form of two
// parts, so that "GitHub" matches "github". Runs of Chinese, Japanese or Korean become bigrams. Numbers are dropped.
func Words(s string) []string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	s = norm.NFKC.String(strings.ToValidUTF8(s, " "))
	out := make([]string, 0, len(s)/6+1)
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case isCJK(r):
			n := span(s, isCJK)
			out = appendBigrams(out, s[:n])
			s = s[n:]
		case unicode.IsLetter(r) || unicode.IsDigit(r):
			n := span(s, isWordRune)
			out = appendIdentifier(out, s[:n])
			s = s[n:]
		default:
			s = s[size:]
		}
	}
	return out
}

func isCJK(r rune) bool {
	return r >= 0x2E80 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul)
}

func isWordRune(r rune) bool {
	return (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)) && !isCJK(r)
}

// span returns the length in bytes of the prefix of s whose characters ok accepts.
func span(s string, ok func(rune) bool) int {
	for i, r := range s {
		if !ok(r) {
			return i
		}
	}
	return len(s)
}

func appendBigrams(out []string, run string) []string {
	runes := []rune(run)
	if len(runes) == 1 {
		return append(out, run)
	}
	for i := range len(runes) - 1 {
		out = append(out, string(runes[i:i+2]))
	}
	return out
}

func appendIdentifier(out []string, word string) []string {
	before := len(out)
	start := 0
	runes := []rune(word)
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || boundary(runes, i) {
			out = appendWord(out, string(runes[start:i]))
			start = i
		}
	}
	if len(out)-before == 2 {
		out = appendWord(out, word)
	}
	return out
}

// boundary reports whether a camelCase part begins at i: aB, ABc (before B), 5B.
func boundary(r []rune, i int) bool {
	if !unicode.IsUpper(r[i]) {
		return false
	}
	if !unicode.IsUpper(r[i-1]) {
		return true
	}
	plural := i+2 == len(r) && r[i+1] == 's' // PRs, URLs
	return i+1 < len(r) && unicode.IsLower(r[i+1]) && !plural
}

func appendWord(out []string, w string) []string {
	if len(w) > maxWord || strings.IndexFunc(w, func(r rune) bool { return !unicode.IsDigit(r) }) < 0 {
		return out
	}
	return append(out, strings.ToLower(w))
}
