package cron_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/codefleet/codefleet/internal/cron"
)

func parse(t testing.TB, expression, zone string) (cron.Spec, *time.Location) {
	t.Helper()
	loc, err := cron.Zone(zone)
	if err != nil {
		t.Fatal(err)
	}
	s, err := cron.Parse(expression, loc)
	if err != nil {
		t.Fatal(err)
	}
	return s, loc
}

// TestNext checks the values of ordinary times and of days on which clocks are changed.
func TestNext(t *testing.T) {
	for name, c := range map[string]struct{ expression, zone, after, want string }{
		"every minute": {"* * * * *", "", "2026-11-23T10:00:00Z", "2026-11-23T10:01:00Z 2026-11-23T10:02:00Z"},
		"hourly":       {"@hourly", "", "2026-11-23T10:30:00Z", "2026-11-23T11:00:00Z 2026-11-23T12:00:00Z"},
		"daily in a zone": {
			"@daily", "Asia/Kolkata", "2026-11-23T00:00:00Z", "2026-11-24T00:00:00+05:30 2026-11-25T00:00:00+05:30",
		},
		"weekdays": {
			"0 9 * * 1-5", "Europe/Berlin", "2026-11-20T10:00:00Z",
			"2026-11-23T09:00:00+01:00 2026-11-24T09:00:00+01:00",
		},
		"sunday is 0 or 7": {"0 0 * * 7", "", "2026-11-23T00:00:00Z", "2026-11-29T00:00:00Z"},
		"either day":       {"0 0 13 * 5", "", "2026-11-23T00:00:00Z", "2026-11-27T00:00:00Z 2026-12-04T00:00:00Z"},
		"across midnight": {
			"0 23-1 * * *", "", "2026-11-23T22:30:00Z",
			"2026-11-23T23:00:00Z 2026-11-24T00:00:00Z 2026-11-24T01:00:00Z",
		},
		"leap day":   {"0 0 29 2 *", "", "2026-11-23T00:00:00Z", "2028-02-29T00:00:00Z"},
		"every 90 s": {"@every 90s", "", "2026-11-23T10:00:00Z", "2026-11-23T10:01:30Z 2026-11-23T10:03:00Z"},

		// 2026-03-08 in New York: 02:00 becomes 03:00.
		"gap, daily": {
			"30 2 * * *", "America/New_York", "2026-03-07T12:00:00-05:00",
			"2026-03-08T03:00:00-04:00 2026-03-09T02:30:00-04:00",
		},
		"gap, several skipped times fire once": {
			"0,15,30 2 * * *", "America/New_York", "2026-03-07T12:00:00-05:00",
			"2026-03-08T03:00:00-04:00 2026-03-09T02:00:00-04:00",
		},
		"gap, also at its end": {
			"0 2,3 * * *", "America/New_York", "2026-03-07T12:00:00-05:00",
			"2026-03-08T03:00:00-04:00 2026-03-09T02:00:00-04:00 2026-03-09T03:00:00-04:00",
		},
		"gap, every half hour": {
			"*/30 * * * *", "America/New_York", "2026-03-08T01:00:00-05:00",
			"2026-03-08T01:30:00-05:00 2026-03-08T03:00:00-04:00 2026-03-08T03:30:00-04:00",
		},
		"? is *": {
			"*/30 ? * * *", "America/New_York", "2026-03-08T01:00:00-05:00",
			"2026-03-08T01:30:00-05:00 2026-03-08T03:00:00-04:00 2026-03-08T03:30:00-04:00",
		},
		"gap, every hour": {
			"15 * * * *", "America/New_York", "2026-03-08T01:00:00-05:00",
			"2026-03-08T01:15:00-05:00 2026-03-08T03:15:00-04:00",
		},
		"gap at midnight": {
			"@daily", "America/Sao_Paulo", "2018-11-03T12:00:00-03:00",
			"2018-11-04T01:00:00-02:00 2018-11-05T00:00:00-02:00",
		},
		"gap of half an hour": {
			"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30",
			"2026-10-04T02:30:00+11:00 2026-10-05T02:15:00+11:00",
		},
		"gap of a day": {
			"0 12 * * *", "Pacific/Apia", "2011-12-29T12:00:00-10:00",
			"2011-12-31T00:00:00+14:00 2011-12-31T12:00:00+14:00",
		},
		// 2026-11-01 in New York: 02:00 becomes 01:00.
		"overlap, daily": {
			"30 1 * * *", "America/New_York", "2026-10-31T12:00:00-04:00",
			"2026-11-01T01:30:00-04:00 2026-11-02T01:30:00-05:00",
		},
		"overlap, from within": {
			"30 1 * * *", "America/New_York", "2026-11-01T01:10:00-05:00", "2026-11-02T01:30:00-05:00",
		},
		"overlap, its end": {
			"0 1,2 * * *", "America/New_York", "2026-10-31T12:00:00-04:00",
			"2026-11-01T01:00:00-04:00 2026-11-01T02:00:00-05:00",
		},
		"overlap, every half hour": {
			"*/30 * * * *", "America/New_York", "2026-11-01T01:00:00-04:00",
			"2026-11-01T01:30:00-04:00 2026-11-01T01:00:00-05:00 2026-11-01T01:30:00-05:00 2026-11-01T02:00:00-05:00",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := parse(t, c.expression, c.zone)
			at, err := time.Parse(time.RFC3339, c.after)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for range strings.FieldsSeq(c.want) {
				at = s.Next(at)
				got = append(got, at.Format(time.RFC3339))
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("Next(%s) = %s, want %s", c.after, strings.Join(got, " "), c.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for expression, want := range map[string]string{
		"":                        "the expression is empty",
		"* * * *":                 `"* * * *" is not a cron expression: want five fields, such as 0 9 * * 1-5, found 4`,
		"* * * * * *":             "found 6",
		"60 * * * *":              `"60" is not a valid minute: want 0 to 59`,
		"* 24 * * *":              `"24" is not a valid hour: want 0 to 23`,
		"* * 0 * *":               `"0" is not a valid day of month: want 1 to 31`,
		"* * * 1,sept *":          `"sept" is not a valid month: want 1 to 12, or jan to dec`,
		"0 9 * * mon-fryday":      `"fryday" is not a valid day of week: want 0 to 7, or sun to sat`,
		"a b c d e":               `"a" is not a valid minute`,
		"*/0 * * * *":             `"0" is not a valid step in "*/0" (minute)`,
		"5,*/x * * * *":           `"x" is not a valid step in "*/x" (minute)`,
		"1-2-3 * * * *":           `"1-2-3" is not a valid list or range (minute): want 0 to 59`,
		"* 1/2/3 * * *":           `"2/3" is not a valid step in "1/2/3" (hour)`,
		"-1 * * * *":              `"-1" is not a valid list or range (minute): want 0 to 59`,
		"0 0 L * *":               `"L" is not a valid day of month`,
		"0 0 * * 1#2":             `"1#2" is not a valid day of week`,
		"H * * * *":               `"H" is not a valid minute`,
		"0 0 30 2 *":              "never fires",
		"@reboot":                 "want @hourly, @daily",
		"@every":                  "not a cron expression",
		"@every 0s":               "whole seconds",
		"@every -1h":              "whole seconds",
		"@every 1500ms":           "whole seconds",
		"@every 9000h":            "whole seconds",
		"TZ=":                     "has no zone",
		"TZ=Asia/Tokyo 0 * * * *": "has no zone",
		"CRON_TZ=UTC @daily":      "has no zone",
		strings.Repeat("1,", 200): "longer than 200 bytes",
	} {
		if _, err := cron.Parse(expression, time.UTC); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "strconv") {
			t.Errorf("Parse(%q) = %v, want an error with %q", expression, err, want)
		}
	}
	for _, zone := range []string{
		"Mars/Olympus", "../etc/passwd", "/etc/localtime", "Local", "europe", "\x00", "+01:00",
	} {
		if _, err := cron.Zone(zone); err == nil || !strings.Contains(err.Error(), "is not a time zone") {
			t.Errorf("Zone(%q) = %v, want an error", zone, err)
		}
	}
}

// TestDue checks which times of long gaps are returned.
func TestDue(t *testing.T) {
	now := time.Date(2026, 11, 23, 10, 0, 30, 0, time.UTC)
	for _, c := range []struct {
		expression  string
		from        time.Duration
		limit       int
		n           int
		first, last string
	}{
		{"* * * * *", 3 * time.Minute, 100, 3, "2026-11-23T09:58:00Z", "2026-11-23T10:00:00Z"},
		{"* * * * *", 20 * time.Second, 100, 0, "", ""},
		{"* * * * *", 10 * 365 * 24 * time.Hour, 100, 100, "2026-11-23T08:21:00Z", "2026-11-23T10:00:00Z"},
		{"@every 1s", 365 * 24 * time.Hour, 2, 2, "2026-11-23T10:00:29Z", "2026-11-23T10:00:30Z"},
		{"@yearly", 3 * 366 * 24 * time.Hour, 100, 3, "2024-01-01T00:00:00Z", "2026-01-01T00:00:00Z"},
		{"@daily", 40 * 24 * time.Hour, 1, 1, "2026-11-23T00:00:00Z", "2026-11-23T00:00:00Z"},
	} {
		s, _ := parse(t, c.expression, "")
		due := s.Due(now.Add(-c.from), now, c.limit)
		var first, last string
		if len(due) > 0 {
			first, last = due[0].Format(time.RFC3339), due[len(due)-1].Format(time.RFC3339)
		}
		if len(due) != c.n || first != c.first || last != c.last {
			t.Errorf("Due(%s, %s) = %d times, %s to %s; want %d, %s to %s",
				c.expression, c.from, len(due), first, last, c.n, c.first, c.last)
		}
	}
}

// TestNextIncreases checks for random expressions, zones and times that each firing time is later than the one before,
// and that Due finds the times that Next finds.
func TestNextIncreases(t *testing.T) {
	zones := []string{"", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Gaza"}
	rapid.Check(t, func(t *rapid.T) {
		expression := rapid.SampledFrom([]string{
			"*/7 * * * *", "30 2 * * *", "0 */5 * * *", "15,45 1-3 * * *", "0 0 * * 0", "@every 37s", "0 2 1,15 * *",
		}).Draw(t, "expression")
		zone, err := cron.Zone(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		s, err := cron.Parse(expression, zone)
		if err != nil {
			t.Fatal(err)
		}
		from := time.Unix(rapid.Int64Range(1.7e9, 1.9e9).Draw(t, "from"), 0)
		var want []time.Time
		at := from
		for range 10 {
			next := s.Next(at)
			if !next.After(at) {
				t.Fatalf("Next(%s) = %s, want a later time", at, next)
			}
			want, at = append(want, next), next
		}
		got := s.Due(from, at, 10)
		if !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Fatalf("Due(%s, %s) = %s, want %s", from, at, got, want)
		}
	})
}
