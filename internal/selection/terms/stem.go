package terms

import (
	_ "embed"
	"strings"

	"github.com/kljensen/snowball/english"
)

//go:embed stopwords.txt
var stopText string

// stopWords are words that do not help to find a tool.
var stopWords = wordSet(stopText)

// Stem returns the Snowball stem of a lower-case English word. It does not change other words, or words of up to three
// letters.
func Stem(word string) string {
	for i := range len(word) {
		if c := word[i]; c < 'a' || c > 'z' {
			return word
		}
	}
	if len(word) <= 3 {
		return word
	}
	return english.Stem(word, false)
}

// wordSet reads words separated by white space. A comment begins with # and ends with the line.
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
