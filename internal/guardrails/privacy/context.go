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
	return containsWord(n.text[max(0, start-before):start], words) ||
		containsWord(n.text[end:min(len(n.text), end+after)], words)
}

// containsWord reports whether one of words is in text, at the beginning of a word of text.
func containsWord(text string, words []string) bool {
	text = strings.ToLower(text)
	for _, w := range words {
		if i := strings.Index(text, w); i >= 0 && (i == 0 || class[text[i-1]]&isAlnum == 0) {
			return true
		}
	}
	return false
}
