package toolsearch

import (
	"context"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/selection"
	"github.com/codefleet/codefleet/internal/tools"
)

// skillsServer is the server under which searches list skills.
const skillsServer = "skills"

// maxSkills is how many skills a model is told about.
const maxSkills = 20

// skillAsTool returns a skill as a tool of skillsServer, so that a search for tools finds it.
func skillAsTool(k tools.Skill) selection.Tool {
	out := selection.Tool{Server: skillsServer, Name: k.Name, Description: k.Description, Signature: k.Signature}
	if k.Runnable {
		out.Import = k.Import()
	}
	return out
}

// isSkill reports whether a search result is a skill. A server may be named skills, too, so isSkill also compares the
// description.
func (x *Index) isSkill(t *selection.Tool) bool {
	k, ok := x.skills[t.Name]
	return ok && t.Server == skillsServer && t.Description == k.Description
}

// PickSkills returns the skills with a program, for a prompt. If there are more than maxSkills, it returns those that
// fit the description best.
func (x *Index) PickSkills(ctx context.Context, description string) (out []codegen.Skill) {
	runnable := slices.DeleteFunc(slices.Clone(x.Listing.Skills), func(k tools.Skill) bool { return !k.Runnable })
	if len(runnable) > maxSkills {
		runnable = x.findSkills(ctx, description)
	}
	for _, k := range runnable {
		out = append(out, codegen.Skill{
			Module: k.Module, Signature: strings.TrimSuffix(k.Signature, ":"), Description: k.Description,
		})
	}
	return out
}

// findSkills returns the skills with a program that fit the description best, or none if the search fails.
func (x *Index) findSkills(ctx context.Context, description string) (out []tools.Skill) {
	found, err := x.Select(ctx, selection.Request{
		Queries: []string{description}, Detail: selection.DetailName, Limit: maxSkills,
		Allow: func(t *selection.Tool) bool { return x.isSkill(t) && x.skills[t.Name].Runnable },
	})
	if err != nil {
		return nil
	}
	for _, g := range found.Servers {
		for _, h := range g.Tools {
			out = append(out, x.skills[h.Tool])
		}
	}
	return out
}
