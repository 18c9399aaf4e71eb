package builtin

import (
	"fmt"
	"slices"
	"strings"
)

// geoPlace is a place that open-meteo's geocoding found. Fields that it does not know are empty.
type geoPlace struct {
	Name        string  `json:"name"`
	Latitude    float64 `json:"latitude"`
	Longitude   float64 `json:"longitude"`
	Country     string  `json:"country"`
	CountryCode string  `json:"country_code"`
	Region      string  `json:"admin1"`
	County      string  `json:"admin2"`
}

const maxOthers = 5 // other places that a result or an error lists

// fullName returns the name with region and country, as in "Springfield, Missouri, United States".
func (p geoPlace) fullName() string {
	parts := []string{p.Name}
	for _, part := range []string{p.Region, p.Country} {
		if part != "" && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return clean(strings.Join(parts, ", "))
}

// isIn reports whether the normalized qualifier of a location names the place's country, region or county.
func (p geoPlace) isIn(qualifier string) bool {
	names := []string{p.Country, p.CountryCode, p.Region, p.County, countryAbbreviations[p.CountryCode]}
	if p.CountryCode == "US" {
		names = append(names, stateAbbreviations[strings.ToLower(p.Region)])
	}
	return slices.ContainsFunc(names, func(n string) bool { return n != "" && normalize(n) == qualifier })
}

// location is a location that a program asks for: a name, and regions or countries after commas.
type location struct {
	text       string
	name       string
	qualifiers []string // normalized
	key        string   // key of the name in the cache
}

func parseLocation(s string) (location, error) {
	name, rest, _ := strings.Cut(s, ",")
	l := location{text: clean(s), name: strings.TrimSpace(name)}
	l.key = normalize(l.name)
	if len([]rune(l.key)) < 2 {
		return l, fmt.Errorf("%q is not the name of a place: give a city, as in San Francisco, CA", l.text)
	}
	for part := range strings.SplitSeq(rest, ",") {
		if q := normalize(part); q != "" {
			l.qualifiers = append(l.qualifiers, q)
		}
	}
	return l, nil
}

// normalize returns a name in a form for comparisons, which is the same for "d.c." and "DC".
func normalize(s string) string {
	return strings.ToLower(strings.Join(strings.Fields(strings.ReplaceAll(s, ".", "")), " "))
}

// choose returns the first place of the list that fits the location, as open-meteo describes it and as tools report it.
// If no place fits, the error names some of the list.
func (l location) choose(list []geoPlace) (geoPlace, place, error) {
	list = slices.DeleteFunc(slices.Clone(list), func(p geoPlace) bool {
		return p.Name == "" || !between(p.Latitude, -90, 90) || !between(p.Longitude, -180, 180)
	})
	if len(list) == 0 {
		return geoPlace{}, place{}, fmt.Errorf("open-meteo knows no place %q: give a city, as in San Francisco, CA",
			l.text)
	}
	fits := slices.DeleteFunc(slices.Clone(list), func(p geoPlace) bool {
		return slices.ContainsFunc(l.qualifiers, func(q string) bool { return !p.isIn(q) })
	})
	if len(fits) == 0 {
		return geoPlace{}, place{}, fmt.Errorf("open-meteo knows no place %q, but %s", l.text,
			strings.Join(names(list), "; "))
	}
	chosen := fits[0]
	same := slices.DeleteFunc(slices.Clone(fits[1:]), func(p geoPlace) bool {
		return !strings.EqualFold(p.Name, chosen.Name) || p.fullName() == chosen.fullName()
	})
	return chosen, place{name: chosen.fullName(), others: names(same)}, nil
}

// names returns up to maxOthers different full names of the places, in order.
func names(list []geoPlace) []string {
	var all []string
	for _, p := range list {
		if n := p.fullName(); !slices.Contains(all, n) && len(all) < maxOthers {
			all = append(all, n)
		}
	}
	return all
}

// countryAbbreviations maps the codes of countries to usual abbreviations that differ from the codes.
var countryAbbreviations = map[string]string{"US": "USA", "GB": "UK", "AE": "UAE"}

// stateAbbreviations maps the states of the United States, in lower case, to their abbreviations.
var stateAbbreviations = map[string]string{
	"alabama": "AL", "alaska": "AK", "arizona": "AZ", "arkansas": "AR", "california": "CA", "colorado": "CO",
	"connecticut": "CT", "delaware": "DE", "district of columbia": "DC", "florida": "FL",
	"georgia": "GA", "hawaii": "HI", "idaho": "ID", "illinois": "IL", "indiana": "IN", "iowa": "IA", "kansas": "KS",
	"kentucky": "KY", "louisiana": "LA", "maine": "ME", "maryland": "MD", "massachusetts": "MA", "michigan": "MI",
	"minnesota": "MN", "mississippi": "MS", "missouri": "MO", "montana": "MT", "nebraska": "NE", "nevada": "NV",
	"new hampshire": "NH", "new jersey": "NJ", "new mexico": "NM", "new york": "NY", "north carolina": "NC",
	"north dakota": "ND", "ohio": "OH", "oklahoma": "OK", "oregon": "OR", "pennsylvania": "PA", "rhode island": "RI",
	"south carolina": "SC", "south dakota": "SD", "tennessee": "TN", "texas": "TX", "utah": "UT", "vermont": "VT",
	"virginia": "VA", "washington": "WA", "west virginia": "WV", "wisconsin": "WI", "wyoming": "WY",
}
