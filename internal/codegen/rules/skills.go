package rules

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/codegen"
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
		does := strings.Split(strings.ToLower(p.skill), "_") // "use double_number to triple 5": another skill
		if does = append(does, "", "number", "numbers"); !slices.Contains(does, strings.ToLower(m[2])) {
			return false
		}
		return p.callSkill(regexp.MustCompile(`-?\d+(?:\.\d+)?`).FindAllString(m[3], -1))
	}},
}

// importSkill imports a skill's entry under the name of the skill, which must be known if any skills are.
func (p *planner) importSkill(name string) bool {
	if p.skill == name {
		return true
	}
	entry := ""
	if p.request.Skills != nil {
		i := slices.IndexFunc(p.request.Skills, func(s codegen.Skill) bool { return s.Name == name })
		if i < 0 {
			return false
		}
		entry = cmp.Or(p.request.Skills[i].Entry, "run")
	} else if !strings.Contains(name, "_") {
		return false // "import pandas": perhaps no skill
	}
	p.skill = name
	if entry != "" {
		p.emit("from skills.%s import %s as %s", name, entry, name)
		return true
	}
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
