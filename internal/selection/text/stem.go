package text

import (
	_ "embed"
	"strings"

	"github.com/kljensen/snowball/english"
)

//go:embed stopwords.txt
var stopText string

// stopWords are words that say nothing about which tool is wanted. Read-only after package initialisation.
var stopWords = wordSet(stopText)

// Stem returns the Snowball stem of a lower-case English word; other words come back as they are.
func Stem(word string) string {
	for i := range len(word) {
		if c := word[i]; c < 'a' || c > 'z' {
			return word
		}
	}
	if len(word) <= 3 {
		return strings.TrimSuffix(word, "'")
	}
	return english.Stem(word, false)
}

// wordSet reads words divided by blanks; a # starts a comment that ends with its line.
func wordSet(s string) map[string]bool {
	set := map[string]bool{}
	for line := range strings.Lines(s) {
		line, _, _ = strings.Cut(line, "#")
		for w := range strings.FieldsSeq(line) {
			set[w] = true
		}
	}
	return set
}
