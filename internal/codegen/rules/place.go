package rules

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

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

// knownPlaces returns the folded names of places, and whether each is a country.
var knownPlaces = sync.OnceValue(func() map[string]bool {
	places := map[string]bool{}
	for line := range strings.Lines(cityText + placeText) {
		name, country := strings.CutPrefix(line, "=")
		places[fold(name)] = country
	}
	return places
})

// fold returns a place's name in lower case, without accents and punctuation.
func fold(name string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		switch {
		case unicode.Is(unicode.Mn, r) || strings.ContainsRune("'’.", r):
			return -1
		case unicode.IsLetter(r):
			return unicode.ToLower(r)
		}
		return ' '
	}, norm.NFD.String(name))), " ")
}

const maxPlace = 6 // words

// placeSize returns the number of tokens in the longest place name with which tokens begin, or 0 if there is none.
func placeSize(t []token) int {
	n := 0
	for n < min(len(t), maxPlace) && t[n].kind == word {
		n++
	}
	for ; n > 0; n-- {
		if _, ok := knownPlaces()[fold(join(t[:n]))]; ok {
			return n
		}
	}
	return 0
}

func readPlace(_ *writer, t []token) (value, bool) {
	v, ok := readPlaces(nil, t)
	return v, ok && len(v.list) == 1
}

// readPlaces reads "Paris", "San Francisco, CA", "'Springfield' and Oslo", "Rome, Italy and Paris, France". In a list
// either all cities or none have a region: "Rome, Italy and Paris" may be three places or two.
func readPlaces(_ *writer, t []token) (v value, ok bool) {
	bare, regions, and := 0, 0, false
	for {
		size := placeSize(t)
		name := join(t[:size])
		region := regionSize(t[size:], name)
		switch {
		case len(t) > 0 && t[0].kind == quoted && strings.TrimSpace(t[0].text) != "":
			size, name = 1, t[0].text
		case size == 0:
			return v, false
		case knownPlaces()[fold(name)]: // a country
		case region > 0:
			name += ", " + join(t[size+1:size+region])
			size, regions = size+region, regions+1
		default:
			bare++
		}
		v.list, t = append(v.list, quote(name)), t[size:]
		if len(t) == 0 {
			v.py = v.list[0]
			return v, (len(v.list) == 1 || and) && (bare == 0 || regions == 0)
		}
		n, _ := connector(t)
		if n == 0 {
			return v, false
		}
		and, t = t[n-1].lower == "and", t[n:]
	}
}

var regionCode = regexp.MustCompile(`^[A-Z]{2}$`)

// regionSize returns the number of tokens in ", France" or ", CA" after a city, or 0 if there is no region.
func regionSize(t []token, city string) int {
	if len(t) < 2 || !t[0].is(",") {
		return 0
	}
	if regionCode.MatchString(t[1].text) {
		return 2
	}
	if n := placeSize(t[1:]); n > 0 {
		if name := fold(join(t[1 : 1+n])); knownPlaces()[name] || name == fold(city) {
			return 1 + n
		}
	}
	return 0
}

// readCities reads several places, none of which is a country: "each city in France" means the cities of France.
func readCities(_ *writer, t []token) (value, bool) {
	v, ok := readPlaces(nil, t)
	return v, ok && len(v.list) > 1 && !slices.ContainsFunc(v.list, isCountry)
}

func readCity(_ *writer, t []token) (value, bool) {
	v, ok := readPlace(nil, t)
	return v, ok && !isCountry(v.py)
}

// isCountry reports whether a quoted name is a country's, and not also one of the large cities.
func isCountry(name string) bool {
	name = strings.Trim(name, `"`)
	return knownPlaces()[fold(name)] && !strings.Contains("\n"+cityText, "\n"+name+"\n")
}
