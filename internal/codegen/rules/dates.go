package rules

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/text"
)

// dateRe matches unambiguous dates. 03/04/2026 is ambiguous.
const (
	dateRe = `(today|\d{4}-\d{2}-\d{2}|[a-z]+ \d{1,2}(?:st|nd|rd|th)?,? \d{4}|\d{1,2}(?:st|nd|rd|th)?(?: of)?` +
		` [a-z]+,? \d{4})`
	spanRe  = `(an?|\d{1,6}|[a-z-]+) (day|week)s?`
	whatDay = `(?:(?:calculate|compute|find|tell me|give me|what is|what's|what will be|work out) )?` +
		`(?:(?:what|which) )?(?:the )?date(?: is| will be| was| it is)?(?: that is)?(?: it)?`
)

var dateForms = []form{
	{
		"date after", re(whatDay + ` ` + spanRe + ` (after|from|before) ` + dateRe),
		func(p *planner, m []string, _ clause) bool {
			return p.moveDate(m[4], m[1], m[2], strings.EqualFold(m[3], "before"))
		},
	},
	{"date after", re(`add ` + spanRe + ` to ` + dateRe), func(p *planner, m []string, _ clause) bool {
		return p.moveDate(m[3], m[1], m[2], false)
	}},
	{"date before", re(`subtract ` + spanRe + ` from ` + dateRe), func(p *planner, m []string, _ clause) bool {
		return p.moveDate(m[3], m[1], m[2], true)
	}},
	{"weekday", re(`(?:(?:calculate|compute|find|tell me|give me|what is|what's|what|which) )?(?:the )?` +
		`(?:weekday|day of the week)(?: is| was| will)?(?: of| for| on)? ` + dateRe + `(?: be)?`), readWeekday},
	{"days between", re(`(?:` + calcVerb +
		` )?(?:how many |the )?(?:number of )?days (?:are (?:there )?|lie )?(between|from) ` + dateRe +
		` (?:and|to|until) ` + dateRe), readDaysBetween},
}

// firstYear is the first year in which all English-speaking countries used the Gregorian calendar.
const firstYear = 1753

// date parses a date that exists. today is true for "today", whose date only the running program knows.
func date(s string) (day time.Time, today, ok bool) {
	if strings.EqualFold(s, "today") {
		return time.Time{}, true, true
	}
	cardinal := text.OneLine(ordinal.ReplaceAllString(strings.ReplaceAll(s, ",", ""), "$1 "))
	for _, layout := range []string{time.DateOnly, "January 2 2006", "Jan 2 2006", "2 January 2006", "2 Jan 2006"} {
		if day, err := time.Parse(layout, cardinal); err == nil && day.Year() >= firstYear {
			return day, false, true
		}
	}
	return time.Time{}, false, false
}

var ordinal = regexp.MustCompile(`(?i)(\d)(?:st|nd|rd|th)?(?: of)? `)

// pythonDate returns the date as a Python expression.
func (p *planner) pythonDate(day time.Time, today bool) string {
	p.modules["datetime"] = true
	if today {
		return "datetime.date.today()"
	}
	return day.Format("datetime.date(2006, 1, 2)")
}

const maxDays = 3_652_058 // from the first day of Python's calendar to its last

// moveDate emits the date that is a number of days or weeks after another one, or before it if back is true.
func (p *planner) moveDate(from, count, unit string, back bool) bool {
	day, today, ok := date(from)
	n, err := strconv.Atoi(digits(count))
	if strings.EqualFold(count, "a") || strings.EqualFold(count, "an") {
		n, err = 1, nil
	}
	if !ok || err != nil {
		return false
	}
	if strings.EqualFold(unit, "week") {
		n *= 7
	}
	sign, moved := "+", day.AddDate(0, 0, n)
	if back {
		sign, moved = "-", day.AddDate(0, 0, -n)
	}
	if n > maxDays || !today && (moved.Year() < firstYear || moved.Year() > 9999) {
		return false
	}
	variable := p.fresh("date")
	p.emit("%s = (%s %s datetime.timedelta(days=%d)).isoformat()", variable, p.pythonDate(day, today), sign, n)
	p.emit("print(%s, %s)", quote(from+" "+sign+" "+strconv.Itoa(n)+" days:"), variable)
	p.number = "" // "it" may now mean the date
	p.output("date", variable)
	return true
}

func readWeekday(p *planner, m []string, _ clause) bool {
	day, today, ok := date(m[1])
	if !ok {
		return false
	}
	variable := p.fresh("weekday")
	p.emit("%s = %s.strftime(\"%%A\")", variable, p.pythonDate(day, today))
	p.emit("print(%s, %s)", quote("Weekday of "+m[1]+":"), variable)
	p.number = "" // "it" may now mean the date
	p.output("weekday", variable)
	return true
}

// readDaysBetween emits the days from one date to another. It counts one of the two dates.
func readDaysBetween(p *planner, m []string, _ clause) bool {
	first, now, ok := date(m[2])
	last, then, known := date(m[3])
	if !ok || !known || now == then && last.Before(first) || now && then {
		return false
	}
	variable := p.fresh("days")
	p.emit("%s = (%s - %s).days", variable, p.pythonDate(last, then), p.pythonDate(first, now))
	if now || then {
		p.emit("if %s < 0:", variable)
		p.emit("    raise ValueError(%s)", quote(m[2]+" is after "+m[3]))
	}
	p.emit("print(%s, %s)", quote("Days from "+m[2]+" to "+m[3]+":"), variable)
	p.number = variable
	p.output("days", variable)
	return true
}
