package pipeline

import (
	"fmt"
	"regexp"
	"strings"
)

var noModule = regexp.MustCompile(`^ModuleNotFoundError: No module named '([A-Za-z0-9_.-]{1,100})'`)

// hintModules tells a program that lacks a module what there is, and how an operator adds one.
func (p *Pipeline) hintModules(t *task) {
	e := t.result.Error
	if e == nil || e.Hint != "" {
		return
	}
	m := noModule.FindStringSubmatch(e.Message)
	if m == nil {
		return
	}
	if m[1] == "skills" || strings.HasPrefix(m[1], "skills.") {
		e.Hint = "the workspace has no such skill: save it as skills/NAME.py, with a function run or NAME"
		return
	}
	const most = 30
	have := "Python's own modules"
	if n := len(p.Modules); n > 0 {
		have += " and " + strings.Join(p.Modules[:min(n, most)], ", ")
		if n > most {
			have += fmt.Sprintf(" and %d more", n-most)
		}
	}
	top, _, _ := strings.Cut(m[1], ".")
	e.Hint = fmt.Sprintf("sandboxes (%s) have %s; an operator adds packages with a line such as %q in the file that execution.requirements names",
		t.result.Sandbox.Environment, have, top)
}
