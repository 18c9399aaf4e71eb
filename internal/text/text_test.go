package text_test

import (
	"testing"
	"unicode/utf8"

	"github.com/codefleet/codefleet/internal/text"
)

func TestTruncate(t *testing.T) {
	for _, c := range []struct {
		s          string
		limit      int
		start, end string
	}{
		{"short", 5, "short", "short"},
		{"longer", 5, "lo…", "…er"},
		{"aé漢字b", 8, "aé…", "…字b"},
		{"long", 3, "…", "…"},
		{"long", 2, "", ""},
	} {
		if got := text.Truncate(c.s, c.limit); got != c.start {
			t.Errorf("Truncate(%q, %d) = %q, want %q", c.s, c.limit, got, c.start)
		}
		if got := text.TruncateStart(c.s, c.limit); got != c.end {
			t.Errorf("TruncateStart(%q, %d) = %q, want %q", c.s, c.limit, got, c.end)
		}
	}
}

func TestPrefix(t *testing.T) {
	for limit, want := range map[int]string{-1: "", 0: "", 1: "a", 2: "a", 3: "aé", 5: "aé", 6: "aé漢", 7: "aé漢"} {
		if got := text.Prefix("aé漢", limit); got != want {
			t.Errorf("Prefix(aé漢, %d) = %q, want %q", limit, got, want)
		}
	}
}

func FuzzTruncate(f *testing.F) {
	f.Add("aé漢字b", 4)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		for _, got := range []string{text.Truncate(s, limit), text.TruncateStart(s, limit)} {
			if limit >= 0 && len(got) > limit || utf8.ValidString(s) && !utf8.ValidString(got) {
				t.Errorf("Truncate(%q, %d) = %q; want valid UTF-8 within the limit", s, limit, got)
			}
		}
	})
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\n":  "plain\ttext\n",
		"a\u200bb\u202e": "a<U+200B>b<U+202E>",
		"\x1b[31m":       "<U+001B>[31m",
		"bad\xff":        "bad<U+FFFD>",
	} {
		if got := text.Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
	if got, want := text.PrintableLine("a\r\n\t\u200bb c"), "a<U+000D><U+000A><U+0009><U+200B>b c"; got != want {
		t.Errorf("PrintableLine() = %q, want %q", got, want)
	}
}

func TestTerminal(t *testing.T) {
	for in, want := range map[string][2]string{
		"plain\ttext\r\n":  {"plain\ttext\r\n", "plain\ttext\r\n"},
		"\x1b]52;c;YQ==\a": {`<U+001B>]52;c;YQ==<U+0007>`, `\u001b]52;c;YQ==\u0007`},
		"\u009b2J\x7f\b":   {`<U+009B>2J<U+007F><U+0008>`, `\u009b2J\u007f\u0008`},
		"raw \x9b2J":       {`raw <U+FFFD>2J`, `raw \ufffd2J`},
		"a\u202eb\u2066":   {`a<U+202E>b<U+2066>`, `a\u202eb\u2066`},
		"👩\u200d🔬 ✔\ufe0f نمی\u200cشود": {"👩\u200d🔬 ✔\ufe0f نمی\u200cشود", "👩\u200d🔬 ✔\ufe0f نمی\u200cشود"},
	} {
		if got := [2]string{text.Terminal(in), text.TerminalJSON(in)}; got != want {
			t.Errorf("Terminal, TerminalJSON(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestOneLine(t *testing.T) {
	if got := text.OneLine("  a\n\tb  c "); got != "a b c" {
		t.Errorf("OneLine() = %q; want \"a b c\"", got)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"queue.attempts", "queue.ack_wait", "limits.cpus"}
	for name, want := range map[string]string{
		"queue.atempts": "queue.attempts", "QUEUE.ack_wiat": "queue.ack_wait",
		"elsewhere": "",
	} {
		if got := text.Nearest(name, known, 2); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "abc", 3}, {"kitten", "sitting", 3}, {"ab", "ba", 1}, {"é", "e", 1}, {"same", "same", 0}} {
		if got := text.Distance(c.a, c.b); got != c.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 tools", 1: "1 tool", 2: "2 tools"} {
		if got := text.Count(n, "tool"); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}
