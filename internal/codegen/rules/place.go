package rules

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/text/unicode/norm"
)

// placeText lists the countries of CLDR, after "=", and the cities of the time zone database.
//
//go:embed places.txt
var placeText string

// cityText lists the cities that a program adds for "that many cities", in this order.
//
//go:embed cities.txt
var cityText string

// The kinds of places. Singapore is both.
const (
	isCity = 1 << iota
	isCountry
)

// knownPlaces returns the kinds of places by their folded names.
var knownPlaces = sync.OnceValue(func() map[string]int {
	places := map[string]int{}
	for line := range strings.Lines(cityText + placeText) {
		name, country := strings.CutPrefix(line, "=")
		kind := isCity
		if country {
			kind = isCountry
		}
		places[fold(name)] |= kind
	}
	return places
})

var (
	accents   = regexp.MustCompile(`[\p{Mn}'’.]`)
	noLetters = regexp.MustCompile(`\PL+`)
)

// fold returns a place's name in lower case, without accents and punctuation.
func fold(name string) string {
	plain := accents.ReplaceAllString(norm.NFD.String(name), "")
	return strings.ToLower(strings.TrimSpace(noLetters.ReplaceAllString(plain, " ")))
}

const maxPlace = 6 // words

// placeSize returns the number of tokens in the longest place name with which tokens begin, or 0 if there is none.
func placeSize(t []token) int {
	return longest(min(len(t), maxPlace), func(n int) bool {
		notWord := func(t token) bool { return t.kind != word }
		return !slices.ContainsFunc(t[:n], notWord) && knownPlaces()[fold(join(t[:n]))] != 0
	})
}

// readPlaces reads "Paris", "San Francisco, CA", "'Springfield' and Oslo", "Rome, Italy and Paris, France". In a list
// either all cities or none have a region: "Rome, Italy and Paris" may be three places or two. So may "Paris, Jordan
// and Chad".
func readPlaces(w *writer, t []token) (v value, ok bool) {
	bare, regions, and := 0, 0, true
	countries, inCountry := false, false
	for {
		size := placeSize(t)
		name := join(t[:size])
		region := w.grammar.regionSize(t[size:], name)
		switch {
		case len(t) > 0 && t[0].kind == quoted && strings.TrimSpace(t[0].text) != "":
			size, name = 1, t[0].text
		case size == 0:
			return v, false
		case knownPlaces()[fold(name)]&isCountry != 0:
			countries = true
		case region > 0:
			inCountry = inCountry || !regionCode.MatchString(t[size+1].text)
			name += ", " + join(t[size+1:size+region])
			size, regions = size+region, regions+1
		default:
			bare++
		}
		v.list = append(v.list, quote(name))
		if t = t[size:]; len(t) == 0 {
			mixed := bare > 0 && regions > 0 || countries && inCountry
			return v, and && !mixed
		}
		n, _ := connector(t)
		if n == 0 {
			return v, false
		}
		and, t = t[n-1].lower == "and", t[n:]
	}
}

var regionCode = regexp.MustCompile(`^[A-Z]{2}$`)

// regionSize returns the number of tokens in ", France" or ", CA" after a city, or 0 if there is no region. In
// "Paris, OK?" and "New York, LA" there may be none.
func (g *grammar) regionSize(t []token, city string) int {
	if len(t) < 2 || !t[0].is(",") {
		return 0
	}
	n := placeSize(t[1:])
	name := fold(join(t[1 : 1+n]))
	switch {
	case regionCode.MatchString(t[1].text):
		if g.has("no-region", t[1]) && g.phrases["region"][fold(city)+" "+t[1].lower] == "" {
			return 0
		}
		return 2
	case n > 0 && (knownPlaces()[name]&isCountry != 0 || name == fold(city)):
		return 1 + n
	}
	return 0
}

// readCity reads one city without a region.
func readCity(_ *writer, t []token) (value, bool) {
	name := join(t)
	return value{py: quote(name)}, placeSize(t) == len(t) && knownPlaces()[fold(name)]&isCity != 0
}
