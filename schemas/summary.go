package schemas

import (
	"cmp"
	"strings"
)

// Summary says what the task does: its description, or else a line of its program or the name of its skill. For a
// workflow without a description, it is the word workflow.
func (t *Task) Summary() string {
	described := cmp.Or(strings.TrimSpace(t.Description), strings.TrimSpace(t.Labels["description"]))
	switch {
	case described != "": // the bridge keeps the description of a task with a program in a label
		return described
	case t.Code != "":
		return firstStatement(t.Code)
	case t.Skill != "":
		return "skill " + t.Skill
	case len(t.Workflow) > 0:
		return "workflow"
	}
	return ""
}

// Summary says what the record's task does. A record that an earlier version of codefleet wrote has no description if
// the task has a program.
func (r *Record) Summary() string {
	labels := map[string]string(nil)
	if r.Result != nil {
		labels = r.Result.Labels
	}
	return (&Task{Description: r.Description, Code: r.Code, Labels: labels}).Summary()
}

// firstStatement returns the line of a Python program that says what it does: the first line of its docstring, or else
// the first line that is not a comment or an import. If there is no such line, it returns the first comment or import.
func firstStatement(code string) string {
	fallback := ""
	quote := "" // what ends the docstring, while its first line of text has not been found
	// Whether an import goes on in the next line, and whether it has an open parenthesis.
	importing, open := false, false
	for line := range strings.Lines(code) {
		line = strings.TrimSpace(line)
		if quote == "" {
			line, quote = cutQuote(line)
		}
		if quote != "" {
			text, _, closed := strings.Cut(line, quote)
			if text = strings.TrimSpace(text); text != "" {
				return text
			}
			if closed {
				quote = ""
			}
			continue
		}
		switch word, _, _ := strings.Cut(line, " "); {
		case importing, word == "import", word == "from":
			fallback = cmp.Or(fallback, line)
			statement, _, _ := strings.Cut(line, "#")
			open = (open || strings.Contains(statement, "(")) && !strings.Contains(statement, ")")
			importing = open || strings.HasSuffix(line, `\`)
		case line == "":
		case strings.HasPrefix(line, "#"):
			fallback = cmp.Or(fallback, strings.TrimSpace(strings.TrimLeft(line, "#!")))
		default:
			return line
		}
	}
	return fallback
}

// cutQuote removes the quotes with which a docstring begins, and returns them.
func cutQuote(line string) (rest, quote string) {
	for _, quote := range []string{`"""`, "'''"} {
		if rest, ok := strings.CutPrefix(line, quote); ok {
			return rest, quote
		}
	}
	return line, ""
}
