package schemas

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Skill describes a saved program or instruction, in the public Agent Skills format.
type Skill struct {
	Name        string    `json:"name"`   // such as double-number
	Module      string    `json:"module"` // skills.double_number
	Description string    `json:"description"`
	Runnable    bool      `json:"runnable"`            // it has a program, for tasks and for programs that import run
	Import      string    `json:"import,omitempty"`    // from skills.double_number import run
	Signature   string    `json:"signature,omitempty"` // run(x: float) -> float
	Scope       string    `json:"scope"`               // tenant, or fleet for a skill that all tenants share
	Version     int       `json:"version,omitempty"`   // 0 for a skill of the fleet
	Bytes       int       `json:"bytes"`
	Files       int       `json:"files"`
	SavedAt     time.Time `json:"saved_at,omitzero"`
	SavedBy     string    `json:"saved_by,omitempty"`  // the name of the token
	FromTask    string    `json:"from_task,omitempty"` // the task whose program it is
}

// SkillContent is a skill with its files.
type SkillContent struct {
	Skill
	License       string            `json:"license,omitempty"`
	Compatibility string            `json:"compatibility,omitempty"`
	AllowedTools  string            `json:"allowed_tools,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	Instructions  string            `json:"instructions"`   // SKILL.md without its frontmatter
	Code          string            `json:"code,omitempty"` // the program
	Content       []File            `json:"content"`        // every file, SKILL.md included
}

// SkillDraft is a skill to save: from Code, from the program of a task, or from the files of a directory in the Agent
// Skills format.
type SkillDraft struct {
	Code    string `json:"code,omitempty"`
	Task    string `json:"task,omitempty"`    // id of a task that succeeded: its program and its inputs
	Content []File `json:"content,omitempty"` // the files of the directory, SKILL.md included

	// These are for Code and Task. With Content, SKILL.md has them.
	Description  string            `json:"description,omitempty"`
	Instructions string            `json:"instructions,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`

	// Inputs are the arguments of the smoke run. Without them, run is called only if it needs no argument.
	Inputs json.RawMessage `json:"inputs,omitempty"`
	// Workspace is what the smoke run finds at /workspace. The smoke run does not change it. The default is main.
	Workspace string `json:"workspace,omitempty"`
	Pool      string `json:"pool,omitempty"` // task pool of the smoke run
	// Base is the version that this one replaces. 0 means that the skill is new: its name must be free.
	Base int `json:"base,omitempty"`
}

// SavedSkill is a skill that was saved, with its smoke run.
type SavedSkill struct {
	Skill
	Smoke *SmokeRun `json:"smoke,omitempty"` // absent for a skill without a program
}

// SmokeRun says how the program of a skill ran before it was saved.
type SmokeRun struct {
	Task     string          `json:"task"`             // the id of its task
	Called   bool            `json:"called"`           // run was called; otherwise the program was only imported
	Result   json.RawMessage `json:"result,omitempty"` // what run returned
	Findings []Finding       `json:"findings,omitempty"`
}

// SkillVersion is a kept version of a skill.
type SkillVersion struct {
	Version     int       `json:"version"`
	Description string    `json:"description"`
	Bytes       int       `json:"bytes"`
	Files       int       `json:"files"`
	SHA256      string    `json:"sha256"`
	SavedAt     time.Time `json:"saved_at"`
	SavedBy     string    `json:"saved_by,omitempty"`
	FromTask    string    `json:"from_task,omitempty"`
}

// FilesOf returns files sorted by name, as text if they are UTF-8 without NUL, and else in base64.
func FilesOf(files map[string][]byte) []File {
	out := make([]File, 0, len(files))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		data := string(files[name])
		if utf8.ValidString(data) && !strings.Contains(data, "\x00") {
			out = append(out, File{Name: name, Text: &data})
			continue
		}
		encoded := base64.StdEncoding.EncodeToString(files[name])
		out = append(out, File{Name: name, Base64: &encoded})
	}
	return out
}
