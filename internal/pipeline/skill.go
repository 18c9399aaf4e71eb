package pipeline

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/skills"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/schemas"
)

// skillProgram returns the program of a task that names a skill: it calls the skill's function with the inputs.
func (s toolset) skillProgram(name string, inputs json.RawMessage) (string, error) {
	var all []tools.Skill
	if s.index != nil {
		all = s.index.Listing.Skills
	}
	i := slices.IndexFunc(all, func(k tools.Skill) bool { return k.Name == name })
	if i >= 0 && all[i].Runnable {
		return skills.Call(name, inputs), nil
	}
	if i >= 0 {
		return "", &schemas.Error{
			Code: errcode.UnknownSkill, Message: fmt.Sprintf("the skill %s has instructions, but no program", name),
			Hint: "a program is the file " + skills.Program + " of the skill",
		}
	}
	names := make([]string, len(all))
	for i, k := range all {
		names[i] = k.Name
	}
	message := "there is no skill named " + name
	if near := text.Nearest(name, names, max(2, len(name)/3)); near != "" {
		message += "; did you mean " + near + "?"
	}
	return "", &schemas.Error{
		Code: errcode.UnknownSkill, Message: message, Hint: "GET /v1/skills lists the skills",
	}
}
