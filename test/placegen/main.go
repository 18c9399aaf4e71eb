// Command placegen writes the places that package rules knows: the countries of CLDR by their English names, and the
// cities of the time zone database. A country's line begins with "=".
//
//	go run ./test/placegen -zones "$(go env GOROOT)/lib/time/zoneinfo.zip" -out internal/codegen/rules/places.txt
package main

import (
	"archive/zip"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/text/language"
	"golang.org/x/text/language/display"
)

func main() {
	zones := flag.String("zones", "", "Go's time zone database: $(go env GOROOT)/lib/time/zoneinfo.zip")
	out := flag.String("out", "places.txt", "file to write")
	flag.Parse()
	if err := run(*zones, *out); err != nil {
		fmt.Fprintln(os.Stderr, "placegen:", err)
		os.Exit(1)
	}
}

func run(zones, out string) error {
	places, err := cities(zones)
	if err != nil {
		return err
	}
	for _, country := range countries() {
		delete(places, country)
		places["="+country] = true
	}
	var lines []string
	for place := range places {
		lines = append(lines, place+"\n")
	}
	slices.Sort(lines)
	return os.WriteFile(out, []byte(strings.Join(lines, "")), 0o644)
}

// areas are the first parts of time zones that are named after cities.
var areas = []string{"Africa", "America", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific"}

// everyday are names of zones and regions, in lower case, that are not places or that mean something else in a
// sentence.
var everyday = []string{
	"act", "canary", "center", "christmas", "comodrivadavia", "creston", "easter", "eurozone", "johnston", "knox",
	"knox in", "lhi", "marengo", "midway", "north", "nsw", "oral", "petersburg", "resolute", "shiprock", "south",
	"tell city", "united nations", "virgin", "wake", "west",
}

// cities returns the cities after which time zones are named.
func cities(zones string) (map[string]bool, error) {
	archive, err := zip.OpenReader(zones)
	if err != nil {
		return nil, err
	}
	defer func() { _ = archive.Close() }()
	found := map[string]bool{}
	for _, file := range archive.File {
		parts := strings.Split(strings.ReplaceAll(file.Name, "_", " "), "/")
		name := parts[len(parts)-1]
		isCity := len(parts) > 1 && slices.Contains(areas, parts[0]) && name != ""
		if isCity && !slices.Contains(everyday, strings.ToLower(name)) {
			found[name] = true
		}
	}
	return found, nil
}

// countries returns the countries with the variants of their names.
func countries() []string {
	out := []string{"USA", "UK"} // CLDR's aliases of the codes US and GB
	names := display.English.Regions()
	for first := 'A'; first <= 'Z'; first++ {
		for second := 'A'; second <= 'Z'; second++ {
			region, err := language.ParseRegion(string(first) + string(second))
			if err != nil || !region.IsCountry() || region.Canonicalize() != region {
				continue
			}
			name := strings.NewReplacer("&", "and", " SAR China", "").Replace(names.Name(region))
			formal, rest, _ := strings.Cut(name, " (") // Myanmar (Burma), Cocos (Keeling) Islands
			other, rest, _ := strings.Cut(rest, ")")
			for _, n := range []string{formal + rest, other + rest, strings.ReplaceAll(formal, "St. ", "Saint ")} {
				if n != "" && !slices.Contains(out, n) && !slices.Contains(everyday, strings.ToLower(n)) {
					out = append(out, n)
				}
			}
		}
	}
	return out
}
