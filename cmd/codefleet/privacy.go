package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"github.com/codefleet/codefleet/internal/guardrails/privacy"
	"github.com/codefleet/codefleet/internal/limited"
)

func (a *app) privacyCommand() *cobra.Command {
	return commandGroup(&cobra.Command{Use: "privacy", Short: "Find personal data and keys"}, a.privacyScanCommand())
}

// privacyMatch is a value that `privacy scan` found in a file.
type privacyMatch struct {
	File   string       `json:"file"`
	Line   int          `json:"line"`   // from 1
	Column int          `json:"column"` // in characters, from 1
	Type   privacy.Type `json:"type"`
	Value  string       `json:"value"`
}

// maxScannedFile is the size limit of a file in bytes. Files are read into memory.
const maxScannedFile = 256 << 20

func (a *app) privacyScanCommand() *cobra.Command {
	var types []string
	c := &cobra.Command{
		Use:   "scan FILE…",
		Short: "List personal data and keys in files, or in standard input with -",
		Long: "List e-mail addresses, phone numbers, US social security numbers, payment cards, IBANs,\n" +
			"IP addresses and keys, each with its line and column. Nothing leaves this machine. Values\n" +
			"are recognised by their format and check digits; names of people and places are not.",
		Example: "  codefleet privacy scan customers.csv\n" +
			"  cat log.txt | codefleet privacy scan --types email,phone -",
		Args: cobra.MinimumNArgs(1),
		RunE: a.do(func(_ context.Context, files []string) error {
			wanted, err := privacyTypes(types)
			if err != nil {
				return err
			}
			d, err := privacy.New(wanted...)
			if err != nil {
				return err
			}
			var found []privacyMatch
			for _, name := range files {
				data, err := a.readForScan(name)
				if err != nil {
					return err
				}
				found = append(found, matchesIn(d, name, data)...)
			}
			return list(a, found, "FILE\tLINE\tCOLUMN\tTYPE\tVALUE", func(f privacyMatch) []any {
				return []any{f.File, f.Line, f.Column, f.Type, f.Value}
			})
		}),
	}
	c.Flags().StringSliceVar(&types, "types", nil, "list only these types: "+strings.Join(typeNames(), ", "))
	completeFlag(c, "types", typeNames()...)
	return c
}

func typeNames() []string {
	return mapSlice(privacy.Types(), func(t privacy.Type) string { return string(t) })
}

func privacyTypes(names []string) ([]privacy.Type, error) {
	if len(names) == 0 {
		return privacy.Types(), nil
	}
	var types []privacy.Type
	for _, n := range names {
		if !slices.Contains(privacy.Types(), privacy.Type(n)) {
			return nil, usage("--types %s: want one or more of %s", n, strings.Join(typeNames(), ", "))
		}
		types = append(types, privacy.Type(n))
	}
	return types, nil
}

// readForScan returns the text of a file, or of standard input for -, in UTF-8.
func (a *app) readForScan(name string) (string, error) {
	in := a.stdin
	if name != "-" {
		opened := countReading() // opening a named pipe waits for a writer
		f, err := os.Open(name)
		opened()
		if err != nil {
			return "", usage("%v", err)
		}
		defer f.Close()
		in = f
	}
	// Spreadsheets are often exported in UTF-16, which starts with a byte order mark.
	in = transform.NewReader(inputReader{in}, unicode.BOMOverride(transform.Nop))
	data, err := limited.ReadAll(in, maxScannedFile)
	if errors.Is(err, limited.ErrTooLarge) {
		return "", usage("%s is larger than %d MiB", name, maxScannedFile>>20).try("split it, and scan the parts")
	}
	return string(data), explainFileError(err)
}

// matchesIn returns what d finds in data, the content of the file with this name.
func matchesIn(d *privacy.Detector, name, data string) []privacyMatch {
	var found []privacyMatch
	line, column, from := 1, 1, 0
	for _, s := range d.Find(data) {
		skipped := data[from:s.Start]
		if i := strings.LastIndexByte(skipped, '\n'); i >= 0 {
			line += strings.Count(skipped, "\n")
			column, skipped = 1, skipped[i+1:]
		}
		column += utf8.RuneCountInString(skipped)
		from = s.Start
		found = append(found, privacyMatch{
			File: name, Line: line, Column: column, Type: s.Type, Value: data[s.Start:s.End],
		})
	}
	return found
}
