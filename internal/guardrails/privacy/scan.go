package privacy

import (
	"net/netip"
	"strings"
)

// scanner finds all values but secrets in one pass over a normalized text.
type scanner struct {
	text  string
	found []Span
}

func (s *scanner) scan() {
	for i := 0; i < len(s.text); {
		c := s.text[i]
		switch {
		case c == '@':
			s.email(i)
			i++
		case c == ':' || class[c]&isAlnum != 0:
			i = s.word(i)
		case (c == '+' || c == '(') && i+1 < len(s.text) && class[s.text[i+1]]&isDigit != 0:
			i = s.number(i)
		default:
			i++
		}
	}
}

// word looks for a value in the word that starts at i, and returns where the scan continues.
func (s *scanner) word(i int) int {
	if s.ipv6(i) {
		return s.endOf(i, isAlnum|isColon)
	}
	if s.text[i] == ':' {
		return i + 1
	}
	if class[s.text[i]]&isDigit != 0 {
		return s.number(i)
	}
	if n := ibanPrefix(s.text[i:]); n > 0 {
		s.add(i, i+n, IBAN)
		return i + n
	}
	return s.endOf(i, isAlnum)
}

// endOf returns the first index from i on whose character is not of the given classes. The scan continues there, so
// that it takes time in proportion to the length of the text.
func (s *scanner) endOf(i int, classes uint16) int {
	for i < len(s.text) && class[s.text[i]]&classes != 0 {
		i++
	}
	return i
}

func (s *scanner) add(start, end int, t Type) { s.found = append(s.found, Span{start, end, t}) }

// The limits of RFC 5321, sections 4.5.3.1.1 and 4.5.3.1.2.
const maxLocalPart, maxDomain = 64, 255

// email looks for an address around the @ at i.
func (s *scanner) email(i int) {
	start, end := i, i+1
	for start > 0 && i-start < maxLocalPart && class[s.text[start-1]]&isLocal != 0 {
		start--
	}
	for end < len(s.text) && end-i <= maxDomain && class[s.text[end]]&isDomain != 0 {
		end++
	}
	local := strings.TrimLeft(s.text[start:i], ".'")
	if domain := domainPrefix(s.text[i+1 : end]); local != "" && domain != "" {
		s.add(i-len(local), i+1+len(domain), Email)
	}
}

// domainPrefix returns the domain with which a text begins, such as example.org of "example.org...or", or "". A domain
// has at least two labels, none of which is empty or begins with a hyphen, and the last of which has at least two
// characters.
func domainPrefix(text string) string {
	text, _, _ = strings.Cut(text, "..")
	text, _, _ = strings.Cut(text, ".-")
	text = strings.TrimRight(text, ".-")
	dot := strings.LastIndexByte(text, '.')
	for dot >= len(text)-2 && dot > 0 { // the last label has one character
		text = text[:dot]
		dot = strings.LastIndexByte(text, '.')
	}
	if dot <= 0 || text[0] == '.' || text[0] == '-' {
		return ""
	}
	return text
}

// maxIPv6 is the length of the longest IPv6 address, without a zone.
const maxIPv6 = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")

// ipv6 looks for an IPv6 address that starts at i.
func (s *scanner) ipv6(i int) bool {
	end := i
	for end < len(s.text) && end-i <= maxIPv6 && class[s.text[end]]&(isHex|isColon|isDot) != 0 {
		end++
	}
	word := strings.TrimRight(s.text[i:end], ".")
	if strings.HasSuffix(word, ":") && !strings.HasSuffix(word, "::") {
		word = word[:len(word)-1]
	}
	if strings.IndexByte(word, ':') < 0 || end < len(s.text) && class[s.text[end]]&isAlnum != 0 ||
		!strings.ContainsAny(word, "0123456789") { // such as abc::def in a program
		return false
	}
	if _, err := netip.ParseAddr(word); err != nil {
		return false
	}
	s.add(i, i+len(word), IP)
	return true
}

// class has the classes of each byte. A byte above ASCII is part of a letter.
var class = classes()

const (
	isDigit uint16 = 1 << iota
	isHex
	isAlnum
	isLocal // of an e-mail address, before the @
	isDomain
	isColon
	isDot
	isSeparator // between groups of digits
	isKey       // of an API key or token
	isEscaped   // a letter that means white space after a backslash, such as n
)

func classes() (t [256]uint16) {
	set := func(chars string, c uint16) {
		for i := range len(chars) {
			t[chars[i]] |= c
		}
	}
	const digits, hexLetters = "0123456789", "abcdefABCDEF"
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	set(digits, isDigit|isHex|isAlnum|isLocal|isDomain|isKey)
	set(hexLetters, isHex)
	set(letters, isAlnum|isLocal|isDomain|isKey)
	set("+/=_-~", isKey)
	set("!#$%&'*+/=?^_`{|}~.-", isLocal)
	set(".-", isDomain)
	set(":", isColon)
	set("nrtfv", isEscaped)
	set(".", isDot)
	set(" -./()", isSeparator)
	for i := 0x80; i < 0x100; i++ {
		t[i] |= isAlnum | isLocal | isDomain
	}
	return t
}
