package form

import (
	"regexp"
	"slices"
	"strings"
)

// line is a line of a document, or a sentence of one.
type line struct {
	number int // from 1
	text   string
}

var (
	labelled  = regexp.MustCompile(`^\s*(?:[-*•|]\s*)?([^:|=]{1,80}?)\s*[:|=]\s*(.*?)\s*\|?\s*$`)
	sentences = regexp.MustCompile(`[^.!?]+(?:[.!?](?:\S[^.!?]*)?)*`)
	runs      = regexp.MustCompile(`\+?\d[\d ()/-]{5,20}\d`) // such as phone numbers
	negated   = regexp.MustCompile(`(?i)\b(?:no|not|never|without|neither|nor)\b|n't\b`)
)

// byRules finds values: first after labels ("Name: …"), and then by what a value looks like. A value that is ambiguous
// or breaks the rules of its field is not found.
func (f Form) byRules(document string, out *Filled) {
	lines := linesOf(document)
	for _, field := range f.Fields {
		if l, ok := f.labelled(field, lines); ok {
			out.put(f, field, l.text, l, ByRules)
		}
	}
	for _, field := range f.Fields {
		if _, found := out.Values[field.Name]; !found {
			f.byLooks(field, lines, out)
		}
	}
}

func linesOf(document string) (lines []line) {
	n := 0
	for text := range strings.Lines(document) {
		n++
		if text = strings.TrimSpace(text); text != "" {
			lines = append(lines, line{n, text})
		}
	}
	return lines
}

// labelled returns the text after the label of the field. Of several such lines, it returns the first.
func (f Form) labelled(field Field, lines []line) (line, bool) {
	for _, l := range lines {
		m := labelled.FindStringSubmatch(l.text)
		if m != nil && m[2] != "" && isLabel(m[1], field) && f.named(m[1]) == 1 {
			return line{l.number, m[2]}, true
		}
	}
	return line{}, false
}

// named returns how many fields a label names.
func (f Form) named(label string) (n int) {
	for _, field := range f.Fields {
		if isLabel(label, field) {
			n++
		}
	}
	return n
}

// isLabel reports whether a label has the same words as the title or the name of the field.
func isLabel(label string, field Field) bool {
	w := words(label)
	return len(w) > 0 && (slices.Equal(w, words(field.Title)) ||
		slices.Equal(w, words(strings.ReplaceAll(field.Name, "_", " "))))
}

// byLooks finds the only text of the document that looks like a value of the field.
func (f Form) byLooks(field Field, lines []line, out *Filled) {
	var found []line
	switch {
	case field.Format == "email":
		found = matches(lines, emails)
	case field.schema.Pattern != "" && isAnchored(field.schema.Pattern):
		found = patterned(field, lines)
	case len(field.Choices) > 0:
		f.byMention(field, lines, out)
		return
	case field.Format == "date", field.Type == Number, field.Type == Integer, field.Type == Boolean:
		found = f.about(field, lines)
	}
	if len(found) > 0 && !slices.ContainsFunc(found, func(l line) bool { return l.text != found[0].text }) {
		out.put(f, field, found[0].text, found[0], ByRules)
	}
}

func matches(lines []line, pattern *regexp.Regexp) (found []line) {
	for _, l := range lines {
		for _, text := range pattern.FindAllString(l.text, -1) {
			found = append(found, line{l.number, text})
		}
	}
	return found
}

func isAnchored(pattern string) bool {
	return strings.HasPrefix(pattern, "^") && strings.HasSuffix(pattern, "$")
}

// patterned returns the words and the groups of digits that match the field's pattern. Dates are not considered.
func patterned(field Field, lines []line) (found []line) {
	pattern := regexp.MustCompile(field.schema.Pattern) // Parse has compiled it
	for _, l := range lines {
		for _, text := range append(strings.Fields(l.text), runs.FindAllString(l.text, -1)...) {
			text = strings.Trim(text, `.,;:!?"'()[]<>`)
			if _, isDate := readDate(text); !isDate && pattern.MatchString(text) {
				found = append(found, line{l.number, text})
			}
		}
	}
	return found
}

// byMention finds the choices that the document mentions in sentences that negate nothing.
func (f Form) byMention(field Field, lines []line, out *Filled) {
	var first line
	var found []any
	for _, l := range lines {
		for _, s := range sentences.FindAllString(l.text, -1) {
			if negated.MatchString(s) {
				continue
			}
			for _, v := range field.mentioned(s) {
				if first.number == 0 {
					first = line{l.number, strings.TrimSpace(s)}
				}
				if !slices.Contains(found, v) {
					found = append(found, v)
				}
			}
		}
	}
	switch {
	case len(found) == 0:
	case field.Type == List:
		out.accept(f, field, found, first, ByRules)
	case len(found) == 1:
		out.accept(f, field, found[0], first, ByRules)
	}
}

// about returns the sentences that have a distinctive word of the field's label and one value of its type.
func (f Form) about(field Field, lines []line) (found []line) {
	keys := slices.DeleteFunc(words(field.Label()), func(w string) bool {
		return len(w) < 4 || slices.Contains([]string{"date", "number", "amount", "with", "that", "your"}, w)
	})
	for _, l := range lines {
		for _, s := range sentences.FindAllString(l.text, -1) {
			in := words(s)
			if !slices.ContainsFunc(keys, func(k string) bool { return slices.Contains(in, k) }) {
				continue
			}
			if _, ok := field.Read(s); ok {
				found = append(found, line{l.number, strings.TrimSpace(s)})
			}
		}
	}
	return found
}
