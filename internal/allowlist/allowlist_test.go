package allowlist_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/codefleet/codefleet/internal/allowlist"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]allowlist.Pattern{
		"example.org":       {Name: "example.org"},
		"Example.ORG.":      {Name: "example.org"},
		"example.org:443":   {Name: "example.org", Port: 443},
		"*.example.org:80":  {Name: "example.org", Wild: true, Port: 80},
		"*":                 {},
		"*:443":             {Port: 443},
		"93.184.216.34":     {Name: "93.184.216.34"},
		"[2606:4700::1]":    {Name: "2606:4700::1"},
		"[2606:4700::1]:80": {Name: "2606:4700::1", Port: 80},
		"2606:4700:0::1":    {Name: "2606:4700::1"},
		"::ffff:8.8.8.8":    {Name: "8.8.8.8"},
		"xn--bcher-kva.de":  {Name: "xn--bcher-kva.de"},
	} {
		got, err := allowlist.Parse(text)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", text, got, err, want)
		}
		again, err := allowlist.Parse(got.String())
		if err != nil || again != got {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", got.String(), again, err, got)
		}
	}
	for _, text := range []string{
		"", ".", "a..b", "example.org:22", "example.org:", "https://example.org", "example.org/path",
		"user@example.org",
		"ex ample.org", "bücher.de", "a.*.org", "**", "*.", "*.1.2.3.4", "127.1", "0x7f.1", "2130706433", "1.2.3.4.5",
		"fe80::1%eth0", "-a.org", strings.Repeat("a", 64) + ".org", strings.Repeat("a.", 127) + "org",
		"example.org\x00",
	} {
		if p, err := allowlist.Parse(text); err == nil {
			t.Errorf("Parse(%q) = %+v, want an error", text, p)
		}
	}
}

// TestParseSays checks that the error of a pattern names what is wrong with it.
func TestParseSays(t *testing.T) {
	for text, want := range map[string]string{
		"https://example.org":        `"https://example.org" is a URL: want a host, such as example.org`,
		"http://example.org:80/path": `"http://example.org:80/path" is a URL: want a host, such as example.org:80`,
		"https://":                   `"https://" is a URL: want a host, such as example.org`,
		"example.org/path":           `"example.org/path" has a path: want a host, such as example.org`,
		"example.org:22":             `"example.org:22": only ports 80 and 443 can be reached`,
		"bücher.de":                  `"bücher.de": not a host name (write names in other scripts in their xn--… form)`,
		"user@example.org":           `"user@example.org": not a host name (want one like example.org)`,
	} {
		if _, err := allowlist.Parse(text); err == nil || err.Error() != want {
			t.Errorf("Parse(%q) = %v, want %s", text, err, want)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, host string
		port          int
		want          bool
	}{
		{"example.org", "example.org", 443, true},
		{"example.org", "example.org", 80, true},
		{"example.org", "example.org", 22, false},
		{"example.org:443", "example.org", 80, false},
		{"example.org", "www.example.org", 443, false},
		{"example.org", "badexample.org", 443, false},
		{"*.example.org", "www.example.org", 443, true},
		{"*.example.org", "a.b.example.org", 443, true},
		{"*.example.org", "example.org", 443, false},
		{"*.example.org", "badexample.org", 443, false},
		{"*", "anything.net", 443, true},
		{"*", "anything.net", 25, false},
	} {
		p, err := allowlist.Parse(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Match(c.host, c.port); got != c.want {
			t.Errorf("%s.Match(%q, %d) = %v, want %v", c.pattern, c.host, c.port, got, c.want)
		}
	}
}

// TestCoversIsContainment checks that a pattern matches everything that is matched by the patterns that it covers.
func TestCoversIsContainment(t *testing.T) {
	pattern := rapid.Custom(func(t *rapid.T) allowlist.Pattern {
		p := allowlist.Pattern{
			Name: rapid.SampledFrom([]string{"", "a.org", "b.a.org", "c.b.a.org", "xa.org"}).Draw(t, "name"),
			Port: rapid.SampledFrom([]int{0, 80, 443}).Draw(t, "port"),
		}
		p.Wild = p.Name != "" && rapid.Bool().Draw(t, "wild")
		return p
	})
	rapid.Check(t, func(t *rapid.T) {
		p, q := pattern.Draw(t, "p"), pattern.Draw(t, "q")
		contained := true
		for _, host := range []string{"a.org", "b.a.org", "c.b.a.org", "d.c.b.a.org", "xa.org", "y.xa.org", "net"} {
			for _, port := range []int{80, 443} {
				contained = contained && (!q.Match(host, port) || p.Match(host, port))
			}
		}
		if p.Covers(q) && !contained {
			t.Fatalf("%s covers %s, which matches more", p, q)
		}
		if !p.Covers(q) && contained && p.Port == 0 { // the hosts above then distinguish all patterns
			t.Fatalf("%s does not cover %s, which matches no more", p, q)
		}
	})
}

func TestParseAll(t *testing.T) {
	got, _, err := allowlist.ParseAll([]string{"b.org", "A.org", "b.org."})
	if d := cmp.Diff([]allowlist.Pattern{{Name: "a.org"}, {Name: "b.org"}}, got); d != "" || err != nil {
		t.Errorf("ParseAll() (-want +got):\n%s%v", d, err)
	}
	if _, bad, err := allowlist.ParseAll([]string{"a.org", "b.org:1"}); bad != 1 || err == nil {
		t.Errorf("ParseAll() = %d, %v, want an error about the second pattern", bad, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"example.org", "*.a.b:80", "[::1]:443", "*"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := allowlist.Parse(text)
		if err != nil {
			return
		}
		again, err := allowlist.Parse(p.String())
		if err != nil || again != p || !p.Covers(again) {
			t.Errorf("Parse(%q) = %+v, but Parse(%q) = %+v, %v", text, p, p.String(), again, err)
		}
	})
}
