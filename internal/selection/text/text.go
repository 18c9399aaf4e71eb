// Package text turns names and sentences into index terms: identifiers are split, words lower-cased and
// stemmed, filler dropped, literals (paths, addresses, amounts) replaced by what they are about.
// Catalogue, queries, past tasks and the word vectors all share this one stream of terms.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

const (
	maxText = 64 << 10 // bytes of a text that are looked at; the rest cannot change a ranking for the better
	maxWord = 48       // bytes; longer runs are blobs, not words
)

// Document returns the terms of a name, a description or any other text of the catalogue, in order.
func Document(s string) []string { return terms(s, Stem) }

// Query returns the terms of a user's sentence after Literals has replaced what is only a value in it.
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

// Documents returns Document with a memory, since the texts of a catalogue repeat, and their words more so. It is not
// for concurrent use, and what it returns must not be changed.
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

// Words splits a text into lower-case words. camelCase and snake_case are taken apart (the joined form is kept as
// well when there are two parts, so that "GitHub" and "github" meet), runs of Chinese, Japanese or Korean become
// bigrams, and words of digits only are dropped.
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
	return r >= 0x2E80 && (unicode.Is(unicode.Han, r) || unicode.Is(unicode.Hiragana, r) || unicode.Is(unicode.Katakana, r) || unicode.Is(unicode.Hangul, r))
}

func isWordRune(r rune) bool {
	return (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)) && !isCJK(r)
}

// span returns how many bytes of s, from its start, are runes that ok accepts.
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

// boundary tells whether a camelCase part begins at i: aB, ABc (before B), 5B.
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
