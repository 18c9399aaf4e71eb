package codegen

import (
	"fmt"
	"regexp"
	"strings"
)

// Extract takes the program out of a model's answer: the longest block fenced as Python, else the longest fenced block
// of no named language, else the whole answer if it reads like Python. What the model thought before does not count.
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
		named := pythonNames[b.language]
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
	return "", &ModelError{Kind: NoProgram, Message: "the answer holds no program: " + excerpt(answer)}
}

// thoughts are what a reasoning model says to itself, where the server leaves it in the answer; the opening tag may be
// in the server's own part of the prompt.
var thoughts = regexp.MustCompile(`(?s)\A\s*<think>.*?(?:</think>|\z)|\A.*?\n</think>\n`)

var pythonNames = wordSet("python py python3 python3.9 python3.11 python3.12")

type block struct{ language, text string }

var fence = regexp.MustCompile("^\\s{0,3}(`{3,}|~{3,})\\s*([\\w.+#-]*).*$")

// fences returns the fenced blocks; one that is never closed ends with the answer.
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
	codeLine    = regexp.MustCompile(`^(?:import \w|from [\w.]+ import |def \w+\(|class \w+|async def |print\(|@\w|if .+:$|for .+ in .+:$|while .+:$|with .+:$|try:$|[A-Za-z_][\w.\[\]'", ]*\s*(?:[-+*/%|&]|//|\*\*)?=[^=]|[A-Za-z_][\w.]*\(.*\)$)`)
	foreignLine = regexp.MustCompile(`^(?:const|let|var|function|#include|package|public|using|fn|SELECT|<\w+)\b`)
)

// looksLikePython judges the lines that begin at the margin; the interpreter has the last word.
func looksLikePython(s string) bool {
	code, rest := 0, 0
	for line := range strings.Lines(s) {
		line = strings.TrimRight(line, " \n\t")
		switch {
		case line == "" || line[0] == '#' || line[0] == ' ' || line[0] == '\t' || strings.ContainsAny(line[:1], ")]}'\""):
		case foreignLine.MatchString(line):
			rest += 2
		case codeLine.MatchString(line), strings.HasPrefix(line, "else:"), strings.HasPrefix(line, "except"), strings.HasPrefix(line, "finally:"), strings.HasPrefix(line, "elif "):
			code++
		default:
			rest++
		}
	}
	return code > rest
}

func excerpt(s string) string { return clean(strings.Join(strings.Fields(s), " "), 120, false) }

var serverImport = regexp.MustCompile(`(?m)^\s*from servers\.(\w+) import \(?([\w, ]+)`)

// imported returns the ids of the selected tools that a program imports.
func imported(code string, tools []Tool) []string {
	found := set{}
	for _, m := range serverImport.FindAllStringSubmatch(code, -1) {
		for name := range strings.SplitSeq(m[2], ",") {
			name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
			for i := range tools {
				if t := &tools[i]; t.module() == m[1] && t.function() == name {
					found[t.Server+"/"+t.Name] = true
				}
			}
		}
	}
	return found.sorted()
}
