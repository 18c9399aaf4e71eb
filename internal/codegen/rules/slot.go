package rules

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/text"
)

// slots are the kinds of values in a sentence, besides the phrases of the grammar.
var slots = map[string]func(w *writer, t []token) (value, bool){
	"number": readNumber, "count": readCount, "numbers": readNumbers, "several": readSeveral, "expr": readExpression,
	"operand": readOperand, "city": readCity, "cities": readCities,
	"value": readValue, "key": readKey, "keys": readKeys, "name": readName, "noun": readNoun, "file": readFile,
	"state": readState, "place": readPlace, "places": readPlaces, "date": readDate, "day": readDay, "rest": readRest,
	"quoted":    literal(quoted, ``),
	"select":    literal(quoted, `(?i)^\s*(?:select|with)\b`),
	"change":    literal(quoted, `(?i)^\s*(?:insert|update|delete|create|drop|alter)\b`),
	"object":    literal(jsonText, `^\{`),
	"skill":     literal(word, snakeCase.String()),
	"text-file": literal(path, `\.(?:txt|csv|md|log|yaml|yml|xml|html|py|tsv|db)$|/[^.]*$`),
	"json-file": jsonFile,
	"csv-file":  literal(path, `\.csv$`),
}

// read reads tokens as the value of a slot or of a phrase.
func (w *writer) read(slot string, t []token) (value, bool) {
	if slot == "pairs" {
		return w.readPairs(t)
	}
	if read := slots[slot]; read != nil {
		return read(w, t)
	}
	return w.phrase(slot, t)
}

// phrase reads one of the phrases of the grammar.
func (w *writer) phrase(name string, t []token) (value, bool) {
	var words []string
	for _, t := range t[:min(len(t), maxPhrase)] {
		words = append(words, t.lower)
	}
	py, ok := w.grammar.phrases[name][strings.Join(words, " ")]
	return value{py: py}, ok && len(t) == len(words)
}

// jsonFile reads the name of a JSON file.
var jsonFile = literal(path, `\.json$`)

const maxPhrase = 5 // words

var (
	// numeral matches a number without leading zeros, which a code such as 007 may have.
	numeral   = regexp.MustCompile(`^-?(?:0|[1-9]\d*)(?:\.\d+)?$`)
	snakeCase = regexp.MustCompile(`^[A-Za-z]\w*_\w+$`)
	plainName = regexp.MustCompile(`^[A-Za-z_]\w*$`)
	keyName   = regexp.MustCompile(`^[A-Za-z_][\w-]*$`)
	ordinal   = regexp.MustCompile(`(?i)(\d)(?:st|nd|rd|th)?(?: of)? `)
)

const (
	maxDigits = 300       // digits of a number; Python's limit is 4,300
	maxEach   = 1000      // numbers of a list
	maxCount  = 1_000_000 // the largest number of a range, and of days
	firstYear = 1753      // the first in which all English-speaking countries used the Gregorian calendar
	statePath = "/workspace/state.json"
)

// signedNumber returns the number that tokens form, with its sign, or "" if they form none.
func signedNumber(t []token) string {
	sign := ""
	if len(t) == 2 && t[0].is("-−") {
		sign, t = "-", t[1:]
	}
	if len(t) != 1 || t[0].kind != number || len(t[0].text) > maxDigits {
		return ""
	}
	return sign + t[0].text
}

func readNumber(_ *writer, t []token) (value, bool) {
	n, negative := strings.CutPrefix(signedNumber(t), "-")
	if py := pythonNumber(n); negative {
		return value{py: "-" + py}, n != ""
	}
	return value{py: pythonNumber(n)}, n != ""
}

// readCount reads a whole number, in digits or as a word.
func readCount(_ *writer, t []token) (value, bool) {
	n := digits(t[0].text)
	if t[0].lower == "a" || t[0].lower == "an" {
		n = "1"
	}
	count, err := strconv.Atoi(n)
	return value{py: strconv.Itoa(count)}, err == nil && len(t) == 1 && count <= maxCount
}

// readNumbers reads several numbers, or a range: "1 to 3".
func readNumbers(w *writer, t []token) (v value, ok bool) {
	if len(t) != 3 || t[1].lower != "to" && t[1].lower != "through" {
		return readSeveral(w, t)
	}
	first, err := strconv.Atoi(t[0].text)
	last, err2 := strconv.Atoi(t[2].text)
	ok = err == nil && err2 == nil && last <= maxCount
	for n := first; ok && n <= min(last, first+maxEach); n++ {
		v.list = append(v.list, strconv.Itoa(n))
	}
	v.py = strings.Join(v.list, ", ")
	return v, ok && len(v.list) > 0 && len(v.list) <= maxEach
}

// readSeveral reads "1, 2 and 3" and "[1, 2]". It reads no range, because "add 1 to 3" adds two numbers.
func readSeveral(_ *writer, t []token) (v value, ok bool) {
	if len(t) == 1 && t[0].kind == jsonText {
		var all []json.Number
		ok = json.Unmarshal([]byte(t[0].text), &all) == nil && !strings.Contains(t[0].text, `"`) && len(all) > 0
		for _, n := range all {
			v.list = append(v.list, n.String())
			ok = ok && numeral.MatchString(n.String()) && len(n) <= maxDigits
		}
	} else {
		for _, part := range enumeration(t) {
			n, isNumber := readNumber(nil, part)
			v.list, ok = append(v.list, n.py), isNumber && (ok || len(v.list) == 0)
		}
		ok = ok && len(v.list) > 1
	}
	v.py = strings.Join(v.list, ", ")
	return v, ok && len(v.list) <= maxEach
}

// enumeration divides tokens at ",", "and" and ", and".
func enumeration(t []token) [][]token {
	var out [][]token
	from := 0
	for i := 0; i <= len(t); i++ {
		if i < len(t) && !t[i].is(",") && t[i].lower != "and" {
			continue
		}
		out = append(out, t[from:i])
		if from = i + 1; i+1 < len(t) && t[i].is(",") && t[i+1].lower == "and" {
			i, from = i+1, i+2
		}
	}
	return out
}

// literal returns a function that reads one token. The token must have the kind k, and its text must match the pattern.
func literal(k kind, pattern string) func(*writer, []token) (value, bool) {
	re := regexp.MustCompile(pattern)
	return func(_ *writer, t []token) (value, bool) {
		switch {
		case len(t) != 1 || t[0].kind != k || !re.MatchString(t[0].text):
			return value{}, false
		case k == path:
			return readFile(nil, t)
		case k == jsonText:
			py, ok := pythonLiteral(t[0].text)
			return value{py: py}, ok
		}
		return value{py: quote(t[0].text)}, true
	}
}

// readValue reads a value for a field. A bare word is a value only if it can only be text: a status or snake_case.
func readValue(w *writer, t []token) (value, bool) {
	if n := signedNumber(t); n != "" {
		return value{py: n}, numeral.MatchString(n)
	}
	if len(t) != 1 {
		return value{}, false
	}
	if constant := w.grammar.phrases["constant"][t[0].lower]; constant != "" {
		return value{py: constant}, true
	}
	if t[0].kind == jsonText {
		py, ok := pythonLiteral(t[0].text)
		return value{py: py}, ok
	}
	_, status := w.grammar.phrases["status"][t[0].lower]
	return value{py: quote(t[0].text)}, t[0].kind == quoted ||
		t[0].kind == word && (status || snakeCase.MatchString(t[0].text))
}

// readKey reads a field's name.
func readKey(w *writer, t []token) (value, bool) {
	if len(t) != 1 {
		return value{}, false
	}
	named := t[0].kind == word && keyName.MatchString(t[0].text) && !w.grammar.sets["unnamed"][t[0].lower]
	return value{py: quote(t[0].text)}, named || t[0].kind == quoted
}

// readKeys reads "a, b and all c".
func readKeys(w *writer, t []token) (v value, ok bool) {
	for _, part := range enumeration(t) {
		if len(part) == 2 && part[0].lower == "all" {
			part = part[1:]
		}
		if len(part) == 0 {
			return v, false
		}
		key, isKey := readKey(w, part)
		if !isKey {
			return v, false
		}
		v.list = append(v.list, key.py)
	}
	v.py = strings.Join(v.list, ", ")
	return v, true
}

// readPairs reads "session to 2, step to 3 (completed)" as arguments.
func (w *writer) readPairs(t []token) (v value, ok bool) {
	for _, part := range enumeration(t) {
		m := &matcher{w: w, tokens: part}
		if !m.match(w.grammar.pair, 0, match{}, func(m match) bool {
			pair := func(value string) string { return m["key"].py + ", " + value }
			twice := slices.ContainsFunc(v.list, func(p string) bool { return strings.HasPrefix(p, pair("")) })
			v.list = append(v.list, pair(m["value"].py))
			return !twice
		}) {
			return v, false
		}
	}
	return v, len(v.list) > 0
}

// readName reads the name of a table, a column or a skill.
func readName(w *writer, t []token) (value, bool) {
	v, ok := readKey(w, t)
	return v, ok && t[0].lower != w.vars["table"] && plainName.MatchString(t[0].text) &&
		(t[0].kind == quoted || !w.grammar.sets["contents"][t[0].lower])
}

// readNoun reads a noun that refers to the last rows.
func readNoun(w *writer, t []token) (value, bool) {
	noun := t[0].lower
	return value{}, len(t) == 1 && noun != "" && (w.grammar.sets["nouns"][noun] || noun == w.vars["table"])
}

// readFile reads a path in the workspace or in /tmp.
func readFile(_ *writer, t []token) (value, bool) {
	if len(t) != 1 || t[0].kind != path {
		return value{}, false
	}
	p := strings.TrimPrefix(t[0].text, "./")
	if !strings.HasPrefix(p, "/") {
		p = "/workspace/" + p
	}
	inside := strings.HasPrefix(p+"/", "/workspace/") || strings.HasPrefix(p+"/", "/tmp/")
	inside = inside && !strings.Contains(p+"/", "/../") && !strings.Contains(p, "~")
	return value{py: quote(p)}, inside
}

// readState reads the workspace's state document or a JSON file, as in "workflow state" or "file a.json".
func readState(w *writer, t []token) (value, bool) {
	v, last := value{py: quote(statePath)}, len(t)-1
	if t[last].kind == path {
		file, ok := jsonFile(nil, t[last:])
		if !ok {
			return v, false
		}
		v = file
	} else if t[last].lower == "file" && last > 0 {
		last--
	}
	unknown := func(t token) bool { return !w.grammar.sets["states"][t.lower] }
	return v, len(t) <= maxPhrase && (t[last].kind == path || t[last].lower == "state") &&
		!slices.ContainsFunc(t[:last], unknown)
}

// parseDate parses a date that exists and has one reading; 03/04/2026 has two.
func parseDate(s string) (day time.Time, ok bool) {
	cardinal := text.OneLine(ordinal.ReplaceAllString(strings.ReplaceAll(s, ",", ""), "$1 "))
	for _, layout := range []string{time.DateOnly, "January 2 2006", "Jan 2 2006", "2 January 2006", "2 Jan 2006"} {
		if day, err := time.Parse(layout, cardinal); err == nil && day.Year() >= firstYear {
			return day, true
		}
	}
	return time.Time{}, false
}

// readDate reads a date, or "today", which only the running program knows.
func readDate(_ *writer, t []token) (value, bool) {
	if t[0].lower == "today" {
		return value{py: "datetime.date.today()"}, len(t) == 1
	}
	day, ok := parseDate(join(t[:min(len(t), maxPhrase+1)]))
	return value{py: day.Format("datetime.date(2006, 1, 2)")}, ok && len(t) <= maxPhrase
}

// readDay reads a date without a year, such as "3 May". It does not accept February 29, because not every
// year has it.
func readDay(_ *writer, t []token) (value, bool) {
	const yearWithoutLeapDay = " 2023"
	day, ok := parseDate(join(t[:min(len(t), maxPhrase)]) + yearWithoutLeapDay)
	return value{py: day.Format("1, 2")}, ok && len(t) < maxPhrase
}

// readRest reads any tokens.
func readRest(*writer, []token) (value, bool) { return value{}, true }
