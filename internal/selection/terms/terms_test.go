package terms

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestWords(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []string
	}{
		{"read_file", []string{"read", "file"}},
		{"getHTTPResponse", []string{"get", "http", "response"}},
		{"GitHub", []string{"git", "hub", "github"}},
		{"list PRs 2024", []string{"list", "prs"}},
		{"sha256Hash", []string{"sha256", "hash", "sha256hash"}},
		{"搜索网页", []string{"搜索", "索网", "网页"}},
		{"Über-Café", []string{"über", "café"}},
		{"ＦＵＬＬ width", []string{"full", "width"}},
		{"", nil},
	} {
		got := Words(c.in)
		if len(got) == 0 {
			got = nil
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("Words(%q) (-want +got):\n%s", c.in, d)
		}
	}
}

func TestQueryReplacesLiterals(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"open /root/music/a.xlsx", "open file excel spreadsheet"},
		{"mail bob.smith+x@example.co.uk now", "mail email"},
		{"visit https://example.com/delete/user?id=1", "visit url websit"},
		{"convert $1,200.50", "convert amount currenc"},
		{"summarise arXiv:2401.12345v2", "summaris arxiv paper"},
		{"read and/or write", "read write"},
		{"who owns shop-24.co.uk?", "own shop domain"},
		{"rooms on Lodging.com, e.g. a suite", "room lodg domain suit"},
		{"see report.pdf", "see file pdf document"},
	} {
		if got := strings.Join(Query(c.in), " "); got != c.want {
			t.Errorf("Query(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestDocumentsReturnsTheSameAsDocument(t *testing.T) {
	analyse := Documents()
	for _, text := range []string{
		"Reads the files of readers", "", "reading files", "Reads the files of readers",
		"listHTTPServers",
	} {
		if d := cmp.Diff(Document(text), analyse(text)); d != "" {
			t.Errorf("Documents()(%q) differs from Document (-want +got):\n%s", text, d)
		}
	}
}

func TestWordsLimitsItsInput(t *testing.T) {
	if got := len(Words(strings.Repeat("word ", maxText))); got > maxText/5+1 {
		t.Errorf("Words of a text over the limit returned %d words, want at most %d", got, maxText/5+1)
	}
	if got := Words(strings.Repeat("x", maxWord+1)); len(got) != 0 {
		t.Errorf("Words of a word over the limit = %q, want none", got)
	}
}

func FuzzQuery(f *testing.F) {
	for _, s := range []string{"readFile /a/b.c", "\xff\xfe", "日本語 mixedCase HTTPServers", "C:\\x\\y.z $5 a@b.c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, w := range Query(s) {
			if w == "" || !utf8.ValidString(w) {
				t.Errorf("Query(%q) returned the term %q, want only valid terms", s, w)
			}
		}
	})
}
