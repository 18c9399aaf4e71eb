package ignore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/state/ignore"
)

func TestMatch(t *testing.T) {
	rules := ignore.Parse([]byte("# comment\n*.log\nbuild/\n/data/raw\nexact\n[broken\na\\*b\n\n"), []byte("more?\n"))
	for path, want := range map[string]bool{
		"a.log": true, "d/a.log": true, "log": false, "build": false, "data/raw": true, "d/data/raw": false,
		"exact":   true,
		"d/exact": true, "[broken": false, "a*b": true, "axb": false, "more1": true, "more": false, "# comment": false,
	} {
		if got := rules.Match(path, false); got != want {
			t.Errorf("Match(%q) = %t, want %t", path, got, want)
		}
	}
	if !rules.Match("d/build", true) || !rules.MatchBelow("d/build/x") || rules.MatchBelow("d/builds/x") {
		t.Error("a pattern with a slash at its end does not match directories, want that it does")
	}
	if none := (ignore.Rules{}); none.Match("x", false) || none.Err() != nil {
		t.Errorf("the zero value matches, or has the error %v, want neither", none.Err())
	}
}

func TestRead(t *testing.T) {
	const limit = 64 << 10
	full := strings.Repeat("name\n", limit/5) + "\n"
	for _, c := range []struct{ name, text, want string }{
		{"short", "a\n/b", "a\n/b"},
		{"as long as the limit", full[:limit], full[:limit]},
		{"a pattern that the limit cuts", full[:limit-6] + "\n/data/raw\n", full[:limit-6] + "\n"},
		{"a pattern that ends at the limit", full[:limit] + "\n*.log\n", full[:limit] + "\n"},
		{"one long pattern", strings.Repeat("*", limit+1), ""},
	} {
		if got, err := ignore.Read(strings.NewReader(c.text)); err != nil || string(got) != c.want {
			t.Errorf("%s: Read() = %d bytes that end in %q, %v, want %d bytes", c.name, len(got),
				got[max(0, len(got)-10):], err, len(c.want))
		}
	}
}

// TestCostIsBounded matches many long names with patterns that take long to match, with some that take no time, and
// with a usual number of patterns.
func TestCostIsBounded(t *testing.T) {
	var slow, literal strings.Builder
	for i := range 900 {
		fmt.Fprintf(&slow, "%sb%d\n", strings.Repeat("*a", 30), i)
		fmt.Fprintf(&literal, "name%d\n", i)
	}
	for _, c := range []struct {
		name, patterns, path string
		want                 error
	}{
		{"slow patterns", slow.String(), strings.Repeat("a", 240), ignore.ErrTooMany},
		{"names", literal.String(), "src/file.go", nil},
		{"usual patterns", strings.Repeat("*.log\nbuild/*.o\n", 10), "src/file.go", nil},
	} {
		rules := ignore.Parse([]byte(c.patterns))
		for range 20_000 {
			if rules.Match(c.path, false) {
				t.Fatalf("%s: Match() = true, want false", c.name)
			}
		}
		if err := rules.Err(); !errors.Is(err, c.want) {
			t.Errorf("%s: Err() = %v, want %v", c.name, err, c.want)
		}
	}
}
