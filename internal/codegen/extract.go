package codegen

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// Extract returns the program in a model's answer: the longest block fenced as Python, else the longest fenced block
// without a language, else the whole answer if it looks like Python. It ignores the thoughts of a reasoning model.
// The error is a *ModelError of kind NoProgram.
func Extract(answer string) (string, error) {
	answer = strings.ReplaceAll(strings.ToValidUTF8(answer, "\uFFFD"), "\r\n", "\n")
	answer = thoughts.ReplaceAllString(answer, "")
	if strings.TrimSpace(answer) == "" {
		return "", &ModelError{Kind: NoProgram, Message: "the answer is empty"}
	}
	best, other := "", ""
	bestNamed := false
	blocks := fences(answer)
	for _, b := range blocks {
		named := slices.Contains(pythonNames, b.language)
		switch {
		case !named && b.language != "":
			other = b.language
		case named && !bestNamed, named == bestNamed && len(b.text) > len(best):
			best, bestNamed = b.text, named
		}
	}
	switch {
	case strings.TrimSpace(best) != "" && (bestNamed || looksLikePython(best)):
		return strings.TrimSpace(best) + "\n", nil
	case len(blocks) == 0 && looksLikePython(answer):
		return strings.TrimSpace(answer) + "\n", nil
	case other != "":
		return "", &ModelError{Kind: NoProgram, Message: fmt.Sprintf("the answer is in %s, not in Python", other)}
	}
	return "", &ModelError{Kind: NoProgram, Message: "the answer contains no program: " + excerpt(answer)}
}

// thoughts match the thoughts of a reasoning model, which some servers leave in the answer. The opening tag may be
// missing: the server's part of the prompt then contains it.
var thoughts = regexp.MustCompile(`(?s)\A\s*<think>.*?(?:</think>|\z)|\A.*?\n</think>\n`)

var pythonNames = []string{"python", "py", "python3", "python3.9", "python3.11", "python3.12"}

type block struct{ language, text string }

var fence = regexp.MustCompile("^\\s{0,3}(`{3,}|~{3,})\\s*([\\w.+#-]*).*$")

// fences returns the fenced blocks; an open one ends with the answer.
func fences(answer string) []block {
	var out []block
	open := ""
	for line := range strings.Lines(answer) {
		m := fence.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		switch {
		case open == "" && m != nil:
			open = m[1]
			out = append(out, block{language: strings.ToLower(m[2])})
		case open != "" && m != nil && m[2] == "" && strings.HasPrefix(m[1], open):
			open = ""
		case open != "":
			out[len(out)-1].text += line
		}
	}
	return out
}

var (
	codeLine = regexp.MustCompile(`^(?:import \w|from [\w.]+ import |def \w+\(|class \w+|async def |print\(|@\w|` +
		`if .+:$|elif |else:|for .+ in .+:$|while .+:$|with .+:$|try:$|except|finally:|` +
		`[A-Za-z_][\w.\[\]'", ]*\s*(?:[-+*/%|&]|//|\*\*)?=[^=]|[A-Za-z_][\w.]*\(.*\)$)`)
	foreignLine = regexp.MustCompile(`^(?:const|let|var|function|#include|package|public|using|fn|SELECT|<\w+)\b`)
)

// looksLikePython judges the lines without indentation: more than half of them must be statements.
func looksLikePython(s string) bool {
	code, rest := 0, 0
	for line := range strings.Lines(s) {
		line = strings.TrimRight(line, " \n\t")
		switch {
		case line == "" || strings.ContainsAny(line[:1], "# \t)]}'\""):
		case foreignLine.MatchString(line):
			rest += 2
		case codeLine.MatchString(line):
			code++
		default:
			rest++
		}
	}
	return code > rest
}

// excerpt returns the beginning of an untrusted text, in one line, for an error.
func excerpt(s string) string { return text.Truncate(text.Printable(text.OneLine(s)), 120) }

var serverImport = regexp.MustCompile(`(?m)^\s*from servers\.(\w+) import \(?([\w, ]+)`)

// imported returns the ids of the selected tools that a program imports.
func imported(code string, tools []Tool) []string {
	var ids []string
	for _, m := range serverImport.FindAllStringSubmatch(code, -1) {
		for name := range strings.SplitSeq(m[2], ",") {
			name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
			for i := range tools {
				if t := &tools[i]; t.ModuleName() == m[1] && t.FunctionName() == name {
					ids = append(ids, t.Server+"/"+t.Name)
				}
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
