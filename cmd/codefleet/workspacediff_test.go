package main

import "testing"

func TestGitName(t *testing.T) {
	for path, want := range map[string]string{
		"a/report.txt":         "a/report.txt",
		"a/two words":          "a/two words",
		"a/é":                  "a/é",
		"a/x\n+++ b/forged":    `"a/x\012+++ b/forged"`,
		"a/\x1b[2J":            `"a/\033[2J"`,
		"a/exe\u202egpj":       `"a/exe\342\200\256gpj"`,
		`a/quote"back\slash`:   `"a/quote\"back\\slash"`,
		"a/not UTF-8 \xff\x7f": `"a/not UTF-8 \377\177"`,
	} {
		if got := gitName(path); got != want {
			t.Errorf("gitName(%q) = %s, want %s", path, got, want)
		}
	}
}
