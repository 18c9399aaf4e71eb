package pipeline

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/executor"
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
	top, _, _ := strings.Cut(m[1], ".")
	if e.Hint = ours[top]; e.Hint == "" {
		e.Hint = missingModule(top, t.environment, t.result.Sandbox.Environment, p.Pool.Environments())
	}
}

// ours are the packages that no pool adds.
var ours = map[string]string{
	"skills":  "the workspace has no such skill: save it as skills/NAME.py, with a function run or NAME",
	"servers": "there is no such tool: `codefleet tools` lists them; one of your own is a file servers/SERVER/TOOL.py",
}

// missingModule says what the environment of that name has, which other pool of the worker has the
// module, and what to type to add it.
func missingModule(module, name, what string, all []executor.EnvironmentStats) string {
	const most = 30
	have, image := "Python's own modules", strings.HasPrefix(what, "image ")
	if image {
		have = "what the image has"
	}
	var elsewhere []string
	for _, e := range all {
		if e.Name != name {
			if i := slices.IndexFunc(e.Modules, func(m string) bool { return provides(m, module) }); i >= 0 {
				elsewhere = append(elsewhere, fmt.Sprintf("the pool %s, which has %s (--pool %s)", e.Name, e.Modules[i], e.Name))
			}
			continue
		}
		if n := len(e.Modules); n > 0 {
			more := ""
			if n > most {
				more = fmt.Sprintf(" and %d more", n-most)
			}
			have = fmt.Sprintf("%s and %s%s", have, strings.Join(e.Modules[:min(n, most)], ", "), more)
		}
	}
	hint := fmt.Sprintf("sandboxes of the pool %s (%s) have %s", name, what, have)
	if len(elsewhere) > 0 {
		hint += "; send the task to " + strings.Join(elsewhere, ", or ")
	}
	if image {
		return hint + fmt.Sprintf("; an operator adds it to the image: pip install %s, when it is built", module)
	}
	return hint + fmt.Sprintf("; an operator adds it with `echo %s >> FILE`, for the FILE of pools.%s.requirements or execution.requirements, and starts the worker again", module, name)
}

// provides tells whether a distribution, "name version", is called like a module.
func provides(distribution, module string) bool {
	name, _, _ := strings.Cut(distribution, " ")
	plain := strings.NewReplacer("-", "_", ".", "_")
	return strings.EqualFold(plain.Replace(name), plain.Replace(module))
}
