package rules

import (
	"regexp"
	"slices"
	"strings"
)

var skillForms = []form{
	{
		"skill", re(`(?:import|load|take) (?:the |my |saved )*(?:skill )?([A-Za-z_]\w*)(?: skill)?`),
		func(p *planner, m []string, _ clause) bool {
			return p.importSkill(m[1])
		},
	},
	{"use skill", re(`(?:use|call|run|apply) (?:the )?(?:skill )?([A-Za-z_]\w*)(?: skill)? (?:to|on|with|for)` +
		` (?:([a-z]+) )?(-?[\d.]+(?:(?:, | and )-?[\d.]+)*)`), func(p *planner, m []string, _ clause) bool {
		if name := strings.ToLower(m[1]); name != "it" && name != "that" && !p.importSkill(m[1]) {
			return false
		}
		verbs := strings.Split(strings.ToLower(p.skill), "_")
		if verbs = append(verbs, "", "number", "numbers"); !slices.Contains(verbs, strings.ToLower(m[2])) {
			return false // "use double_number to triple 5" means another skill
		}
		return p.callSkill(regexp.MustCompile(`-?\d+(?:\.\d+)?`).FindAllString(m[3], -1))
	}},
}

// importSkill imports the function "run" of a skill, or the function with the skill's name, under the skill's name.
func (p *planner) importSkill(name string) bool {
	if p.skill == name {
		return true
	}
	if !strings.Contains(name, "_") {
		return false // "import pandas" may mean a package
	}
	p.skill = name
	p.modules["importlib"] = true
	p.emit("module = importlib.import_module(%s)", quote("skills."+name))
	p.emit("%s = getattr(module, \"run\", None) or getattr(module, %s)", name, quote(name))
	return true
}

func (p *planner) callSkill(numbers []string) bool {
	if p.skill == "" || len(numbers) == 0 ||
		slices.ContainsFunc(numbers, func(n string) bool { return !numeral.MatchString(n) }) {
		return false
	}
	variable := p.fresh("value")
	p.emit("%s = %s(%s)", variable, p.skill, strings.Join(numbers, ", "))
	p.emit("print(%s, %s)", quote(p.skill+"("+strings.Join(numbers, ", ")+") ="), variable)
	p.number = variable
	p.output(p.skill, variable)
	return true
}
