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
		places[fold(name)] |= map[bool]int{false: isCity, true: isCountry}[country]
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

// readPlaces reads "Paris", "San Francisco, CA", "Rome, Italy", "'Springfield' and Oslo", "Paris, London and Rome". A
// list has no regions, and no countries if it has a comma: "Paris, Jordan and Chad" may be two places or three.
func readPlaces(w *writer, t []token) (v value, ok bool) {
	if n := placeSize(t); n > 0 && (n == len(t) || w.grammar.isRegion(t[n:], join(t[:n]))) {
		return value{list: []string{quote(strings.ReplaceAll(join(t), " ,", ","))}}, true
	}
	countries := false
	v, ok = listOf(t, func(part []token) (string, bool) {
		name := join(part)
		if len(part) == 1 && part[0].kind == quoted {
			return quote(name), strings.TrimSpace(name) != ""
		}
		countries = countries || knownPlaces()[fold(name)]&isCountry != 0
		return quote(name), len(part) > 0 && placeSize(part) == len(part)
	})
	and := slices.IndexFunc(t, func(t token) bool { return t.lower == "and" })
	comma := slices.IndexFunc(t, func(t token) bool { return t.is(",") })
	ends := and > 0 && !slices.ContainsFunc(t[and:], func(t token) bool { return t.is(",") })
	return v, ok && (len(v.list) == 1 || ends && (comma < 0 || !countries))
}

var regionCode = regexp.MustCompile(`^[A-Z]{2}$`)

// isRegion reports whether tokens are ", France" or ", CA" after a city. In "Paris, OK?" and "New York, LA" they may
// not be.
func (g *grammar) isRegion(t []token, city string) bool {
	if knownPlaces()[fold(city)] != isCity || len(t) < 2 || !t[0].is(",") {
		return false
	}
	if len(t) == 2 && regionCode.MatchString(t[1].text) {
		return !g.has("no-region", t[1]) || g.phrases["region"][fold(city)+" "+t[1].lower] != ""
	}
	name := fold(join(t[1:]))
	return placeSize(t[1:]) == len(t)-1 && (knownPlaces()[name]&isCountry != 0 || name == fold(city))
}

// readCity reads one city without a region.
func readCity(_ *writer, t []token) (value, bool) {
	name := join(t)
	return value{py: quote(name)}, placeSize(t) == len(t) && knownPlaces()[fold(name)]&isCity != 0
}
