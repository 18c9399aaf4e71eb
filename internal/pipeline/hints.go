package pipeline

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// explainFailure returns why a program did not succeed, with a hint if a module or network access is missing.
// It returns nil for a program that succeeded.
func (p *Pipeline) explainFailure(s steps, b box, f *executor.Failure) *schemas.Error {
	if f == nil {
		return nil
	}
	e := &schemas.Error{Code: f.Code, Message: f.Message, Cause: f.Cause, Hint: f.Hint, Line: f.Line}
	if e.Hint == "" {
		e.Hint = p.moduleHint(f.Message, b, s.tools)
	}
	if e.Hint == "" && len(s.network) == 0 {
		e.Hint = networkHint(f.Message)
	}
	return e
}

// noRoute matches Python's messages for a missing network. The egress proxy explains refused hosts itself.
var noRoute = regexp.MustCompile(
	`Temporary failure in name resolution|Name or service not known|Network is unreachable`)

// networkHint explains how a task requests network access. It returns "" if the message is about something else.
func networkHint(message string) string {
	if !noRoute.MatchString(message) {
		return ""
	}
	return "programs have no network unless their task names the hosts in network.allow"
}

var noModule = regexp.MustCompile(`^ModuleNotFoundError: No module named '([A-Za-z0-9_.-]{1,100})'`)

// moduleHint explains which modules, servers or skills the program can import, and how the missing one is added. It
// returns "" if the message is about something else.
func (p *Pipeline) moduleHint(message string, b box, t toolset) string {
	if strings.HasPrefix(message, "ImportError: ") && strings.Contains(message, " from 'skills' (unknown location)") {
		return noSkill // Python found a package skills, because the workspace has a directory of that name
	}
	m := noModule.FindStringSubmatch(message)
	if m == nil {
		return ""
	}
	top, _, _ := strings.Cut(m[1], ".")
	switch top {
	case "skills":
		return noSkill
	case "servers":
		return noServer(m[1], t.packages())
	}
	return missingModule(top, b.Environment(), b.sandbox.Environment, p.Pool.Environments())
}

const noSkill = "there is no such skill: list the skills, or save one of this name"

// noServer explains which servers a program can import. module is what it attempted to import; packages are the
// servers that it may use.
func noServer(module string, packages []string) string {
	if len(packages) == 0 {
		return "the task has no tools"
	}
	const limit = 20
	parts := strings.Split(module, ".")
	name := parts[min(1, len(parts)-1)]
	if slices.Contains(packages, name) {
		return "import a tool from its server: from servers." + name + " import TOOL"
	}
	hint := ""
	if nearest := text.Nearest(name, packages, max(2, len(name)/3)); nearest != "" {
		hint = "did you mean servers." + nearest + "? "
	}
	hint += "the servers are " + strings.Join(packages[:min(limit, len(packages))], ", ")
	if n := len(packages) - limit; n > 0 {
		hint += fmt.Sprintf(" and %d more", n)
	}
	return hint
}

// packages returns the servers whose tools the task may call, as programs import them.
func (t toolset) packages() (names []string) {
	if t.index == nil {
		return nil
	}
	for _, tool := range t.index.Permitted(t.allow) {
		names = append(names, tool.Package())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// missingModule explains which modules the environment has, which other task pools of the worker have the missing
// module, and how to add it. name and description are the environment's.
func missingModule(module, name, description string, all []executor.EnvironmentStats) string {
	const limit = 30
	have, image := "Python's own modules", strings.HasPrefix(description, "image ")
	if image {
		have = "the modules of the image"
	}
	var elsewhere []string
	for _, e := range all {
		if e.Name != name {
			if i := slices.IndexFunc(e.Packages, func(m string) bool { return provides(m, module) }); i >= 0 {
				elsewhere = append(elsewhere,
					fmt.Sprintf("the task pool %s, which has %s (--pool %s)", e.Name, e.Packages[i], e.Name))
			}
			continue
		}
		if n := len(e.Packages); n > 0 {
			more := ""
			if n > limit {
				more = fmt.Sprintf(" and %d more", n-limit)
			}
			have = fmt.Sprintf("%s and %s%s", have, strings.Join(e.Packages[:min(n, limit)], ", "), more)
		}
	}
	hint := fmt.Sprintf("the task pool %s (%s) has %s", name, description, have)
	if len(elsewhere) > 0 {
		hint += "; send the task to " + strings.Join(elsewhere, ", or ")
	}
	if image {
		return hint + fmt.Sprintf("; an operator adds %[1]s to the image with `pip install %[1]s`", module)
	}
	return hint + fmt.Sprintf("; an operator adds %s to the file of pools.%s.requirements or "+
		"execution.requirements, and restarts the worker", module, name)
}

// provides reports whether a distribution ("name version") has the same name as a module.
func provides(distribution, module string) bool {
	name, _, _ := strings.Cut(distribution, " ")
	normalize := strings.NewReplacer("-", "_", ".", "_")
	return strings.EqualFold(normalize.Replace(name), normalize.Replace(module))
}
