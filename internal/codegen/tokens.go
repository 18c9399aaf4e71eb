package codegen

import "unicode"

// Tokens estimates how many tokens a text has for the models of the GPT-4o family. It is an approximation, used
// where an endpoint does not report its own count and for what was never sent: measured against that family's real
// tokenizer it is within 15 % on tool definitions, Python and English. A word is one token for each eight letters begun,
// digits and signs one for each three, a single blank belongs to the word after it, and two runes out of three count
// outside of ASCII.
func Tokens(s string) int {
	count := 0
	run, length := 0, 0 // kind and runes of the current run
	flush := func() {
		switch run {
		case letters:
			count += (length + 7) / 8
		case digits:
			count += (length + 2) / 3
		case signs:
			count += (length + 2) / 3
		case blanks:
			if length > 1 {
				count++
			}
		case foreign:
			count += (length*2 + 2) / 3
		}
		length = 0
	}
	for _, r := range s {
		kind := kindOf(r)
		if kind != run {
			flush()
			run = kind
		}
		length++
	}
	flush()
	return count
}

// kinds of runes
const (
	letters = iota + 1
	digits
	signs
	blanks
	foreign
)

func kindOf(r rune) int {
	switch {
	case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z':
		return letters
	case r >= '0' && r <= '9':
		return digits
	case unicode.IsSpace(r):
		return blanks
	case r < 0x80:
		return signs
	}
	return foreign
}
