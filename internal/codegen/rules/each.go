package rules

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

const (
	eachRe = `(?:each|every)(?: one)?(?: number| value| element| item)?(?: of| in| from)(?: the)?` +
		`(?: numbers| values| list| array)*:?`
	listRe = `(⟦j\d+⟧|\d+ (?:to|through) \d+|-?[\d.]+(?:(?:,? and |, )-?[\d.]+)+)`
)

// eachForms repeat a calculation for each number of a list, or get the weather of each place.
var eachForms = []form{
	{"for each", re(`for ` + eachRe + ` ` + listRe + `(?:[,:]? (.+))?`), func(p *planner, m []string, c clause) bool {
		if m[2] != "" {
			return p.endsSentence(p.at-1, c) && p.each(m[1], m[2])
		}
		body, ok := p.lastClause(c)
		if !ok || !p.each(m[1], body) {
			return false
		}
		p.at++
		return true
	}},
	{"for each", re(`for (?:each|every)(?: one| city| place)? (?:of|in)(?: the cities| the places)?:? (.+?(?:,?` +
		` and |, ).+?)(?:,? ` + eachWeather + `)?`), func(p *planner, m []string, c clause) bool {
		if m[2] != "" {
			return p.endsSentence(p.at-1, c) && p.read(weatherForms, m[2]+" for "+m[1])
		}
		body, ok := p.lastClause(c)
		asks := onlyWeather.FindStringSubmatch(body)
		if !ok || asks == nil || !p.read(weatherForms, asks[1]+" for "+m[1]) {
			return false
		}
		p.at++
		return true
	}},
	{
		"to each", re(`((?:double|triple|halve|square|negate|multiply|divide|increase|decrease|add|subtract)` +
			`\b(?: -?[\d.]+ (?:to|from))?) ` + eachRe + ` ` + listRe + `( by .+)?`),
		func(p *planner, m []string, c clause) bool {
			return p.endsSentence(p.at-1, c) && p.each(m[2], m[1]+" it"+m[3])
		},
	},
}

const eachWeather = `((?:get|check|fetch|show|find)(?: the)?(?: current)? (?:weather|forecast))(?: (?:for|in|of)` +
	` (?:it|each|that city|the city|that place))?`

var onlyWeather = regexp.MustCompile(`(?i)^` + eachWeather + `$`)

// lastClause returns the clause after c if both are in one sentence and it is the last one there.
func (p *planner) lastClause(c clause) (text string, ok bool) {
	if p.at >= len(p.clauses) || p.clauses[p.at].sentence != c.sentence || !p.endsSentence(p.at, c) {
		return "", false
	}
	return p.clauses[p.at].text, true
}

// endsSentence reports whether the clause at an index is the last one in c's sentence. If another clause follows, it is
// unclear whether it applies to each item or only once.
func (p *planner) endsSentence(at int, c clause) bool {
	return at+1 >= len(p.clauses) || p.clauses[at+1].sentence != c.sentence
}

var (
	ofEach   = regexp.MustCompile(`(?i)\b(?:the|each|that) (?:number|value|element|item)\b`)
	ofBefore = regexp.MustCompile(`(?i)\b(?:the|that) (?:previous |last )?` +
		`(?:result|sum|product|total|answer|value|number)\b`) // ambiguous: of each item, or of an earlier clause
	itsPower = regexp.MustCompile(`(?i)\bits (square|cube)\b`)
)

// each emits a loop over a list that does the calculation in body, where "it" is the item.
func (p *planner) each(list, body string) bool {
	numbers, ok := p.numbersOf(list)
	body = ofEach.ReplaceAllString(body, "it")
	if !ok || body == "" || ofBefore.MatchString(body) {
		return false
	}
	body = itsPower.ReplaceAllStringFunc(body, func(s string) string {
		return map[string]string{"square": "it squared", "cube": "it cubed"}[strings.ToLower(s[4:])]
	})
	outputs, number, item, results := p.outputs, p.number, p.fresh("item"), p.fresh("results")
	p.emit("%s = []", results)
	p.emit("for %s in [%s]:", item, strings.Join(numbers, ", "))
	start := len(p.body)
	p.depth, p.number, p.outputs = p.depth+1, item, nil
	read := p.read(numberForms, body)
	p.depth--
	found := p.outputs
	p.outputs, p.number = outputs, number
	if !read || len(found) != 1 {
		return false
	}
	var kept []string
	used := false
	for _, line := range p.body[start:] {
		if text := strings.TrimSpace(line); !strings.HasPrefix(text, "print(") {
			kept = append(kept, line)
			used = used || strings.Contains(text, item)
		}
	}
	if !used {
		return false // the body does not use the number
	}
	p.body = append(p.body[:start], kept...)
	p.emit("    %s.append(%s)", results, found[0].variable)
	p.emit("print(%s, %s)", quote(strings.Join(numbers, ", ")+":"), results)
	p.number = "" // "it" is ambiguous after several results
	p.output("results", results)
	return true
}

// read reads a text with the first form that matches.
func (p *planner) read(forms []form, text string) bool {
	before := len(p.body)
	for _, f := range forms {
		if m := f.pattern().FindStringSubmatch(text); m != nil && f.read(p, m, clause{text: text}) {
			return true
		}
		p.body = p.body[:before]
	}
	return false
}

var fromTo = regexp.MustCompile(`(?i)^(\d{1,6}) (?:to|through) (\d{1,6})$`)

// maxEach is the maximum length of a list.
const maxEach = 1000

func (p *planner) numbersOf(list string) (numbers []string, ok bool) {
	if kind, text, is := p.lits.text(list); is {
		var all []json.Number
		if kind != jsonText || json.Unmarshal([]byte(text), &all) != nil || strings.Contains(text, `"`) {
			return nil, false
		}
		for _, n := range all {
			numbers = append(numbers, n.String())
		}
	} else if ends := fromTo.FindStringSubmatch(list); ends != nil {
		first, err := strconv.Atoi(ends[1])
		last, err2 := strconv.Atoi(ends[2])
		if err != nil || err2 != nil || last-first >= maxEach {
			return nil, false
		}
		for n := first; n <= last; n++ {
			numbers = append(numbers, strconv.Itoa(n))
		}
	} else {
		numbers = listBreak.Split(list, -1)
	}
	for _, n := range numbers {
		if !numeral.MatchString(n) {
			return nil, false
		}
	}
	return numbers, len(numbers) > 0 && len(numbers) <= maxEach
}
