package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// The kinds of literals. Before a task is split into clauses, its quotations, paths and JSON blocks are replaced by
// marks like ⟦q3⟧, so that no form matches inside a value.
const (
	quoted   = 'q'
	jsonText = 'j'
	pathText = 'p'
)

// literals holds the values of the marks.
type literals struct{ texts []string }

func (l *literals) mark(kind rune, text string) string {
	l.texts = append(l.texts, text)
	return fmt.Sprintf("⟦%c%d⟧", kind, len(l.texts)-1)
}

var mark = regexp.MustCompile(`⟦([qjp])(\d+)⟧`)

// text returns the kind and the value of a mark. It returns false if m is not a mark.
func (l *literals) text(m string) (kind rune, text string, ok bool) {
	found := mark.FindStringSubmatch(m)
	if found == nil || found[0] != strings.TrimSpace(m) {
		return 0, "", false
	}
	n, err := strconv.Atoi(found[2])
	if err != nil || n >= len(l.texts) {
		return 0, "", false
	}
	return rune(found[1][0]), l.texts[n], true
}

// restore replaces the marks in a text by their values. Quotations get single quotes.
func (l *literals) restore(s string) string {
	return mark.ReplaceAllStringFunc(s, func(m string) string {
		kind, text, ok := l.text(m)
		if ok && kind == quoted {
			return "'" + text + "'"
		}
		return text
	})
}

// clause is one request of a task.
type clause struct {
	text     string
	sentence int
	then     bool         // "then" precedes it
	fields   []fieldValue // of the bullet list that follows it
	data     string       // the mark of the JSON block that follows it
}

type fieldValue struct{ name, value string }

var (
	pathPattern = regexp.MustCompile(`(?:^|[\s(:,])((?:~|\.{1,2})?` +
		`/[\w.\-]+(?:/[\w.\-]+)*|\b[\w\-]+(?:/[\w.\-]+)*\.(?:json|txt|csv|md|log|yaml|yml|xml|html|py|tsv|db))`)
	bullet       = regexp.MustCompile(`^[-*•]\s+(.*)$`)
	numbered     = regexp.MustCompile(`^\(?\d{1,2}[.)]\s+`)
	fieldPattern = regexp.MustCompile(`^(⟦q\d+⟧|[\w\-]+)\s*:\s*(.*\S)$`)
	sentenceEnd  = regexp.MustCompile(`[.;!?]+(?:\s+|$)`)
	connector    = regexp.MustCompile(`(?i)(?:,?\s*\band\s+then\s+|,?\s*\bthen,?\s+|,\s*and\s+|,\s+|\s+and\s+)`)
	thenWord     = regexp.MustCompile(`(?i)\bthen\b`)
	firstWord    = regexp.MustCompile(`^\w+`)
)

// verbs are words that begin a new clause after "and" or a comma.
var verbs = wordSet(`calculate compute evaluate add sum subtract multiply divide double triple halve negate square
cube average get fetch check show tell find give query select run execute filter keep sort order count list read
open load write create save store append print display report output verify confirm ensure update set increment
increase decrement decrease reduce change import use call return if otherwise else for insert delete remove rename
convert send search email mail post notify publish upload download translate summarize summarise remind sort plot
draw`)

func wordSet(s string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(s) {
		set[w] = true
	}
	return set
}

// split divides a task into clauses.
func split(task string) ([]clause, *literals) {
	lits := &literals{}
	task = strings.NewReplacer("⟦", "[", "⟧", "]", "\r\n", "\n", "“", `"`, "”", `"`, "‘", "'", "’", "'").Replace(task)
	task = markPaths(markQuotes(markJSON(task, lits), lits), lits)
	var out []clause
	sentence := 0
	for line := range strings.Lines(task) {
		line = strings.TrimSpace(line)
		last := len(out) - 1
		item := bullet.FindStringSubmatch(line)
		switch kind, _, isMark := lits.text(line); {
		case line == "":
		case isMark && kind == jsonText && last >= 0:
			out[last].data = line
		case item != nil && last >= 0 && fieldPattern.MatchString(item[1]):
			f := fieldPattern.FindStringSubmatch(item[1])
			name := f[1]
			if _, text, ok := lits.text(name); ok {
				name = text
			}
			out[last].fields = append(out[last].fields, fieldValue{name, f[2]})
		default:
			if item != nil {
				line = item[1]
			}
			line = numbered.ReplaceAllString(line, "")
			for _, s := range sentenceEnd.Split(line, -1) {
				sentence++
				for _, c := range splitSentence(s) {
					c.sentence = sentence
					out = append(out, c)
				}
			}
		}
	}
	return out, lits
}

// splitSentence splits at "then", and at "and" or a comma before a verb, but not inside parentheses.
func splitSentence(s string) []clause {
	var out []clause
	from, then := 0, false
	for _, at := range connector.FindAllStringIndex(s, -1) {
		if strings.Count(s[from:at[0]], "(") > strings.Count(s[from:at[0]], ")") {
			continue
		}
		verb := strings.ToLower(firstWord.FindString(s[at[1]:]))
		if joined := thenWord.MatchString(s[at[0]:at[1]]); joined || verbs[verb] {
			out = append(out, clause{text: s[from:at[0]], then: then})
			from, then = at[1], joined
		}
	}
	var kept []clause
	for _, c := range append(out, clause{text: s[from:], then: then}) {
		if c.text = tidy(c.text); c.text != "" {
			kept = append(kept, c)
		}
	}
	return kept
}

var politeness = regexp.MustCompile(`(?i)^(?:please|kindly|also|now|finally|first(?:ly)?` +
	`|next|lastly|and|then|can you|could you|would you|i want(?: you)? to|i need(?: you)?` +
	` to|i would like(?: you)? to|let's|just)[\s,]+`)

var thanks = regexp.MustCompile(`(?i)[\s,]+(?:please|thanks|thank you)$`)

// tidy normalises spaces, and drops polite words and punctuation at the ends of a clause.
func tidy(c string) string {
	c = strings.Join(strings.Fields(c), " ")
	for {
		shorter := strings.TrimRight(thanks.ReplaceAllString(politeness.ReplaceAllString(c, ""), ""), " :,.")
		if shorter == c {
			return c
		}
		c = shorter
	}
}

// markJSON replaces blocks in braces or brackets that are valid JSON.
func markJSON(task string, lits *literals) string {
	var out strings.Builder
	for task != "" {
		at := strings.IndexAny(task, "{[")
		if at < 0 {
			break
		}
		out.WriteString(task[:at])
		task = task[at:]
		decoder := json.NewDecoder(strings.NewReader(task))
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			out.WriteByte(task[0])
			task = task[1:]
			continue
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, value); err == nil {
			out.WriteString(lits.mark(jsonText, compact.String()))
		}
		task = task[decoder.InputOffset():]
	}
	return out.String() + task
}

var quotePattern = regexp.MustCompile(`"([^"\n]*)"|` + "`([^`\n]*)`" + `|(^|[\s(:,=])'([^'\n]*)'`)

// markQuotes replaces quotations; an apostrophe inside a word does not open one.
func markQuotes(task string, lits *literals) string {
	return quotePattern.ReplaceAllStringFunc(task, func(m string) string {
		parts := quotePattern.FindStringSubmatch(m)
		return parts[3] + lits.mark(quoted, parts[1]+parts[2]+parts[4])
	})
}

// markPaths replaces paths and file names.
func markPaths(task string, lits *literals) string {
	return pathPattern.ReplaceAllStringFunc(task, func(m string) string {
		p := pathPattern.FindStringSubmatch(m)[1]
		before := strings.TrimSuffix(m, p)
		rest := ""
		for strings.HasSuffix(p, ".") { // the end of a sentence
			p, rest = p[:len(p)-1], rest+"."
		}
		if strings.Count(p, "/") == 1 && len(p) < 3 {
			return m
		}
		return before + lits.mark(pathText, p) + rest
	})
}

// Clauses returns the first 100 clauses of a task, as written. A search with one query for each clause finds more tools
// than a search with the whole task.
func Clauses(task string) []string {
	clauses, lits := split(task[:min(len(task), maxTask)])
	var out []string
	for _, c := range clauses[:min(len(clauses), maxClauses)] {
		out = append(out, lits.restore(c.text))
	}
	return out
}
