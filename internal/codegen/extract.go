package codegen

import (
	"regexp"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// Extract returns the program in a model's response: the whole response if it looks like Python and no fence is
// indented by less than 4 columns, else the longest block fenced as Python, else the longest fenced block without a
// language if it looks like Python. It ignores the thoughts of a reasoning model. The error is a *ModelError of kind
// NoProgram.
func Extract(response string) (string, error) {
	response = strings.ReplaceAll(strings.ToValidUTF8(response, "\uFFFD"), "\r\n", "\n")
	response = thoughts.ReplaceAllString(response, "")
	if strings.TrimSpace(response) == "" {
		return "", &ModelError{Kind: NoProgram, Message: "the response is empty"}
	}
	best, otherLanguage := "", ""
	bestIsPython := false
	whole := dedent(response)
	blocks := fencedBlocks(whole)
	for _, b := range blocks {
		isPython := pythonName.MatchString(b.language)
		switch {
		case !isPython && b.language != "":
			otherLanguage = b.language
		case isPython && !bestIsPython, isPython == bestIsPython && len(b.text) > len(best):
			best, bestIsPython = b.text, isPython
		}
	}
	best = dedent(best)
	fenced := slices.ContainsFunc(blocks, func(b block) bool { return columns(b.indent) < 4 })
	switch {
	case !fenced && looksLikePython(whole): // fences that are more indented may be in a string of the program
		return whole + "\n", nil
	case strings.TrimSpace(best) != "" && (bestIsPython || looksLikePython(best)):
		return best + "\n", nil
	case otherLanguage != "":
		return "", &ModelError{Kind: NoProgram, Message: "the program is in " + otherLanguage + ", not in Python"}
	}
	return "", &ModelError{Kind: NoProgram, Message: "the response contains no program: " + excerpt(response)}
}

// thoughts matches the thoughts of a reasoning model, which some servers leave in the response. The opening tag may be
// missing, because some servers put it into the prompt.
var thoughts = regexp.MustCompile(`(?s)\A\s*<think>.*?(?:</think>|\z)|\A.*?\n</think>\n`)

var pythonName = regexp.MustCompile(`^(?:python|py)(?:3(?:\.\d+)?)?$`)

type block struct{ language, indent, text string }

var fence = regexp.MustCompile("^([ \\t]*)(`{3,}|~{3,})\\s*([\\w.+#-]*).*$")

// fencedBlocks returns the fenced blocks, of any indentation. A block without a closing fence ends with the response.
// As in CommonMark, the lines of a block lose as much indentation as its opening fence has, and the closing fence has
// at most 3 more columns.
func fencedBlocks(response string) []block {
	var out []block
	open, indent := "", ""
	for line := range strings.Lines(response) {
		m := fence.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		switch {
		case open == "" && m != nil:
			indent, open = m[1], m[2]
			out = append(out, block{language: strings.ToLower(m[3]), indent: indent})
		case open != "" && m != nil && m[3] == "" && strings.HasPrefix(m[2], open) &&
			columns(m[1]) <= columns(indent)+3:
			open = ""
		case open != "":
			out[len(out)-1].text += line[sharedPrefix(line, indent):]
		}
	}
	return out
}

// columns returns the width of an indentation.
func columns(indent string) int { return len(strings.ReplaceAll(indent, "\t", "    ")) }

// dedent removes blank lines at both ends, the indentation that all other lines have in common, and all indentation of
// the first line.
func dedent(s string) string {
	s = strings.TrimRight(s, " \t\n")
	start := strings.TrimLeft(s, " \t\n")
	s = s[strings.LastIndexByte(s[:len(s)-len(start)], '\n')+1:]
	common := s[:len(s)-len(start)]
	for line := range strings.Lines(s) {
		if strings.TrimSpace(line) != "" {
			common = common[:sharedPrefix(line, common)]
		}
	}
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(strings.TrimPrefix(line, common))
	}
	return strings.TrimLeft(b.String(), " \t")
}

// sharedPrefix returns how many bytes two strings have in common at their beginning.
func sharedPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

var (
	codeLine = regexp.MustCompile(`^(?:import \w|from [\w.]+ import |def \w+\(|class \w+|async def |print\(|@\w|` +
		`if .+:$|elif |else:|for .+ in .+:$|while .+:$|with .+:$|try:$|except|finally:|` +
		`[A-Za-z_][\w.\[\]'", ]*\s*(?:[-+*/%|&]|//|\*\*)?=[^=]|[A-Za-z_][\w.]*\(.*\)$)`)
	foreignLine = regexp.MustCompile(`^(?:(?:const|let|var|function|package|public|using|fn|SELECT)\s+[\w*{\["']|` +
		`#include\s*[<"]|<\w)`)
)

// looksLikePython reports whether more than half of the lines look like statements of Python. A line of another
// language counts twice against it. Indented lines, comments and lines that begin with a quotation mark or a closing
// bracket do not count.
func looksLikePython(s string) bool {
	code, other := 0, 0
	for line := range strings.Lines(s) {
		line = strings.TrimRight(line, " \n\t")
		switch {
		case foreignLine.MatchString(line):
			other += 2
		case line == "" || strings.ContainsAny(line[:1], "# \t)]}'\""):
		case codeLine.MatchString(line):
			code++
		default:
			other++
		}
	}
	return code > other
}

// excerpt returns the beginning of an untrusted text in one line, for an error message.
func excerpt(s string) string { return text.Truncate(text.Printable(text.OneLine(s)), 120) }
