package form

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Read returns the value that a text written by a person stands for, such as true for "yes" and 2026-05-31 for
// "31 May 2026". It returns false if the text has no value of the field's type, or if it is ambiguous, such as the date
// 3/4/2026. The value may still break the form's rules.
func (f Field) Read(s string) (value any, ok bool) {
	s = strings.TrimSpace(s)
	switch f.Type {
	case Number, Integer:
		if negated.MatchString(joined(s)) {
			return nil, false
		}
		return readNumber(s)
	case Boolean:
		v, known := booleans[strings.ToLower(strings.Trim(s, ". "))]
		return v, known
	case List:
		if v, ok := f.namedChoice(s); ok {
			return []any{v}, true
		}
		found := f.mentioned(s)
		return found, len(found) > 0
	case String:
	}
	switch {
	case s == "":
		return nil, false
	case len(f.Choices) > 0:
		return f.readChoice(s)
	case f.Format == "date":
		t, ok := readDate(s)
		return t.Format(time.DateOnly), ok && !negated.MatchString(joined(s))
	case f.Format == "email":
		return single(emails.FindAllString(s, 2))
	}
	return s, true
}

var booleans = map[string]bool{
	"yes": true, "y": true, "true": true, "x": true, "[x]": true,
	"no": false, "n": false, "false": false, "[ ]": false,
}

var (
	emails  = regexp.MustCompile(`[\w.!#$%&'*+/=?^{|}~-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+`)
	numbers = regexp.MustCompile(`[-+]?\d(?:[\d.,]*\d)?`) // digits to be checked against the notations below

	ungrouped    = regexp.MustCompile(`^[-+]?\d+(?:\.\d+)?$`)                     // 1240.50
	grouped      = regexp.MustCompile(`^[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?$`) // 1,240.50
	germanPlain  = regexp.MustCompile(`^[-+]?\d+,\d{1,2}$`)                       // 1240,50
	germanGroups = regexp.MustCompile(`^[-+]?[1-9]\d{0,2}(?:\.\d{3})+,\d+$`)      // 1.240,50
	// What stands before or after digits and gives the number another sign or size, as in -€5, (5.00), 5-, 3½ and 5k.
	changedBefore = regexp.MustCompile(`(?i)(?:[-–—±<>≤≥~(]\s*\p{Sc}?|\b(?:minus|negative))\s*$`)
	changedAfter  = regexp.MustCompile(`(?i)^(?:\p{No}|[-–—]\s*\p{Sc}?\s*(?:$|[^\s\pL\pN])|` +
		`\s*(?:k|mio|mn|bn|tsd|hundred|thousand|million|billion|trillion)\b)`)
	// A hyphen within a word, as in B-12, is not a sign. M and b with a currency mean million and billion, as in $5M.
	wordBefore     = regexp.MustCompile(`[\pL\pN_]$`)
	currencyBefore = regexp.MustCompile(`(?:\p{Sc}|\b[A-Z]{3})\s*$`)
	letterAfter    = regexp.MustCompile(`^\s*[MmBb]\b`)
	moneyAfter     = regexp.MustCompile(`^\s*[MmBb]\s*(?:\p{Sc}|[A-Z]{3}\b)`)

	ambiguous = regexp.MustCompile(`^[-+]?\d{1,3}\.\d{3}$`) // 1.240, which is 1240 in some countries

	isoDate  = regexp.MustCompile(`\b\d{4}-\d{2}-\d{2}\b`)                                        // 2026-04-09
	dayFirst = regexp.MustCompile(`\b(\d{1,2})(?:st|nd|rd|th)?\.? ` + months + `\.?,? (\d{4})\b`) // 9 April 2026
	american = regexp.MustCompile(`\b` + months + `\.? (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})\b`)    // April 9, 2026
	dotted   = regexp.MustCompile(`\b(\d{1,2})\.(\d{1,2})\.(\d{4})\b`)                            // 9.4.2026
	slashed  = regexp.MustCompile(`\b(\d{1,2})/(\d{1,2})/(\d{4})\b`)                              // 31/5/2026
)

const months = `(Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|` +
	`Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)`

// single returns the only text of a list. It returns false if the list has none or several.
func single(found []string) (any, bool) {
	if len(found) != 1 {
		return nil, false
	}
	return found[0], true
}

// readNumber returns the only number in the text, with the Go type that Values has for it.
func readNumber(s string) (any, bool) {
	s = strings.ReplaceAll(s, "−", "-") // the minus sign of typography
	found := numbers.FindAllStringIndex(s, 2)
	if len(found) != 1 {
		return nil, false
	}
	start, end := found[0][0], found[0][1]
	digits := s[start:end]
	switch {
	case changedBefore.MatchString(s[:start]), changedAfter.MatchString(s[end:]):
		return nil, false
	case strings.ContainsAny(digits[:1], "-+") && wordBefore.MatchString(s[:start]):
		return nil, false
	case moneyAfter.MatchString(s[end:]), currencyBefore.MatchString(s[:start]) && letterAfter.MatchString(s[end:]):
		return nil, false
	case ambiguous.MatchString(digits):
		return nil, false
	case grouped.MatchString(digits):
		digits = strings.ReplaceAll(digits, ",", "")
	case germanGroups.MatchString(digits), germanPlain.MatchString(digits):
		digits = strings.ReplaceAll(strings.ReplaceAll(digits, ".", ""), ",", ".")
	case !ungrouped.MatchString(digits):
		return nil, false
	}
	sign := ""
	if digits = strings.TrimPrefix(digits, "+"); digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	if digits = strings.TrimLeft(digits, "0"); digits == "" || digits[0] == '.' {
		digits = "0" + digits
	}
	v, err := number(sign + digits)
	return v, err == nil
}

// readDate returns the only date in the text. It returns false if the text also has what may be another date, such as
// 3/4/2026.
func readDate(s string) (date time.Time, ok bool) {
	count := 0
	add := func(year, month, day string) {
		date, ok = time.Time{}, false
		for _, layout := range []string{"2006-1-2", "2006-Jan-2"} {
			if t, err := time.Parse(layout, year+"-"+month+"-"+day); err == nil {
				date, ok = t, true
			}
		}
		count++
	}
	for _, d := range isoDate.FindAllString(s, 2) {
		add(d[:4], d[5:7], d[8:])
	}
	for _, d := range dayFirst.FindAllStringSubmatch(s, 2) {
		add(d[3], d[2][:3], d[1])
	}
	for _, d := range american.FindAllStringSubmatch(s, 2) {
		add(d[3], d[1][:3], d[2])
	}
	for _, d := range dotted.FindAllStringSubmatch(s, 2) {
		add(d[3], d[2], d[1])
	}
	for _, d := range slashed.FindAllStringSubmatch(s, 2) {
		switch first, second := d[1], d[2]; {
		case first == second || atLeast13(first):
			add(d[3], second, first)
		case atLeast13(second):
			add(d[3], first, second)
		default:
			return time.Time{}, false
		}
	}
	return date, ok && count == 1
}

func atLeast13(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n > 12
}

// namedChoice returns the choice whose value or title is the text.
func (f Field) namedChoice(s string) (any, bool) {
	for _, c := range f.Choices {
		if strings.EqualFold(s, c.Value) || strings.EqualFold(s, c.Title) {
			return c.Value, true
		}
	}
	return nil, false
}

// readChoice returns the choice whose value or title is the text, or else the only choice that the text mentions.
func (f Field) readChoice(s string) (any, bool) {
	if v, ok := f.namedChoice(s); ok {
		return v, true
	}
	if found := f.mentioned(s); len(found) == 1 {
		return found[0], true
	}
	return nil, false
}

// mentioned returns the choices whose value or title is in the text as whole words, in the order of the form. A name
// within a longer one that is mentioned does not count. mentioned returns none if the text
//   - negates something, other than in the names of these choices
//   - mentions several choices, of which one has a name that is only a negation, such as "none"
//   - mentions a name that several choices have, or one with symbols other than those in "C#" and "18+": the words of a
//     text lack other symbols, so the text may mean another choice, or none
func (f Field) mentioned(s string) []any {
	return f.choiceFinder()(joined(s))
}

// choiceFinder returns a function that finds the mentioned choices in a text that joined has returned. For several
// texts, call choiceFinder once, because it takes more time than the function that it returns.
func (f Field) choiceFinder() func(in string) []any {
	choices := map[string]int{} // by their names
	unclear := map[string]bool{}
	for i, c := range f.Choices {
		for _, text := range []string{c.Value, c.Title} {
			name := joined(text)
			if strings.TrimSpace(name) == "" {
				continue
			}
			other, known := choices[name]
			unclear[name] = unclear[name] || known && other != i || symbols.MatchString(text)
			choices[name] = i
		}
	}
	longestFirst := slices.SortedFunc(maps.Keys(choices), func(a, b string) int {
		return cmp.Or(len(b)-len(a), strings.Compare(a, b))
	})
	return func(in string) (found []any) {
		var spans [][2]int // of the names that were found; two may overlap, but none is within another one
		mentioned := map[int]bool{}
		negation := false // a choice is mentioned whose name is only a negation
		for _, name := range longestFirst {
			for from := 0; ; {
				at := strings.Index(in[from:], name)
				if at < 0 {
					break
				}
				start, end := from+at, from+at+len(name)
				from = start + 1
				if slices.ContainsFunc(spans, func(s [2]int) bool { return s[0] <= start && end <= s[1] }) {
					continue
				}
				if unclear[name] {
					return nil
				}
				spans = append(spans, [2]int{start, end})
				negation = negation || negated.FindString(name) == name
				mentioned[choices[name]] = true
			}
		}
		rest := []byte(in)
		for _, s := range spans { // without the spaces around the name
			copy(rest[s[0]+1:s[1]-1], strings.Repeat("|", s[1]-s[0]-2))
		}
		if negated.Match(rest) || negation && len(mentioned) > 1 {
			return nil
		}
		for _, i := range slices.Sorted(maps.Keys(mentioned)) {
			found = append(found, f.Choices[i].Value)
		}
		return found
	}
}

var (
	wordPattern = regexp.MustCompile(`[\pL\pN]+[+#]*|[,;]`)
	symbols     = regexp.MustCompile(`(?:^|[^\pL\pN+#])[+#]|[\p{Sc}<>=~|%*^-]\s*$|^\s*[\p{Sc}\p{Sm}.*%-]`)
)

// words returns the words of a text in lower case, and its commas and semicolons. A word may end with "+" and "#".
func words(s string) []string { return wordPattern.FindAllString(strings.ToLower(s), -1) }
