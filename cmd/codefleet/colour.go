package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/codefleet/codefleet/client"
)

// colour is the parameter of the escape sequence that selects a text colour. The empty colour leaves text unchanged.
type colour string

const (
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
)

// hasColours reports whether output to w has colours. With --color auto, output to a terminal has them unless the
// environment disables them.
func (a *app) hasColours(w io.Writer) bool {
	switch a.color {
	case "always":
		return true
	case "never":
		return false
	}
	return isTerminal(w) && a.lookup("NO_COLOR") == "" && a.lookup("TERM") != "dumb"
}

// paint prints text in a colour. If w is a *screen, control characters in the text are escaped; the colour's own escape
// sequences are not.
func (a *app) paint(w io.Writer, c colour, text string) {
	if c == "" || !a.hasColours(w) {
		fmt.Fprint(w, text)
		return
	}
	fmt.Fprintf(unscreened(w), "\x1b[%sm", c)
	fmt.Fprint(w, text)
	fmt.Fprint(unscreened(w), "\x1b[0m")
}

// colourOf returns the colour of a task's status.
func colourOf(status string) colour {
	switch client.Status(status) {
	case client.Succeeded:
		return green
	case client.Failed, client.Blocked, client.Timeout, client.Dead:
		return red
	case client.Cancelled, client.Expired, client.RetryWait:
		return yellow
	case client.Queued, client.Running:
	}
	return ""
}

// paintTable prints a table or a list of fields, with task statuses in colour: the words in the column STATUS or LAST
// STATUS, or the word after the field status.
func (a *app) paintTable(w io.Writer, table string) {
	header, _, _ := strings.Cut(table, "\n")
	before, _, found := strings.Cut(header, "STATUS")
	column := len([]rune(strings.TrimSuffix(before, "LAST ")))
	for i, line := range strings.SplitAfter(table, "\n") {
		at := column
		if field, isField := strings.CutPrefix(line, "status "); isField && !found {
			at = len(line) - len(strings.TrimLeft(field, " "))
		} else if !found || i == 0 {
			at = len(line)
		}
		runes := []rune(line)
		at = min(at, len(runes))
		word, rest := string(runes[at:]), ""
		if end := strings.IndexAny(word, " ,\n"); end >= 0 {
			word, rest = word[:end], word[end:]
		}
		fmt.Fprint(w, string(runes[:at]))
		a.paint(w, colourOf(word), word)
		fmt.Fprint(w, rest)
	}
}

// paintDiff prints a diff, with removed lines in red and added lines in green.
func (a *app) paintDiff(w io.Writer, diff string) {
	if !a.hasColours(w) {
		fmt.Fprint(w, diff)
		return
	}
	for line := range strings.Lines(diff) {
		c := colour("")
		switch {
		case strings.HasPrefix(line, "--- "), strings.HasPrefix(line, "+++ "):
		case strings.HasPrefix(line, "-"):
			c = red
		case strings.HasPrefix(line, "+"):
			c = green
		}
		text, end := strings.CutSuffix(line, "\n")
		a.paint(w, c, text)
		if end {
			fmt.Fprintln(w)
		}
	}
}
