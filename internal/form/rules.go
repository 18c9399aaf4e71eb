package form

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"
)

// line is a line of a document, or a part of it, such as a sentence or a word.
type line struct {
	number int // of the line in the document, from 1
	text   string
}

var (
	labelLine   = regexp.MustCompile(`^\s*(?:[-*•|]\s*)?([^:|=]{1,80}?)\s*[:|=]\s*(.*?)\s*\|?\s*$`)
	sentences   = regexp.MustCompile(`(?:` + numbered + `|[^.!?])+(?:[.!?](?:\S(?:` + numbered + `|[^.!?])*)?)*`)
	goesOn      = regexp.MustCompile(`^\p{Ll}[^:|=]*$`) // a line that begins within a sentence
	sentenceEnd = regexp.MustCompile(`[.!?:;]$`)
	digitGroups = regexp.MustCompile(`\+?\d[\d ()/-]{5,20}\d`) // such as phone numbers
)

// numbered is the abbreviation of "number" before a number, as in "No. 7". It is not a negation, and does not end a
// sentence.
const numbered = `\b[Nn][Oo]\.\s*(\d)`

var (
	numberSign = regexp.MustCompile(numbered)
	freeOf     = regexp.MustCompile(`(?i)(\pL)-free\b`)

	// negated matches negations in texts that joined has returned, including contractions, such as "don t".
	negated = regexp.MustCompile(` (?:no|non|none|nothing|not|never|hardly|barely|rarely|without|except|excluding|` +
		`neither|nor|cannot|(?:ai|are|ca|could|did|do|does|had|has|have|is|must|need|should|was|were|wo|would)n t) `)
)

// prepared is a document split into the parts that byRules searches.
type prepared struct {
	lines     []line
	labels    map[string]line // the text after each label, by the label's words; the zero line if texts differ
	sentences []sentence
	chunks    []line // words, and groups of digits
}

// sentence is a sentence, or the part of it that is on one line.
type sentence struct {
	line
	words string // as joined returns them
	whole string // the words of the whole sentence
}

// maxRulesTime is the time after which byRules goes on to no further field.
const maxRulesTime = 3 * time.Second

// byRules searches for values without a model: first after labels ("Name: …"), and then by what a value looks like. It
// uses no value that is ambiguous or that the field does not permit. After maxRulesTime, or when ctx ends, it stops
// with a warning.
func (f Form) byRules(ctx context.Context, document string, out *Filled) {
	ctx, stop := context.WithTimeout(ctx, maxRulesTime)
	defer stop()
	d := prepare(document)
	for _, field := range f.Fields {
		if l, ok := f.labelled(field, d); ok {
			out.acceptText(f, field, l.text, l, ByRules)
		}
	}
	for _, field := range f.Fields {
		if ctx.Err() != nil {
			out.Warnings = append(out.Warnings, "the search without a model took too long, so it left out some fields")
			return
		}
		if _, found := out.Values[field.Name]; !found {
			f.byLooks(field, d, out)
		}
	}
}

// prepare splits a document into the parts that the rules search.
func prepare(document string) *prepared {
	d := &prepared{labels: map[string]line{}}
	n := 0
	var block line // lines whose sentences go on from one to the next
	for text := range strings.Lines(document) {
		n++
		text = strings.TrimSpace(text)
		if block.text != "" && goesOn.MatchString(text) && !sentenceEnd.MatchString(block.text) {
			block.text += "\n" + text
		} else {
			d.addSentences(block)
			block = line{n, text}
		}
		if text == "" {
			continue
		}
		d.lines = append(d.lines, line{n, text})
		if m := labelLine.FindStringSubmatch(text); m != nil && m[2] != "" {
			label := labelWords(m[1])
			if known, seen := d.labels[label]; !seen {
				d.labels[label] = line{n, m[2]}
			} else if known.text != m[2] {
				d.labels[label] = line{} // ambiguous
			}
		}
		for _, chunk := range append(strings.Fields(text), digitGroups.FindAllString(text, -1)...) {
			d.chunks = append(d.chunks, line{n, strings.Trim(chunk, `.,;:!?"'()[]<>`)})
		}
	}
	d.addSentences(block)
	return d
}

// addSentences adds the sentences of a block of lines, in parts if they go over several lines.
func (d *prepared) addSentences(block line) {
	for _, at := range sentences.FindAllStringIndex(block.text, -1) {
		text := block.text[at[0]:at[1]]
		whole, number := joined(text), block.number+strings.Count(block.text[:at[0]], "\n")
		for i, part := range strings.Split(text, "\n") {
			if part = strings.TrimSpace(part); part != "" {
				d.sentences = append(d.sentences, sentence{line{number + i, part}, joined(part), whole})
			}
		}
	}
}

// joined returns the words of a text and its inner commas and semicolons, separated and surrounded by single spaces.
// "No." before a number becomes the word "number", and "-free" the word "without".
func joined(s string) string {
	s = freeOf.ReplaceAllString(numberSign.ReplaceAllString(s, "number $1"), "$1 without")
	return " " + strings.Trim(strings.Join(words(s), " "), " ,;") + " "
}

var letters = regexp.MustCompile(`[\pL\pN]+`)

// labelWords returns the words of a label, without its punctuation and symbols.
func labelWords(s string) string {
	return strings.Join(letters.FindAllString(strings.ToLower(s), -1), " ")
}

// labelsOf returns the labels that name the field: its title and its name.
func labelsOf(field Field) [2]string {
	return [2]string{labelWords(field.Title), labelWords(strings.ReplaceAll(field.Name, "_", " "))}
}

// labelled returns the text after the labels of the field, unless there are different texts. A label that names several
// fields does not count.
func (f Form) labelled(field Field, d *prepared) (found line, ok bool) {
	for _, label := range labelsOf(field) {
		named := 0
		for _, other := range f.Fields {
			if labels := labelsOf(other); slices.Contains(labels[:], label) {
				named++
			}
		}
		l, seen := d.labels[label]
		switch {
		case !seen || named > 1 || label == "":
		case l.number == 0 || found.number > 0 && found.text != l.text:
			return line{}, false
		case found.number == 0:
			found = l
		}
	}
	return found, found.number > 0
}

// byLooks adds the value of the field if the document has exactly one text that looks like a value. A list gets all
// choices that the document mentions.
func (f Form) byLooks(field Field, d *prepared, out *Filled) {
	var found []line
	switch {
	case field.Format == "email":
		found = matches(d.lines, emails)
	case field.schema.Pattern != "" && isAnchored(field.schema.Pattern):
		found = patterned(field, d.chunks)
	case len(field.Choices) > 0:
		f.byMention(field, d.sentences, out)
		return
	case field.Format == "date", field.Type == Number, field.Type == Integer, field.Type == Boolean:
		found = about(field, d.sentences)
	}
	if len(found) > 0 && !slices.ContainsFunc(found, func(l line) bool { return l.text != found[0].text }) {
		out.acceptText(f, field, found[0].text, found[0], ByRules)
	}
}

// matches returns all matches of the pattern in the lines.
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
func patterned(field Field, chunks []line) (found []line) {
	pattern := regexp.MustCompile(field.schema.Pattern) // Parse has compiled it
	for _, c := range chunks {
		if !pattern.MatchString(c.text) {
			continue
		}
		if _, isDate := readDate(c.text); !isDate {
			found = append(found, c)
		}
	}
	return found
}

// byMention finds the choices that the document mentions in sentences that negate nothing.
func (f Form) byMention(field Field, all []sentence, out *Filled) {
	var first line
	var found []any
	mentions := field.choiceFinder()
	for _, s := range all {
		inPart := mentions(s.words)
		if len(inPart) > 0 && s.whole != s.words { // the rest may negate the choice, or continue its name
			inWhole := mentions(s.whole)
			inPart = slices.DeleteFunc(inPart, func(v any) bool { return !slices.Contains(inWhole, v) })
		}
		for _, v := range inPart {
			if first.number == 0 {
				first = s.line
			}
			if !slices.Contains(found, v) {
				found = append(found, v)
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
func about(field Field, all []sentence) (found []line) {
	keys := slices.DeleteFunc(words(field.Label()), func(w string) bool {
		return len(w) < 4 || slices.Contains([]string{"date", "number", "amount", "with", "that", "your"}, w)
	})
	for _, s := range all {
		if !slices.ContainsFunc(keys, func(k string) bool { return strings.Contains(s.words, " "+k+" ") }) {
			continue
		}
		if _, ok := field.Read(s.text); ok {
			found = append(found, s.line)
		}
	}
	return found
}
