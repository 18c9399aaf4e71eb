package privacy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nyaruka/phonenumbers"
)

// number is a run of digit groups that may contain one or more values.
type number struct {
	text   string
	groups []group
}

// group is text[start:end], which contains only digits.
type group struct{ start, end int }

// maxGroups bounds how many groups of digits one value may have.
const maxGroups = 12

// number looks for values in the groups of digits that start at i, and returns where the scan continues.
func (s *scanner) number(i int) int {
	n, end := groupsAt(s.text, i)
	if len(n.groups) == 0 {
		return end
	}
	if i > 0 && class[s.text[i-1]]&isAlnum != 0 || s.text[max(i-1, 0)] == '_' {
		return n.groups[0].end
	}
	for first := range n.groups {
		if t, last := n.longestAt(first); last >= 0 {
			s.addNumber(n, first, last, t)
		}
		if len(n.groups) == maxGroups {
			return n.groups[0].end // values that begin in the other groups may end in later ones
		}
	}
	return end
}

// addNumber adds the value that consists of the groups from first to last. If it overlaps an earlier value, which may
// be one by chance, it is added only if it ends later, unless only the words around it make it a value, or the earlier
// value is an IP address.
func (s *scanner) addNumber(n number, first, last int, t Type) {
	start, stop := n.bounds(first, last, t)
	if len(s.found) > 0 {
		earlier := s.found[len(s.found)-1]
		if start < earlier.End && (earlier.Type == IP || stop <= earlier.End || !n.hasForm(first, last, t)) {
			return
		}
	}
	s.add(start, stop, t)
}

// hasForm reports whether the value that consists of the groups from first to last would be one without the words
// around it.
func (n number) hasForm(first, last int, t Type) bool {
	digits, sizes := n.digits(first, last)
	return t == Card && hasCardForm(digits, sizes) || t == Phone && n.hasPhoneForm(first, digits, sizes) ||
		t == SSN || t == IP
}

// groupsAt returns up to maxGroups groups of digits from i on, with at most three separators between two groups, and
// where they end.
func groupsAt(text string, i int) (number, int) {
	n := number{text: text}
	end := i
	for len(n.groups) < maxGroups {
		start := end
		for start < len(text) && start-end < 3 && (class[text[start]]&isSeparator != 0 || text[start] == '+') {
			start++
		}
		stop := start
		for stop < len(text) && class[text[stop]]&isDigit != 0 {
			stop++
		}
		if stop == start {
			break
		}
		if stop < len(text) && class[text[stop]]&isAlnum != 0 && !isExtension(text[stop:]) {
			return n, wordEnd(text, stop) // such as the 5b of "5 5b"
		}
		n.groups = append(n.groups, group{start, stop})
		end = stop
	}
	return n, max(end, i+1)
}

func wordEnd(text string, i int) int {
	for i < len(text) && class[text[i]]&isAlnum != 0 {
		i++
	}
	return i
}

// longestAt returns the type of the longest value that begins with the group first, and the index of the value's last
// group. The index is -1 if there is no value.
func (n number) longestAt(first int) (Type, int) {
	for last := len(n.groups) - 1; last >= first; last-- {
		if t := n.classify(first, last); t != "" {
			return t, last
		}
	}
	return "", -1
}

// classify returns the type of the value that consists of the groups from first to last, or "".
func (n number) classify(first, last int) Type {
	text := n.text[n.groups[first].start:n.groups[last].end]
	digits, sizes := n.digits(first, last)
	switch {
	case isIPv4(text):
		return IP
	case len(digits) < 7 || len(digits) > 19:
		return ""
	case isSSN(text, digits, sizes) || len(sizes) == 1 && len(digits) == 9 && n.near(first, last, ssnWords):
		return SSN
	case !n.international(first) && isCard(text, digits) &&
		(hasCardForm(digits, sizes) || n.near(first, last, cardWords)):
		return Card
	case n.isPhone(first, last, digits, sizes):
		return Phone
	}
	return ""
}

// digits returns the digits of the groups from first to last, and the number of digits of each group.
func (n number) digits(first, last int) (digits string, sizes []int) {
	var b strings.Builder
	for _, g := range n.groups[first : last+1] {
		b.WriteString(n.text[g.start:g.end])
		sizes = append(sizes, g.end-g.start)
	}
	return b.String(), sizes
}

func isIPv4(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && a.Is4()
}

// isSSN reports whether the groups have the form of a social security number that can have been issued.
func isSSN(text, digits string, sizes []int) bool {
	if len(sizes) != 3 || sizes[0] != 3 || sizes[1] != 2 || sizes[2] != 4 || text[3] != text[6] {
		return false
	}
	area := digits[:3]
	return area != "000" && area != "666" && area < "900" && digits[3:5] != "00" && digits[5:] != "0000"
}

// isCard reports whether the groups are written like a card number: at least 12 digits without separators, or with one
// kind of them.
func isCard(text, digits string) bool {
	if len(digits) < 12 {
		return false
	}
	separators := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
	return strings.Trim(separators, " ") == "" || strings.Trim(separators, "-") == ""
}

// hasCardForm reports whether the check digit is correct and all groups but the last have at least four digits, as on
// payment cards. In a list of smaller numbers, every tenth sequence has a correct check digit by chance.
func hasCardForm(digits string, sizes []int) bool {
	return luhn(digits) && !slices.ContainsFunc(sizes[:len(sizes)-1], func(size int) bool { return size < 4 })
}

// luhn checks the last digit of a card number (ISO/IEC 7812-1, annex B).
func luhn(digits string) bool {
	sum := 0
	for i := range len(digits) {
		d := int(digits[len(digits)-1-i] - '0')
		if i%2 == 1 {
			d = d*2%10 + d/5
		}
		sum += d
	}
	return sum%10 == 0 && strings.Trim(digits, "0") != ""
}

// isPhone reports whether the groups are a telephone number: one in the form of one, or any number with a word that
// announces it. A date is not a telephone number.
func (n number) isPhone(first, last int, digits string, sizes []int) bool {
	return len(digits) <= 15 && !isDate(sizes, digits) &&
		(n.hasPhoneForm(first, digits, sizes) || n.near(first, last, phoneWords))
}

// hasPhoneForm reports whether groups from first on are written like an international telephone number, or like one of
// North America in the usual form.
func (n number) hasPhoneForm(first int, digits string, sizes []int) bool {
	switch {
	case n.international(first):
		return possible(digits)
	case strings.HasPrefix(digits, "00") && len(digits) >= 11 && len(sizes) > 1 && digits[2] != '0':
		return possible(digits[2:])
	case len(digits) >= 10 && isNANP(sizes):
		return len(digits) == 10 || len(digits) == 11 && digits[0] == '1'
	}
	return false
}

// international reports whether a plus sign stands before a group.
func (n number) international(first int) bool {
	start := n.groups[first].start
	return start > 0 && n.text[start-1] == '+'
}

// maxCountryCode is the number of digits of the longest country calling code. No code is the beginning of another one.
const maxCountryCode = 3

// possible reports whether the digits of an international number begin with a country calling code, and whether the
// numbers of that country can have this length, with or without the 0 of national calls. It does not call
// phonenumbers.Parse, which is much slower.
func possible(digits string) bool {
	for n := 1; n <= maxCountryCode && n < len(digits); n++ {
		code, err := strconv.ParseInt(digits[:n], 10, 32)
		known := phonenumbers.GetRegionCodeForCountryCode(int(code)) != phonenumbers.UNKNOWN_REGION
		if err == nil && code > 0 && known {
			national := digits[n:]
			return possibleIn(int32(code), national) || national[0] == '0' && possibleIn(int32(code), national[1:])
		}
	}
	return false
}

// possibleIn reports whether the numbers of a country calling code can have the length of a national number.
func possibleIn(code int32, national string) bool {
	n, err := strconv.ParseUint(national, 10, 64)
	if err != nil {
		return false
	}
	zeros := int32(len(national) - len(strings.TrimLeft(national, "0")))
	return phonenumbers.IsPossibleNumber(&phonenumbers.PhoneNumber{
		CountryCode: &code, NationalNumber: &n, ItalianLeadingZero: new(zeros > 0), NumberOfLeadingZeros: &zeros,
	})
}

// isNANP reports whether groups are written as in North America: 3-3-4, or 1-3-3-4.
func isNANP(sizes []int) bool {
	n := len(sizes)
	return n >= 3 && sizes[n-1] == 4 && sizes[n-2] == 3 && sizes[n-3] == 3 && (n == 3 || n == 4 && sizes[0] <= 3)
}

// isDate reports whether groups are written like a date, or a date and a time.
func isDate(sizes []int, digits string) bool {
	if len(sizes) < 3 {
		return false
	}
	yearFirst := sizes[0] == 4 && sizes[1] <= 2 && sizes[2] <= 2
	yearLast := sizes[0] <= 2 && sizes[1] <= 2 && sizes[2] == 4
	if yearFirst {
		return digits[:2] == "19" || digits[:2] == "20"
	}
	rest := digits[sizes[0]+sizes[1]:]
	return yearLast && (rest[:2] == "19" || rest[:2] == "20")
}

// bounds returns the start and end of a value: a telephone number includes its plus sign, the parenthesis of its area
// code and its extension.
func (n number) bounds(first, last int, t Type) (start, end int) {
	start, end = n.groups[first].start, n.groups[last].end
	if t != Phone {
		return start, end
	}
	for start > 0 && (n.text[start-1] == '+' || n.text[start-1] == '(') {
		start--
	}
	return start, end + extensionLength(n.text[end:])
}

// isExtension reports whether text starts with an extension such as "x123".
func isExtension(text string) bool { return extensionLength(text) > 0 }

// extensionLength returns the length of the extension with which text starts, or 0.
func extensionLength(text string) int {
	for _, prefix := range []string{"x", " x", " ext. ", " ext "} {
		rest, ok := strings.CutPrefix(text, prefix)
		if !ok {
			continue
		}
		digits := len(rest) - len(strings.TrimLeft(rest[:min(len(rest), 8)], "0123456789")) - max(0, len(rest)-8)
		if digits > 0 {
			return len(prefix) + digits
		}
	}
	return 0
}
