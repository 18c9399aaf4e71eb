package codegen

import (
	_ "embed"

	"regexp"
	"slices"
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

// ---- files

var fileForms = []form{
	{"write file", re(`(?:write|create|save|make)(?: (?:a|an|the|new|test|text|file|to|in|called|named|at))*(?: ` + pathRe + `)? (?:with|containing|that (?:contains|says))(?: (?:the )?(?:contents?|text|words?|string|data|line|message))?:? ` + quoteRe), func(p *planner, m []string, _ clause) bool {
		return p.writeFile(m[1], m[2], m[0])
	}},
	{"write file", re(`(?:write|save|store|put)(?: the)?(?: (?:text|contents?|string|words?|message))? ` + quoteRe + ` (?:to|into|in)(?: (?:a|an|the|new|test|text|file|called|named))*(?: ` + pathRe + `)?`), func(p *planner, m []string, _ clause) bool {
		return p.writeFile(m[2], m[1], m[0])
	}},
	{"read file", re(`(?:read|open|load|show|display|print|get)(?: (?:the|contents?|text|of|from|file|in))* ` + pathRe), func(p *planner, m []string, _ clause) bool {
		p.path = p.pathOf(m[1])
		return p.readFile()
	}},
	{"read file", re(`read (?:it|the file|that file|the test file|its contents?|the contents?)(?: back)?(?: again)?`), func(p *planner, _ []string, _ clause) bool {
		return p.path != "" && p.readFile()
	}},
	{"list directory", re(`(?:list|show|display|print)(?: (?:all|the|contents?|files?|everything|of|in|and|directory|directories|folder|entries))* ` + pathRe + `(?: (?:directory|folder))?( recursively)?`), func(p *planner, m []string, _ clause) bool {
		return p.listDirectory(p.pathOf(m[1]), m[2] != "")
	}},
	{"list directory", re(`(?:list|show|display)(?: (?:all|the|contents?|files?|of|in|my))* workspace(?: directory| folder| files)?( recursively)?`), func(p *planner, m []string, _ clause) bool {
		return p.listDirectory(quote("/workspace"), m[1] != "")
	}},
}

func (p *planner) writeFile(path, content, whole string) bool {
	switch {
	case path != "":
		p.path = p.pathOf(path)
	case strings.Contains(strings.ToLower(whole), "test file"):
		p.path = quote("/workspace/test.txt") // the task leaves the name open
	default:
		return false
	}
	text, ok := p.value(content)
	if !ok {
		return false
	}
	if t := p.tool(func(t *Tool) bool { return t.requires("path", "content") && t.named("write") }); t != nil {
		p.emit("%s", p.call(t, "path="+p.path, "content="+text))
	} else {
		p.modules["pathlib"] = true
		p.emit("pathlib.Path(%s).write_text(%s, encoding=\"utf-8\")", p.path, text)
	}
	p.emit("print(\"Wrote\", %s)", p.path)
	return true
}

func (p *planner) readFile() bool {
	p.text = p.fresh("content")
	if t := p.tool(func(t *Tool) bool { return t.requires("path") && t.named("read") }); t != nil {
		p.helper("text_of")
		p.emit("%s = text_of(%s)", p.text, p.call(t, "path="+p.path))
	} else {
		p.modules["pathlib"] = true
		p.emit("%s = pathlib.Path(%s).read_text(encoding=\"utf-8\")", p.text, p.path)
	}
	p.output("content", p.text)
	return true
}

func (p *planner) listDirectory(path string, recursive bool) bool {
	t := p.tool(func(t *Tool) bool { return t.requires("path") && t.named("list", "dir") })
	if t == nil {
		return false
	}
	arguments := []string{"path=" + path}
	if recursive {
		if !slices.ContainsFunc(t.Params, func(q Param) bool { return q.Name == "recursive" }) {
			return false
		}
		arguments = append(arguments, "recursive=True")
	}
	variable := p.fresh("listing")
	p.helper("show")
	p.emit("%s = %s", variable, p.call(t, arguments...))
	p.emit("show(%s, %s)", path, variable)
	p.record = variable
	p.output("listing", variable)
	return true
}

// ---- weather

const units = `(?: in (celsius|fahrenheit|°?c|°?f))?`

var weatherForms = []form{
	{"weather of many", re(`(?:get|check|fetch|show|find)(?: me)?(?: the)?(?: current)? weather (?:for|in|of|at) (that many|this many|that number of|the same number of|\d+) (?:other |different |more )?cities,? (?:starting|beginning) (?:with|from|at|in) (.+)`), readWeatherMany},
	{"forecast", re(`(?:get|check|fetch|show|find|give me|what is|what's)?(?: me)?(?: the| a)?(?: (\d+)[- ]day)?(?: weather)? forecast (?:for|in|of|at) (.+?)(?: for(?: the)?(?: next| coming)? (\d+) days)?` + units), readForecast},
	{"weather", re(`(?:get|check|fetch|show|find|tell me|give me|what is|what's|how is|report)?(?: me)?(?: the)?(?: current)?(?: (?:weather|temperature|climate|conditions?))(?: (?:conditions?|report|information|like))? (?:for|in|of|at) (.+?)(?: (?:right now|now|today|currently))?` + units + `\??`), readWeather},
}

func locationTool(words ...string) func(*Tool) bool {
	return func(t *Tool) bool {
		return t.named(words...) && (t.requires("location") || t.requires("city") || t.requires("place"))
	}
}

func (t *Tool) requiredParam() string {
	for _, p := range t.Params {
		if p.Required {
			return p.Name
		}
	}
	return ""
}

func (t *Tool) has(param string) bool {
	return slices.ContainsFunc(t.Params, func(p Param) bool { return p.Name == param })
}

func currentWeather(t *Tool) bool {
	return locationTool("weather", "current")(t) && !t.named("forecast")
}

var (
	placePattern = regexp.MustCompile(`^[\p{L}][\p{L}\p{M} .'’-]*(?:, ?[\p{L}][\p{L} .]*)?$`)
	vague        = wordSet(`here there me my our your their his her its it that this those these each every all any many some several the a an where home work
today tomorrow yesterday weekend week month cities city places place locations then if and or not`)
)

// places reads "Paris", "San Francisco, CA", "Paris, London and Rome".
func places(s string) ([]string, bool) {
	s = strings.TrimRight(strings.TrimSpace(s), "?.! ")
	parts := []string{s}
	if and := regexp.MustCompile(`,? and `); and.MatchString(s) {
		parts = nil
		for _, part := range strings.Split(and.ReplaceAllString(s, ", "), ", ") {
			if n := len(parts); n > 0 && len(part) == 2 && strings.ToUpper(part) == part {
				parts[n-1] += ", " + part
				continue
			}
			parts = append(parts, part)
		}
	}
	for _, part := range parts {
		words := strings.Fields(strings.ToLower(part))
		if !placePattern.MatchString(part) || len(words) > 6 || slices.ContainsFunc(words, func(w string) bool { return vague[w] }) {
			return nil, false
		}
	}
	return parts, true
}

func unitArgument(t *Tool, word string) []string {
	if word == "" || !t.has("units") {
		return nil
	}
	unit := map[byte]string{'c': "celsius", 'f': "fahrenheit"}[strings.TrimPrefix(strings.ToLower(word), "°")[0]]
	return []string{"units=" + quote(unit)}
}

func readWeather(p *planner, m []string, _ clause) bool {
	where, ok := places(m[1])
	now := p.tool(currentWeather)
	if !ok || now == nil || m[2] != "" && !now.has("units") {
		return false
	}
	p.helper("show")
	conditional := p.at < len(p.clauses) && strings.HasPrefix(strings.ToLower(p.clauses[p.at].text), "if ")
	for _, place := range where {
		p.record, p.place = p.fresh("weather"), place
		p.emit("%s = %s", p.record, p.call(now, append([]string{now.requiredParam() + "=" + quote(place)}, unitArgument(now, m[2])...)...))
		p.emit("show(%s, %s)", quote("Weather in "+place), p.record)
		p.output(named("weather", place, len(where)), p.record)
		ahead := p.tool(locationTool("forecast"))
		if ahead == nil || conditional || p.depth > 0 || !strings.Contains(strings.ToLower(m[0]), "weather") || p.asksForecast() {
			continue // a bare "weather" also wants to know what comes
		}
		p.forecast(ahead, place, "", m[2], named("forecast", place, len(where)))
	}
	return true
}

func named(what, place string, of int) string {
	if of > 1 {
		return what + " " + place
	}
	return what
}

func (p *planner) asksForecast() bool {
	return slices.ContainsFunc(p.clauses, func(c clause) bool { return strings.Contains(strings.ToLower(c.text), "forecast") })
}

func readForecast(p *planner, m []string, _ clause) bool {
	where, ok := places(m[2])
	t := p.tool(locationTool("forecast"))
	days := m[1] + m[3]
	if !ok || t == nil || m[1] != "" && m[3] != "" || days != "" && !t.has("days") || m[4] != "" && !t.has("units") {
		return false
	}
	for _, place := range where {
		p.place = place
		p.forecast(t, place, days, m[4], named("forecast", place, len(where)))
	}
	return true
}

func (p *planner) forecast(t *Tool, place, days, unit, key string) {
	arguments := []string{t.requiredParam() + "=" + quote(place)}
	if days != "" {
		arguments = append(arguments, "days="+number(days))
	}
	variable := p.fresh("forecast")
	p.helper("show")
	p.emit("%s = %s", variable, p.call(t, append(arguments, unitArgument(t, unit)...)...))
	p.emit("show(%s, %s)", quote("Forecast for "+place), variable)
	p.output(key, variable)
}

//go:embed cities.txt
var cityText string

// readWeatherMany loops over as many cities as a number says. The task names the first and leaves the others open;
// they come from a fixed list, and the program says so.
func readWeatherMany(p *planner, m []string, _ clause) bool {
	first, ok := places(m[2])
	t := p.tool(currentWeather)
	if !ok || len(first) != 1 || t == nil {
		return false
	}
	count := p.number
	if m[1][0] >= '0' && m[1][0] <= '9' {
		count = number(m[1])
	}
	if count == "" {
		return false
	}
	cities := []string{quote(first[0])}
	for _, c := range strings.Split(strings.TrimSpace(cityText), "\n") {
		if c != first[0] {
			cities = append(cities, quote(c))
		}
	}
	p.helper("show")
	p.emit("cities = [")
	for i := 0; i < len(cities); i += 8 {
		p.emit("    %s,", strings.Join(cities[i:min(i+8, len(cities))], ", "))
	}
	p.emit("]")
	p.emit("count = %s", count)
	p.emit("if not isinstance(count, int) or not 0 < count <= len(cities):")
	p.emit("    raise ValueError(\"%%s is not a number of cities from 1 to %%d\" %% (count, len(cities)))")
	p.emit("print(\"The task names only\", cities[0] + \"; the others are large cities of a fixed list.\")")
	variable := p.fresh("reports")
	p.emit("%s = []", variable)
	p.emit("for city in cities[:count]:")
	p.emit("    report = %s", p.call(t, t.requiredParam()+"=city"))
	p.emit("    show(city, report)")
	p.emit("    %s.append(report)", variable)
	p.output("weather", variable)
	return true
}

// ---- conditions

const comparison = `(above|over|greater than|more than|higher than|warmer than|>|below|under|less than|lower than|colder than|<|at least|>=|at most|<=|equal to|equals|exactly|==|not)`

var conditionForms = []form{
	{"if", re(`if (?:the |its |their )?(?:current )?(\w+)(?: there)? (?:is |are |was )?` + comparison + ` (-?[\d.]+)\s*(?:°|degrees)?\s*(celsius|fahrenheit|c|f|%)?(?:,? then)?(?:[,:]? (.+))?`), readIf},
}

var operators = map[string]string{"above": ">", "over": ">", "greater than": ">", "more than": ">", "higher than": ">", "warmer than": ">",
	"below": "<", "under": "<", "less than": "<", "lower than": "<", "colder than": "<", "at least": ">=", "at most": "<=",
	"equal to": "==", "equals": "==", "exactly": "==", "not": "!="}

func readIf(p *planner, m []string, c clause) bool {
	subject, operator, limit := strings.ToLower(m[1]), orElse(operators[strings.ToLower(m[2])], m[2]), m[3]
	if !numeral.MatchString(limit) || m[4] != "" { // a unit would have to be compared too
		return false
	}
	var value string
	switch {
	case slices.Contains([]string{"result", "it", "that", "sum", "total", "value", "answer"}, subject) && p.number != "":
		value = p.number
	case p.record != "":
		value = p.fresh(subject)
		p.helper("number", "field")
		p.emit("%s = number(field(%s, %s))", value, p.record, quote(subject))
	default:
		return false
	}
	then, otherwise := p.branches(c, m[5])
	if len(then) == 0 {
		return false
	}
	outcome := p.fresh("condition")
	text := subject + " " + strings.ToLower(m[2]) + " " + limit
	p.emit("%s = %s %s %s", outcome, value, operator, limit)
	p.emit("print(%s, %s, %s)", quote(text+":"), outcome, "\"(\" + str("+value+") + \")\"")
	p.output(text, outcome)
	at, outputs := len(p.body), len(p.outputs)
	p.branch("if "+outcome+":", then)
	if len(otherwise) > 0 {
		p.branch("else:", otherwise)
	}
	var none []string // what the branch not taken would have found
	for _, o := range p.outputs[outputs:] {
		none = append(none, strings.Repeat("    ", p.depth)+o.variable+" = None")
	}
	p.body = slices.Insert(p.body, at, none...)
	return true
}

// branches takes the clauses that hang on a condition: the rest of its sentence, and what "otherwise" begins.
func (p *planner) branches(c clause, first string) (then, otherwise []clause) {
	if first != "" {
		then = append(then, clause{text: tidy(first), sentence: c.sentence})
	}
	inElse := false
	for ; p.at < len(p.clauses); p.at++ {
		next := p.clauses[p.at]
		rest := elseWord.ReplaceAllString(next.text, "")
		starts := rest != next.text
		if next.sentence != c.sentence && !starts {
			break
		}
		if starts {
			inElse, c.sentence, next.text = true, next.sentence, tidy(rest)
		}
		if inElse {
			otherwise = append(otherwise, next)
		} else {
			then = append(then, next)
		}
	}
	return then, otherwise
}

var elseWord = regexp.MustCompile(`(?i)^(?:otherwise|else|if not)\b[, ]*`)

// branch reads clauses into an indented block. What only one branch makes known is not known after it.
func (p *planner) branch(head string, clauses []clause) {
	before := *p
	p.emit("%s", head)
	p.depth++
	p.clauses, p.at = clauses, 0
	for p.at < len(p.clauses) {
		p.step()
	}
	if p.dirty {
		p.saveDocument()
	}
	p.emit("pass")
	p.depth--
	p.clauses, p.at = before.clauses, before.at
	p.number, p.record, p.text, p.rows, p.doc, p.path = before.number, before.record, before.text, before.rows, before.doc, before.path
}

// ---- print, and whatever tool says it can do it

var printForms = []form{
	{"print", re(`(?:print|show|display|report|output|return|give me|tell me) (?:out )?(?:a |an |the )?(?:(?:short |brief |success )?(?:confirmation|success)(?: message)?)(?: (?:that|when|once|of|if) .+)?`), func(p *planner, _ []string, _ clause) bool {
		if p.file == "" && p.path == "" {
			return false
		}
		if p.dirty {
			p.saveDocument()
		}
		p.emit("print(\"Done:\", %s)", orElse(p.file, p.path))
		return true
	}},
	{"print", re(`(?:print|show|display|report|output|return|summari[sz]e)(?: out)? (?:a |an |the |its |all |that |this )*(?:current |completed? |updated? |final |brief |short )*(?:summary|state|status|contents?|results?|data|it|answer|statistics|workflow|file|output|value|number)(?: (?:of|from|in) (?:the |all |its )?(?:[a-z]+ )?(?:file|state|workflow|results?|data|document|content))?(?: \([^)]*\))?`), readPrint},
}

func readPrint(p *planner, m []string, _ clause) bool {
	subject := strings.ToLower(m[0])
	switch {
	case p.doc != "" && p.text == "":
		p.helper("show")
		p.emit("show(\"State\", %s)", p.doc)
	case p.text != "" && !strings.Contains(subject, "state"):
		p.emit("print(%s)", p.text)
	case p.number != "":
		p.emit("print(%s)", p.number)
	case len(p.outputs) > 0:
		p.helper("show")
		last := p.outputs[len(p.outputs)-1]
		p.emit("show(%s, %s)", quote(last.key), last.variable)
	default:
		return false
	}
	return true
}

var schemaForms = []form{{"tool", regexp.MustCompile(`^.+$`), readSchema}}

var (
	wordPattern = regexp.MustCompile(`[A-Za-z]+`)
	smallWords  = wordSet(`a an the of for to in on at with and my me all please current it is`)
)

// readSchema understands "verb noun [parameter value]…" for any tool whose name says exactly that: every word of the
// clause must belong to the tool's name, to a parameter or to a value, and every required parameter must be given.
func readSchema(p *planner, _ []string, c clause) bool {
	for i := range p.request.Tools {
		t := &p.request.Tools[i]
		arguments, rest, ok := p.arguments(t, c.text)
		if !ok || !sameWords(rest, t) {
			continue
		}
		variable := p.fresh("answer")
		p.helper("show")
		p.emit("%s = %s", variable, p.call(t, arguments...))
		p.emit("show(%s, %s)", quote(t.Name), variable)
		p.record = variable
		p.output(t.Name, variable)
		return true
	}
	return false
}

// arguments takes "parameter value" pairs out of a clause.
func (p *planner) arguments(t *Tool, text string) (arguments []string, rest string, ok bool) {
	rest = text
	for _, q := range t.Params {
		pattern := regexp.MustCompile(`(?i)\b` + strings.ReplaceAll(regexp.QuoteMeta(q.Name), "_", "[_ ]") + `\s*(?:[:=]|is|as)?\s*(⟦[qjp]\d+⟧|-?\d+(?:\.\d+)?)`)
		m := pattern.FindStringSubmatchIndex(rest)
		if m == nil {
			if q.Required {
				return nil, "", false
			}
			continue
		}
		value, understood := p.value(rest[m[2]:m[3]])
		if !understood || len(q.Enum) > 0 && !slices.Contains(q.Enum, strings.Trim(value, `"`)) {
			return nil, "", false
		}
		arguments = append(arguments, q.Name+"="+value)
		rest = rest[:m[0]] + rest[m[1]:]
	}
	return arguments, rest, !strings.ContainsAny(rest, "⟦0123456789")
}

// sameWords tells whether a clause's words are those of the tool's name, small words aside.
func sameWords(clause string, t *Tool) bool {
	words := func(s string) []string {
		var out []string
		for _, w := range wordPattern.FindAllString(strings.ToLower(s), -1) {
			if !smallWords[w] && w != strings.ToLower(t.Server) {
				out = append(out, strings.TrimSuffix(w, "s"))
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	name := words(strings.ReplaceAll(t.Name, "_", " "))
	return len(name) > 0 && slices.Equal(name, words(clause))
}
