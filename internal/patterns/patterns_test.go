package patterns_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/patterns"
)

// TestLimits checks which patterns compile, and that the size of the others is known before they are compiled: some of
// them would need more than 100 MB.
func TestLimits(t *testing.T) {
	const tooLarge = "with its repeats written out, it has more than 10000 parts: use fewer repeats"
	for _, c := range []struct {
		pattern string
		size    int
		err     string
	}{
		{pattern: "", size: 1},
		{pattern: "abc", size: 3},
		{pattern: "^x{2,10}$", size: 23},
		{pattern: "(?:ab){3,}", size: 9},
		{pattern: "a{1001}", err: "invalid repeat count: `{1001}`"},
		{pattern: "(", err: "missing closing ): `(`"},
		{pattern: "(?:" + strings.Repeat("ab", 1500) + "){1000}", err: tooLarge},
		{pattern: "(?:" + strings.Repeat("a{100}", 500) + "){10}", err: tooLarge},
		{pattern: "(?:" + strings.Repeat("ab", 1500) + "){1000,}", err: tooLarge},
		{pattern: strings.Repeat(`\pL`, 2000), err: tooLarge},
		{pattern: strings.Repeat("a", patterns.MaxLength+1), err: "it has 8193 bytes; the limit is 8192"},
	} {
		var s patterns.Set
		p, err := s.Compile(c.pattern)
		switch {
		case err != nil && err.Error() != c.err:
			t.Errorf("Compile(%.30s) = %v, want %s", c.pattern, err, c.err)
		case err == nil && (c.err != "" || p.Size != c.size || s.Size != c.size || p.String() != c.pattern):
			t.Errorf("Compile(%.30s) has the size %d (of all: %d), want %d, error %q",
				c.pattern, p.Size, s.Size, c.size, c.err)
		}
	}
	for _, usual := range []string{
		`^[\p{L}\p{N} .'-]{1,255}$`, `^(?:[a-z0-9-]{1,63}\.){1,10}[a-z]{2,63}$`, `^.{1,1000}$`,
	} {
		if _, err := new(patterns.Set).Compile(usual); err != nil {
			t.Errorf("Compile(%s) = %v, want nil", usual, err)
		}
	}
}

// TestTotal checks that the patterns of a schema have a limit together.
func TestTotal(t *testing.T) {
	var s patterns.Set
	for i := range patterns.MaxTotal / 5000 {
		for range 2 { // the second time, the pattern is not compiled again
			if _, err := s.Compile(string(rune('a'+i)) + strings.Repeat("a", 4999)); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, err := s.Compile("b")
	if _, ok := errors.AsType[*patterns.TooLargeError](err); !ok {
		t.Errorf("Compile() = %v after patterns of the size %d, want a TooLargeError", err, patterns.MaxTotal)
	}
}
