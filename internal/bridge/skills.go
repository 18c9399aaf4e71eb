package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/text"
)

// This file has the tools about skills, and offers skills as prompts, which clients present to people as commands.

type saveSkillIn struct {
	Name        string          `json:"name" jsonschema:"lower-case letters, digits and hyphens, such as double-number"`
	Description string          `json:"description,omitempty" jsonschema:"what it does and when to use it"`
	Code        string          `json:"code,omitempty" jsonschema:"Python with a function run"`
	TaskID      string          `json:"task_id,omitempty" jsonschema:"or a task that succeeded: its program is saved"`
	Inputs      json.RawMessage `json:"inputs,omitempty" jsonschema:"arguments for the smoke run, as an object"`
	Tags        string          `json:"tags,omitempty" jsonschema:"words, separated by commas"`
	Base        int             `json:"base,omitempty" jsonschema:"version that this one replaces; without it, the name must be free"`
}

type saveSkillOut struct {
	Success bool             `json:"success"`
	Name    string           `json:"name"`
	Version int              `json:"version"`
	Import  string           `json:"import" jsonschema:"the statement for programs"`
	Smoke   *client.SmokeRun `json:"smoke,omitempty" jsonschema:"how the program ran before it was saved"`
}

type listSkillsIn struct {
	Query string `json:"query,omitempty" jsonschema:"only skills with all these words in name or description"`
}

type skillLine struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Signature   string `json:"signature,omitempty" jsonschema:"how a program calls it; absent for instructions without a program"`
	Import      string `json:"import,omitempty"`
	Version     int    `json:"version,omitempty"`
}

type listSkillsOut struct {
	Skills []skillLine `json:"skills"`
	Count  int         `json:"count"`
	More   int         `json:"more,omitempty" jsonschema:"further skills, which do not fit: pass a query"`
}

type getSkillIn struct {
	Name    string `json:"name"`
	Version int    `json:"version,omitempty" jsonschema:"default the newest"`
}

type getSkillOut struct {
	Name         string   `json:"name"`
	Description  string   `json:"description"`
	Version      int      `json:"version,omitempty" jsonschema:"pass it to save_skill as base"`
	Import       string   `json:"import,omitempty"`
	Signature    string   `json:"signature,omitempty"`
	Instructions string   `json:"instructions"`
	Code         string   `json:"code,omitempty"`
	Files        []string `json:"files"`
	Truncated    bool     `json:"truncated,omitempty" jsonschema:"instructions or code are incomplete"`
}

type deleteSkillIn struct {
	Name string `json:"name"`
}

type deleteSkillOut struct {
	Success bool   `json:"success"`
	Name    string `json:"name"`
}

func (ts *toolSet) addSkills() {
	addTool(ts, tool{
		name: "list_skills", title: "List skills", scope: scopeRead, hints: readsOnly, out: schemaOf[listSkillsOut](),
		text: "Saved programs and instructions. A program imports one (`from skills.double_number import run`), and " +
			"execute_task(skill=…, inputs=…) runs one.",
	}, func(ctx context.Context, c *call, in listSkillsIn) (*result, error) {
		return c.listSkills(ctx, in.Query)
	})
	addTool(ts, tool{
		name: "get_skill", title: "Read a skill", scope: scopeRead, hints: readsOnly, out: schemaOf[getSkillOut](),
		text: "The instructions and the program of a skill.",
	}, func(ctx context.Context, c *call, in getSkillIn) (*result, error) { return c.getSkill(ctx, in) })
	addTool(ts, tool{
		name: "save_skill", title: "Save a skill", scope: scopeSubmit, out: schemaOf[saveSkillOut](),
		hints: mcp.ToolAnnotations{IdempotentHint: true, DestructiveHint: new(true), OpenWorldHint: new(true)},
		text: "Save a program that worked, for later tasks: from code, or from a task that succeeded. It is first " +
			"run in a sandbox (with inputs, or if run needs no argument), and not saved if that fails.",
	}, func(ctx context.Context, c *call, in saveSkillIn) (*result, error) { return c.saveSkill(ctx, in) })
	addTool(ts, tool{
		name: "delete_skill", title: "Remove a skill", scope: scopeSubmit, out: schemaOf[deleteSkillOut](),
		hints: mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(false)},
		text:  "Remove a skill with all its versions.",
	}, func(ctx context.Context, c *call, in deleteSkillIn) (*result, error) {
		name := skillName(in.Name)
		if err := c.fleet.RemoveSkill(ctx, name, 0); err != nil {
			return nil, err
		}
		return &result{out: deleteSkillOut{Success: true, Name: name}}, nil
	})
}

// skillName returns the name of a skill, which may be given as programs import it: double-number for double_number. Any
// other argument is returned as it is, for an error that quotes it.
func skillName(name string) string {
	if !importedSkill.MatchString(name) {
		return name
	}
	return strings.ReplaceAll(name, "_", "-")
}

var importedSkill = regexp.MustCompile(`^[a-z0-9]+([_-][a-z0-9]+)*$`)

func (c *call) listSkills(ctx context.Context, query string) (*result, error) {
	all, err := c.fleet.Skills(ctx)
	if err != nil {
		return nil, err
	}
	out := listSkillsOut{Skills: []skillLine{}}
	size := len(`{"skills":[],"count":1000,"more":1000}`)
	for _, k := range all {
		if !hasWords(k.Name+" "+k.Description, query) {
			continue
		}
		line := skillLine{k.Name, k.Description, k.Signature, k.Import, k.Version}
		out.Count++
		if size += jsonSize(line) + 1; size > c.b.o.MaxOutput {
			out.More++
			continue
		}
		out.Skills = append(out.Skills, line)
	}
	return &result{out: out}, nil
}

func hasWords(s, query string) bool {
	s = strings.ToLower(s)
	for word := range strings.FieldsSeq(strings.ToLower(query)) {
		if !strings.Contains(s, word) {
			return false
		}
	}
	return true
}

// maxSkillFiles is how many file names of a skill a result has.
const maxSkillFiles = 50

func (c *call) getSkill(ctx context.Context, in getSkillIn) (*result, error) {
	k, err := c.fleet.Skill(ctx, skillName(in.Name), in.Version)
	if err != nil {
		return nil, err
	}
	out := getSkillOut{
		Name: k.Name, Description: k.Description, Version: k.Version, Import: k.Import, Signature: k.Signature,
		Files: []string{},
	}
	for _, f := range k.Content[:min(len(k.Content), maxSkillFiles)] {
		out.Files = append(out.Files, f.Name)
	}
	k.Instructions, k.Code = c.hidden(ctx, k.Instructions), c.hidden(ctx, k.Code)
	budget := (c.b.o.MaxOutput - jsonSize(out)) / 2
	out.Instructions = textPrefix(k.Instructions, budget)
	out.Code = textPrefix(k.Code, budget)
	out.Truncated = out.Instructions != k.Instructions || out.Code != k.Code
	return &result{out: out}, nil
}

func (c *call) saveSkill(ctx context.Context, in saveSkillIn) (*result, error) {
	d := client.SkillDraft{
		Code: in.Code, Task: in.TaskID, Description: in.Description, Inputs: in.Inputs, Base: in.Base,
	}
	if in.Tags != "" {
		d.Metadata = map[string]string{"tags": in.Tags}
	}
	saved, err := c.fleet.SaveSkill(ctx, skillName(in.Name), d)
	if err != nil {
		return nil, err
	}
	if s := saved.Smoke; s != nil && len(s.Result) > c.b.o.MaxOutput/2 {
		s.Result = nil
	}
	return &result{out: saveSkillOut{true, saved.Name, saved.Version, saved.Import, saved.Smoke}}, nil
}

// inputsArgument is the argument of the prompts of skills with a program.
const inputsArgument = "inputs"

// skillPrompts adds the skills to the prompts of a server.
func (p *principal) skillPrompts(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		switch r := req.(type) {
		case *mcp.ListPromptsRequest:
			list, ok := res.(*mcp.ListPromptsResult)
			if err != nil || !ok || r.Params != nil && r.Params.Cursor != "" {
				return res, err
			}
			all, err := p.fleet.Skills(ctx)
			if err != nil {
				return res, nil //nolint:nilerr // the list is a convenience; a call of a tool reports the error
			}
			for _, k := range all {
				k.Description, k.Signature = p.hidden(ctx, k.Description), p.hidden(ctx, k.Signature)
				list.Prompts = append(list.Prompts, promptOf(k))
			}
			return list, nil
		case *mcp.GetPromptRequest:
			if err == nil { // a prompt of the server itself
				return res, nil
			}
			k, skillErr := p.fleet.Skill(ctx, skillName(r.Params.Name), 0)
			if skillErr != nil {
				return res, err
			}
			k.Instructions = p.hidden(ctx, k.Instructions)
			return promptText(k, r.Params.Arguments[inputsArgument], p.b.o.MaxOutput), nil
		}
		return res, err
	}
}

func promptOf(k client.Skill) *mcp.Prompt {
	out := &mcp.Prompt{Name: k.Name, Description: text.Truncate(k.Description, maxExposedText)}
	if k.Runnable {
		out.Arguments = []*mcp.PromptArgument{{
			Name: inputsArgument, Description: "what to pass to " + text.Truncate(k.Signature, maxSummary),
		}}
	}
	return out
}

// promptText returns the message that a prompt stands for.
func promptText(k client.SkillContent, inputs string, limit int) *mcp.GetPromptResult {
	var b strings.Builder
	fmt.Fprintf(&b, "Use the skill %s: %s\n\n%s\n", k.Name, k.Description, textPrefix(k.Instructions, limit/2))
	if k.Runnable {
		fmt.Fprintf(&b, "\nRun it with execute_task(skill=%q, inputs={…}), or import it in a program: %s  # %s\n",
			k.Name, k.Import, k.Signature)
	}
	if inputs != "" {
		fmt.Fprintf(&b, "\nInputs: %s\n", inputs)
	}
	return &mcp.GetPromptResult{
		Description: k.Description,
		Messages:    []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: b.String()}}},
	}
}
