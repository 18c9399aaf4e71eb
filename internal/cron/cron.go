// Package cron computes the firing times of cron expressions in a time zone. It has no timers.
//
// An expression has five fields (minute, hour, day of month, month, day of week), or is @hourly, @daily, @weekly,
// @monthly, @yearly or "@every DURATION". If day of month and day of week are both restricted, a day needs
// to match only one of them, as in POSIX.
//
// When clocks are put forward, the times that they skip fire once, right after the gap. When clocks are put back, the
// times that occur twice fire at the first occurrence only. Neither rule applies to expressions whose hour field
// begins with *, which fire in every hour that passes.
package cron

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // zones on hosts without a database of their own

	gocron "github.com/netresearch/go-cron"

	"github.com/codefleet/codefleet/internal/text"
)

const (
	maxExpression = 200 // bytes
	maxZone       = 64  // bytes
	minEvery      = time.Second
	maxEvery      = 366 * 24 * time.Hour
)

// parser parses fields. Zones are a separate value, and @every is handled here.
var parser = gocron.MustNewParser(
	gocron.Minute | gocron.Hour | gocron.Dom | gocron.Month | gocron.Dow | gocron.Descriptor | gocron.DowOrDom)

// Spec is a parsed expression with its zone. It is immutable.
type Spec struct {
	zone      *time.Location
	fields    gocron.Schedule // nil for @every
	everyHour bool            // the hour field begins with *
	interval  time.Duration   // of @every
}

// Zone returns the named zone of the IANA database, or UTC for an empty name.
func Zone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" || len(name) > maxZone {
		return nil, fmt.Errorf("%q is not a time zone: want a name such as Europe/Berlin, or UTC",
			text.Truncate(name, maxZone))
	}
	return zone, nil
}

// Parse parses an expression. Its times are those of clocks in zone. The error says what is wrong.
func Parse(expression string, zone *time.Location) (Spec, error) {
	expression = strings.TrimSpace(expression)
	switch {
	case expression == "":
		return Spec{}, errors.New("the expression is empty: want five fields, such as 0 9 * * 1-5, or @hourly")
	case len(expression) > maxExpression:
		return Spec{}, fmt.Errorf("the expression is longer than %d bytes", maxExpression)
	case strings.Contains(expression, "="): // a zone in the expression
		return Spec{}, errors.New("an expression has no zone: name it separately")
	}
	expression = strings.ReplaceAll(expression, "?", "*") // for the parser, they are the same
	s := Spec{zone: zone}
	if every, ok := strings.CutPrefix(expression, "@every "); ok {
		d, err := time.ParseDuration(strings.TrimSpace(every))
		if err != nil || d < minEvery || d > maxEvery || d%time.Second != 0 {
			return Spec{}, errors.New("@every wants whole seconds, such as @every 90s or @every 6h, up to 8784h")
		}
		s.interval = d
		return s, nil
	}
	fields, err := parser.Parse(expression)
	if err != nil {
		return Spec{}, fmt.Errorf("%q is not a cron expression: %s", expression, fault(expression))
	}
	s.fields = fields
	_, hours, _ := strings.Cut(strings.Join(strings.Fields(expression), " "), " ")
	s.everyHour = strings.HasPrefix(hours, "*") || expression == "@hourly"
	if s.Next(time.Now()).IsZero() {
		return Spec{}, fmt.Errorf("%q never fires: no such date exists", expression)
	}
	return s, nil
}

// parts are the fields of an expression, in order, and the values that each accepts.
var parts = []struct {
	name, want string
	alone      gocron.Parser
}{
	{"minute", "0 to 59", gocron.MustNewParser(gocron.Minute)},
	{"hour", "0 to 23", gocron.MustNewParser(gocron.Hour)},
	{"day of month", "1 to 31", gocron.MustNewParser(gocron.Dom)},
	{"month", "1 to 12, or jan to dec", gocron.MustNewParser(gocron.Month)},
	{"day of week", "0 to 7, or sun to sat", gocron.MustNewParser(gocron.Dow)},
}

// fault says what is wrong with an expression that does not parse. The parser's own errors are in the terms of Go.
func fault(expression string) string {
	if strings.HasPrefix(expression, "@") {
		return `want @hourly, @daily, @weekly, @monthly, @yearly or "@every DURATION"`
	}
	fields := strings.Fields(expression)
	if len(fields) != len(parts) {
		return fmt.Sprintf("want five fields, such as 0 9 * * 1-5, found %d", len(fields))
	}
	for i, field := range fields {
		if _, err := parts[i].alone.Parse(field); err == nil {
			continue
		}
		for item := range strings.SplitSeq(field, ",") {
			span, step, stepped := strings.Cut(item, "/")
			for value := range strings.SplitSeq(span, "-") {
				if _, err := parts[i].alone.Parse(value); err != nil && value != "" {
					return fmt.Sprintf("%q is not a valid %s: want %s", value, parts[i].name, parts[i].want)
				}
			}
			if _, err := parts[i].alone.Parse(span); err == nil && stepped {
				return fmt.Sprintf("%q is not a valid step in %q (%s)", step, item, parts[i].name)
			}
		}
		return fmt.Sprintf("%q is not a valid list or range (%s): want %s", field, parts[i].name, parts[i].want)
	}
	return "want five fields, such as 0 9 * * 1-5"
}

// Next returns the first firing time after t, or the zero time if there is none within five years. The times of
// @every are multiples of its interval, counted from 1970 in UTC.
func (s Spec) Next(t time.Time) time.Time {
	if s.interval > 0 {
		seconds, every := t.Unix(), int64(s.interval/time.Second)
		return time.Unix(seconds-mod(seconds, every)+every, 0).In(s.zone)
	}
	from, limit := t.In(s.zone), t.AddDate(6, 0, 0)
	for period := from; period.Before(limit); {
		next, change := s.nextWithin(period, from)
		if change.IsZero() {
			return next
		}
		period, from = change, change.Add(-time.Nanosecond)
	}
	return time.Time{}
}

// mod returns the remainder of a divided by b, which is not negative even if a is.
func mod(a, b int64) int64 { return (a%b + b) % b }

// nextWithin returns the first firing time after from in the period around t in which the zone's offset does not
// change. If there is none, it returns the end of the period, if it has one.
func (s Spec) nextWithin(t, from time.Time) (next, change time.Time) {
	start, change := t.ZoneBounds()
	offset := offsetOf(t)
	if !start.IsZero() && !s.everyHour {
		// If the clocks were put back at start, they show times for the second time from start until repeated.
		repeated := start.Add(offsetOf(start.Add(-time.Second)) - offset)
		if from.Before(repeated) {
			from = repeated.Add(-time.Nanosecond)
		}
	}
	// In a zone whose offset does not change, the fields can be compared with clocks directly.
	next = s.fields.Next(from.In(time.FixedZone("", int(offset/time.Second))))
	switch {
	case next.IsZero():
		return time.Time{}, time.Time{}
	case change.IsZero() || next.Before(change):
		return next.In(s.zone), time.Time{}
	case !s.everyHour && next.Before(change.Add(offsetOf(change)-offset)): // skipped
		return change, time.Time{}
	}
	return time.Time{}, change
}

func offsetOf(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// windows are how far Due looks back, one after another, so that it need not count all times of a long gap.
var windows = []time.Duration{
	time.Minute, time.Hour, 24 * time.Hour, 32 * 24 * time.Hour, 366 * 24 * time.Hour, 9 * 366 * 24 * time.Hour,
}

// Due returns the newest firing times after from and not after until, at most limit, the oldest first.
func (s Spec) Due(from, until time.Time, limit int) (due []time.Time) {
	for _, window := range windows {
		start := until.Add(-window)
		if start.Before(from) {
			start = from
		}
		due = due[:0]
		for t := s.Next(start); !t.IsZero() && !t.After(until); t = s.Next(t) {
			due = append(due, t)
		}
		if len(due) >= limit || start.Equal(from) {
			break
		}
	}
	return slices.Clone(due[max(0, len(due)-limit):])
}
