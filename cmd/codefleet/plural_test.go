package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/sourcetest"
)

// TestPlurals checks that the messages of the command line and of the web page use text.Count for a number that may be
// 1, instead of a noun in the plural.
func TestPlurals(t *testing.T) {
	plural := regexp.MustCompile(`%d (?:[a-z]+ )?[a-z]+s\b`)
	other := regexp.MustCompile(`%d (?:is|was|has|begins|times|of its tasks|days ago|bytes; the limit|bytes\.)`)
	checked := 0
	for _, dir := range []string{"cmd/codefleet", "internal/page"} {
		files, err := filepath.Glob(filepath.Join(sourcetest.Root(t), dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			checked++
			for _, found := range plural.FindAllString(other.ReplaceAllString(string(source), ""), -1) {
				t.Errorf("%s: %q is wrong for 1; want text.Count", filepath.Base(file), found)
			}
		}
	}
	if checked < 60 {
		t.Errorf("checked %d files, want at least 60: the test may not find them", checked)
	}
}
