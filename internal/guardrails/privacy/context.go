package privacy

import "strings"

// Words that announce a value. They are compared with the text in lower case.
var (
	phoneWords = []string{
		"phone", "mobile", "cell", "call", "tel", "fax", "desk", "office", "reach", "answering", "contact",
		"sms", "whatsapp", "telefon", "téléphone", "teléfono", "handy", "messages to", "my registered", "text me",
		"dial",
	}
	cardWords = []string{"card", "credit", "cc ", "visa", "mastercard", "amex"}
	ssnWords  = []string{"ssn", "social security"}
)

// Words are looked for in this many bytes before and after a value.
const before, after = 40, 12

// near reports whether one of words stands close to a value.
func (n number) near(first, last int, words []string) bool {
	start, end := n.groups[first].start, n.groups[last].end
	from := max(0, start-before)
	for i := 0; i < after && from > 0 && class[n.text[from-1]]&isAlnum != 0; i++ {
		from-- // to the beginning of a word
	}
	return containsWord(n.text[:start], from, words) ||
		containsWord(n.text[:min(len(n.text), end+after)], end, words)
}

// containsWord reports whether one of words is in text, at from or later, at the beginning of a word of text.
func containsWord(text string, from int, words []string) bool {
	inWord := from > 0 && class[text[from-1]]&isAlnum != 0
	text = strings.ToLower(text[from:])
	for _, w := range words {
		for at := 0; ; at++ {
			i := strings.Index(text[at:], w)
			if i < 0 {
				break
			}
			if at += i; at == 0 && !inWord || at > 0 && class[text[at-1]]&isAlnum == 0 {
				return true
			}
		}
	}
	return false
}
