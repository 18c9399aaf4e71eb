package privacy_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"

	"github.com/codefleet/codefleet/internal/guardrails/privacy"
)

func detector(t testing.TB) *privacy.Detector {
	t.Helper()
	d, err := privacy.New(privacy.Types()...)
	if err != nil {
		t.Fatalf("New = %v, want nil", err)
	}
	return d
}

func TestFind(t *testing.T) {
	d := detector(t)
	for _, c := range []struct {
		text string
		want []string // "type value"
	}{
		{"write to ada.lovelace+x@mail.example.co.uk.", []string{"email ada.lovelace+x@mail.example.co.uk"}},
		{"ada@localhost, @home, a@b", nil},
		{"to ada@example.org...or ada@example.net.-x", []string{"email ada@example.org", "email ada@example.net"}},
		{"write to ada@example.org.I am ada@b.c and ada@-b.cd", []string{"email ada@example.org"}},
		{"é@exämple.org", []string{"email é@exämple.org"}},
		{"ada＠example．org", []string{"email ada＠example．org"}},
		{"ada﹫example﹒org", []string{"email ada﹫example﹒org"}},
		{"a\u200bda@exam\u200bple.org", []string{"email a\u200bda@exam\u200bple.org"}},
		{"call 030 1234567 today", []string{"phone 030 1234567"}},
		{"Tel.: (030) 123-4567x89", []string{"phone (030) 123-4567x89"}},
		{"+44 20 7946 0958", []string{"phone +44 20 7946 0958"}},
		{"tel ٠٣٠ ١٢٣٤٥٦٧", []string{"phone ٠٣٠ ١٢٣٤٥٦٧"}},
		{"212-555-0187", []string{"phone 212-555-0187"}},
		{"hotel, tel 5551234", []string{"phone 5551234"}},
		{"I recall: call 5551234", []string{"phone 5551234"}},
		{"the hotel has 5551234 rooms", nil},
		{"hotel" + strings.Repeat(".", 36) + " 5551234", nil}, // the search begins in this word
		{"hotel" + strings.Repeat(".", 33) + "tel 5551234", []string{"phone 5551234"}},
		{"order 4711 of 2026-11-22 12:30:01 costs 1,234,567.89", nil},
		{"call me on 2026-11-22", nil},
		{"pi is 3.14159265358979", nil},
		{"commit 9876543210abcdef, item_1234567890, v1234567", nil},
		{"SSN 536-90-4399", []string{"ssn 536-90-4399"}},
		{"000-12-3456 666-12-3456 900-12-3456 123-00-4567", nil},
		{"my ssn is 536904399", []string{"ssn 536904399"}},
		{"pay with 4111 1111 1111 1111 12/27", []string{"card 4111 1111 1111 1111"}},
		{"5500-0000-0000-0004", []string{"card 5500-0000-0000-0004"}},
		{"4111111111111112", nil}, // wrong last digit
		{"0000000000000000", nil},
		{"12 34 56 78 90 12 34 52", nil}, // a list, although the check digit is correct
		{"card 12 34 56 78 90 12 34 52", []string{"card 12 34 56 78 90 12 34 52"}},
		{"my card 4111111111111112", []string{"card 4111111111111112"}},
		{"card 4111 1111 1111 1111 1228 124", []string{"card 4111 1111 1111 1111"}}, // 124 does not end another one
		{"IBAN GB29 NWBK 6016 1331 9268 19!", []string{"iban GB29 NWBK 6016 1331 9268 19"}},
		{"de89370400440532013000", []string{"iban de89370400440532013000"}},
		{"DE88370400440532013000", nil}, // wrong check digits
		{"GB29NWBK60161331926819X", nil},
		{"from 192.168.0.1:80 and 10.0.0.256", []string{"ip 192.168.0.1"}},
		{"127.0.0.1 1733000000", []string{"ip 127.0.0.1"}}, // 0.0.1 1733000000 is no number with the prefix 00
		{"at 2001:db8::1, ::1 and fe80::1.", []string{"ip 2001:db8::1", "ip ::1", "ip fe80::1"}},
		{"12:30:01 std::vector a::b ::", nil},
		{"key AKIAQ3EGRIVAZ5XWVJ7P", []string{"secret AKIAQ3EGRIVAZ5XWVJ7P"}},
		{"AKIAQ3EGRIVAZ5XWVJ7P # gitleaks:allow", []string{"secret AKIAQ3EGRIVAZ5XWVJ7P"}},
		{"", nil},
		{"\xff\xfe ada@example.org \xff", []string{"email ada@example.org"}},
	} {
		var got []string
		for _, s := range d.Find(c.text) {
			got = append(got, string(s.Type)+" "+c.text[s.Start:s.End])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("Find(%q) = %q, want %q", c.text, got, c.want)
		}
	}
}

func TestFindPrivateKey(t *testing.T) {
	const line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7x9Zq\n"
	key := "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat(line, 20) + "-----END PRIVATE KEY-----"
	text := "before\n" + key + "\nafter\n"
	got := detector(t).Find(text)
	if len(got) != 1 || text[got[0].Start:got[0].End] != key {
		t.Errorf("Find(private key) = %v, want one span of %d bytes at 7", got, len(key))
	}
}

// Each type is found only if it was asked for.
func TestTypes(t *testing.T) {
	text := strings.Join(slices.Sorted(maps.Keys(samples)), "\n")
	for _, want := range privacy.Types() {
		d, err := privacy.New(want)
		if err != nil {
			t.Fatalf("New(%s) = %v, want nil", want, err)
		}
		if got := d.Find(text); len(got) != 1 || got[0].Type != want {
			t.Errorf("Find(%q) of type %s = %v, want one value of this type", text, want, got)
		}
	}
}

// samples has a value of each type.
var samples = map[string]privacy.Type{
	"ada@example.org": privacy.Email, "+44 20 7946 0958": privacy.Phone, "536-90-4399": privacy.SSN,
	"4111 1111 1111 1111": privacy.Card, "GB29NWBK60161331926819": privacy.IBAN, "192.168.0.1": privacy.IP,
	"AKIAQ3EGRIVAZ5XWVJ7P": privacy.Secret,
}

// Each value is found after any count of small numbers, which may look like values together with a part of it.
func TestFindAfterNumbers(t *testing.T) {
	d := detector(t)
	for value := range samples {
		for _, separator := range []string{" ", "/"} {
			text := value
			for n := range 30 {
				left := []byte(text)
				for _, s := range d.Find(text) {
					copy(left[s.Start:s.End], strings.Repeat(".", s.End-s.Start))
				}
				left = left[len(text)-len(value):]
				if strings.ContainsFunc(string(left), unicode.IsDigit) {
					t.Errorf("Find(%q) leaves %q of %q, want no digit", text, left, value)
				}
				text = strconv.Itoa(n%7) + separator + text
			}
		}
	}
}

// A value is found in any text, between spaces.
func TestFindAnywhere(t *testing.T) {
	d := detector(t)
	rapid.Check(t, func(r *rapid.T) {
		value := rapid.SampledFrom(slices.Sorted(maps.Keys(samples))).Draw(r, "value")
		text := rapid.String().Draw(r, "before") + "\n" + value + "\n" + rapid.String().Draw(r, "after")
		want := strings.Index(text, value)
		for _, s := range d.Find(text) {
			if s.Type == samples[value] && s.Start == want && s.End == want+len(value) {
				return
			}
		}
		r.Errorf("Find(%q) = %v, want %s at %d", text, d.Find(text), samples[value], want)
	})
}

// The time to find values is proportional to the text, whatever is repeated in it. A busy machine needs seconds for
// each text. If the time were proportional to the square, it would need minutes.
func TestFindIsLinear(t *testing.T) {
	const size, limit = 512 << 10, time.Minute
	d := detector(t)
	for _, part := range []string{
		"1:", "f:", "::", "٣:", "1.1.1.1:", "1.", "1-", "1 ", "+1", "x@", "x@a.", ".5@", "GB29 ", "ext 1", "\\n",
		"\u200b1", "AKIAQ3EGRIVAZ5XWVJ7P+", "AKIAQ3EGRIVAZ5XWVJ7P=", ":", "@", "\\", "é@", "-----BEGIN",
		"eyJ",
		"00 1", "phone 1 ",
	} {
		start := time.Now()
		d.Find(strings.Repeat(part, size/len(part)))
		if took := time.Since(start); took > limit {
			t.Errorf("Find(%q, repeated to %d bytes) took %v, want less than %v", part, size, took, limit)
		}
	}
}

func FuzzFind(f *testing.F) {
	d := detector(f)
	for _, s := range []string{"ada@example.org", "+44 20 7946 0958x1", "1.2.3.4", "::1", "GB29 NWBK", "٠٣٠ (1)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		end := 0
		for _, s := range d.Find(text) {
			if s.Start < end || s.End <= s.Start || s.End > len(text) {
				t.Errorf("Find(%q) = %v, want spans in order within the text", text, s)
			}
			end = s.End
		}
	})
}
