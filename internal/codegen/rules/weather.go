package rules

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const units = `(?: in (celsius|fahrenheit|°?c|°?f))?`

var weatherForms = []form{
	{"weather of many", re(`(?:get|check|fetch|show|find)(?: me)?(?: the)?(?: current)? weather (?:for|in|of|at)` +
		` (that many|this many|that number of|the same number of|\d+) (?:other |different |more )?cities,?` +
		` (?:starting|beginning) (?:with|from|at|in) (.+)`), readWeatherMany},
	{
		"forecast", re(`(?:get|check|fetch|show|find|give me|what is|what's)?(?: me)?(?: the| a)?(?: (\d+)[- ]day)?` +
			`(?: weather)? forecast (?:for|in|of|at) (.+?)(?: for(?: the)?(?: next| coming)? (\d+) days)?` + units),
		readForecast,
	},
	{"weather", re(`(?:get|check|fetch|show|find|tell me|give me|what is|what's|how is|report)?(?: me)?(?: the)?` +
		`(?: current)?(?: (?:weather|temperature|climate|conditions?))(?: (?:conditions?` +
		`|report|information|like))? (?:for|in|of|at) (.+?)(?: (?:right now|now|today|currently))?` + units +
		`\??`), readWeather},
}

func locationTool(words ...string) func(*tool) bool {
	return func(t *tool) bool {
		return t.named(words...) && (t.requires("location") || t.requires("city") || t.requires("place"))
	}
}

func currentWeather(t *tool) bool {
	return locationTool("weather", "current")(t) && !t.named("forecast")
}

var (
	placePattern = regexp.MustCompile(`^[\p{L}][\p{L}\p{M} .'’-]*(?:, ?[\p{L}][\p{L} .]*)?$`)
	particle     = wordSet(`am an at auf da de del della der des di do dos du e el en i in la las le les los of on
san sul sur the und under upon van von y`)
	// joined are words that follow the "and" in a country's name.
	joined = wordSet(`herzegovina tobago barbuda nevis príncipe principe grenadines caicos futuna`)
	vague  = wordSet(`please thanks old plus well compared here there me my our your their his her its it that this
those these each every all any many some several the a an where home work monday tuesday wednesday thursday friday
saturday sunday morning noon afternoon evening night tonight midnight in on near around about before after during
since until unless except without with from to by via using but nor or both either neither again once twice daily
hourly weekly monthly hour hours day days only just also too like versus vs if when while because today tomorrow
yesterday weekend week month cities city places place locations then if and or not`)
)

// places reads names such as "Paris", "San Francisco, CA", "Paris, London and Rome".
func places(s string) ([]string, bool) {
	s = strings.TrimRight(strings.TrimSpace(s), "?.! ")
	parts := []string{s}
	if and := regexp.MustCompile(`,? and `); and.MatchString(s) {
		parts = nil
		for part := range strings.SplitSeq(and.ReplaceAllString(s, ", "), ", ") {
			if n := len(parts); n > 0 && len(part) == 2 && strings.ToUpper(part) == part {
				parts[n-1] += ", " + part
				continue
			}
			parts = append(parts, part)
		}
	}
	if len(parts) == 1 {
		if city, region, ok := strings.Cut(s, ", "); ok && city != region && cities[city] && cities[region] {
			return nil, false // it is unclear whether these are two cities or a city and its region
		}
	}
	for i, part := range parts {
		words := strings.Fields(strings.ToLower(part))
		if !spelledAlike(part) || i > 0 && joined[words[0]] {
			return nil, false
		}
		if !placePattern.MatchString(part) || len(words) > 6 ||
			slices.ContainsFunc(words, func(w string) bool { return vague[w] }) {
			return nil, false
		}
	}
	return parts, true
}

// spelledAlike reports whether all words of a name except particles begin with a capital letter, or none of them. In
// "Paris asap", the second word is not a part of the name.
func spelledAlike(name string) bool {
	capital, small := false, false
	for _, word := range strings.FieldsFunc(name, func(r rune) bool { return r == ' ' || r == ',' }) {
		first, _ := utf8.DecodeRuneInString(word)
		capital = capital || !unicode.IsLower(first)
		small = small || unicode.IsLower(first) && !particle[word]
	}
	return !capital || !small
}

func unitArgument(t *tool, word string) []string {
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
		p.record, p.several = p.fresh("weather"), len(where) > 1
		p.emit("%s = %s", p.record, p.call(now,
			append([]string{now.requiredParam() + "=" + quote(place)}, unitArgument(now, m[2])...)...))
		p.emit("show(%s, %s)", quote("Weather in "+place), p.record)
		p.output(outputKey("weather", place, len(where)), p.record)
		ahead := p.tool(locationTool("forecast"))
		if ahead == nil || conditional || p.depth > 0 || !strings.Contains(strings.ToLower(m[0]), "weather") ||
			p.asksForecast() {
			continue // only a bare "weather" includes the forecast
		}
		p.forecast(ahead, place, "", m[2], outputKey("forecast", place, len(where)))
	}
	return true
}

// outputKey returns the key of a place's output. It contains the place if there are several places.
func outputKey(kind, place string, places int) string {
	if places > 1 {
		return kind + " " + place
	}
	return kind
}

func (p *planner) asksForecast() bool {
	return slices.ContainsFunc(p.clauses,
		func(c clause) bool { return strings.Contains(strings.ToLower(c.text), "forecast") })
}

func readForecast(p *planner, m []string, _ clause) bool {
	where, ok := places(m[2])
	t := p.tool(locationTool("forecast"))
	days := m[1] + m[3]
	if !ok || t == nil || m[1] != "" && m[3] != "" || days != "" && !t.has("days") || m[4] != "" && !t.has("units") {
		return false
	}
	for _, place := range where {
		p.forecast(t, place, days, m[4], outputKey("forecast", place, len(where)))
	}
	return true
}

func (p *planner) forecast(t *tool, place, days, unit, key string) {
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

var cities = func() map[string]bool {
	set := map[string]bool{}
	for c := range strings.Lines(cityText) {
		set[strings.TrimSpace(c)] = true
	}
	return set
}()

// readWeatherMany loops over a number of cities. The task names the first one. The others come from a fixed list, as
// the program's output says.
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
	named := []string{quote(first[0])}
	for c := range strings.SplitSeq(strings.TrimSpace(cityText), "\n") {
		if c != first[0] {
			named = append(named, quote(c))
		}
	}
	p.helper("show")
	p.emit("cities = [")
	for i := 0; i < len(named); i += 8 {
		p.emit("    %s,", strings.Join(named[i:min(i+8, len(named))], ", "))
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
