// Package terms turns names and sentences into index terms. It splits identifiers, converts words to lower-case stems,
// drops stop words, and replaces literal values (paths, addresses, amounts) with words for their kind. The catalogue,
// the queries, the past tasks and the word vectors all use these terms.
package terms

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

const (
	maxText = 64 << 10 // bytes of a text that are read; the rest is ignored
	maxWord = 48       // bytes of a word; longer ones, such as hashes and keys, are dropped
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

// Documents returns a function like Document with a cache, because the texts of a catalogue repeat, and their words
// even more. The function is not safe for concurrent use, and callers must not change its results.
func Documents() func(string) []string {
	cache, stems := map[string][]string{}, map[string]string{}
	stem := func(word string) string {
		s, ok := stems[word]
		if !ok {
			s = Stem(word)
			stems[word] = s
		}
		return s
	}
	return func(s string) []string {
		found, ok := cache[s]
		if !ok {
			found = terms(s, stem)
			cache[s] = found
		}
		return found
	}
}

// Words splits a text into lower-case words. It splits camelCase and snake_case. If an identifier has two camelCase
// parts, it also returns them joined, so that "GitHub" matches "github". Chinese, Japanese and Korean text becomes
// bigrams. Numbers are dropped.
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
func span(s string, ok func(rune) bool) int { return len(s) - len(strings.TrimLeftFunc(s, ok)) }

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

// boundary reports whether a camelCase part begins at i: before the B of aB, ABc and 5B.
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
