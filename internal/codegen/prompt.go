package codegen

import (
	"cmp"
	"embed"
	"fmt"
	"strings"
	"text/template"
	"unicode"
)

//go:embed prompts/*.tmpl
var promptFiles embed.FS

var prompts = template.Must(template.ParseFS(promptFiles, "prompts/*.tmpl"))

// Message is one turn of a conversation with a model.
type Message struct {
	Role string // system, user or assistant
	Text string
}

// Failure describes a failed program to the model that repairs it.
type Failure struct {
	Program string
	Error   string   // code, message, line
	Done    []string // calls that changed something, with their arguments and answers
}

// Limits of texts in a prompt, in characters.
const (
	maxPromptTask  = 40_000
	maxDoc         = 1_200
	maxLine        = 300
	maxSignature   = 1_000
	maxDone        = 1_200 // a call and its answer
	maxInputs      = 2_000
	maxPromptFiles = 200 // lines
	maxPromptError = 6_000
	maxProgram     = 60_000
)

// fullDocs is the number of tools with their whole docstring in the prompt; later ones have its first sentence.
const fullDocs = 3

type promptTool struct{ Module, Function, Signature, Doc string }

type promptSkill struct{ Name, Entry, Signature, Description string }

// Messages renders the conversation that asks for a program.
func Messages(r Request) ([]Message, error) {
	data := struct {
		Task, Inputs string
		Tools        []promptTool
		Skills       []promptSkill
		Files, Notes []string
	}{Task: taskText(r.Task), Inputs: untrusted(r.Inputs, maxInputs, false)}
	for i := range r.Tools {
		t := &r.Tools[i]
		doc := t.Doc
		if i >= fullDocs {
			doc = firstSentence(doc)
		}
		data.Tools = append(data.Tools, promptTool{
			untrusted(t.ModuleName(), maxLine, false), untrusted(t.FunctionName(), maxLine, false),
			untrusted(t.Stub(), maxSignature, false), docstring(doc),
		})
	}
	for _, s := range r.Skills {
		data.Skills = append(data.Skills, promptSkill{
			untrusted(s.Name, maxLine, false), cmp.Or(untrusted(s.Entry, maxLine, false), "run"),
			untrusted(s.Signature, maxLine, false), untrusted(s.Description, maxLine, false),
		})
	}
	data.Files, data.Notes = lines(r.Files, maxLine), lines(r.Checkpoints, maxLine)
	system, err := render("system.tmpl", nil)
	if err != nil {
		return nil, err
	}
	user, err := render("task.tmpl", data)
	return []Message{{"system", system}, {"user", user}}, err
}

// RepairMessages renders the conversation that asks for a corrected program.
func RepairMessages(r Request, f Failure) ([]Message, error) {
	messages, err := Messages(r)
	if err != nil {
		return nil, err
	}
	text, err := render("repair.tmpl", struct {
		Program, Error string
		Done           []string
	}{untrusted(f.Program, maxProgram, true), untrusted(f.Error, maxPromptError, true), lines(f.Done, maxDone)})
	return append(messages, Message{"user", text}), err
}

func render(name string, data any) (string, error) {
	var b strings.Builder
	if err := prompts.ExecuteTemplate(&b, name, data); err != nil {
		return "", fmt.Errorf("render prompt %s: %w", name, err)
	}
	return strings.TrimSpace(b.String()), nil
}

func lines(texts []string, limit int) []string {
	var out []string
	for _, t := range texts[:min(len(texts), maxPromptFiles)] {
		out = append(out, untrusted(t, limit, false))
	}
	if more := len(texts) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("… and %d more", more))
	}
	return out
}

var elements = strings.NewReplacer("</", "‹/", "<tools", "‹tools", "<task", "‹task", "<skills", "‹skills",
	"<notes", "‹notes", "<files", "‹files", "<error", "‹error", "<program", "‹program", "```", "'''", "~~~", "---")

// untrusted escapes text of others for a prompt: it cannot close its element, open a code block, or hide text.
func untrusted(s string, limit int, multiline bool) string {
	return elements.Replace(clean(s, limit, multiline))
}

func docstring(s string) string {
	s = strings.NewReplacer(`\`, `\\`, `"""`, `'''`).Replace(untrusted(s, maxDoc, true))
	return strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n    ")
}

func firstSentence(doc string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(doc), "\n")
	if i := strings.Index(line, ". "); i > 0 {
		line = line[:i+1]
	}
	return strings.TrimSpace(line)
}

// clean drops invalid, control and invisible characters (bidirectional marks, zero widths, tags) and truncates to limit
// characters; without multiline it returns one line.
func clean(s string, limit int, multiline bool) string {
	var b strings.Builder
	n := 0
	for _, r := range strings.ToValidUTF8(s, "") {
		switch {
		case r == '\n' && multiline, r == '\t' && multiline:
		case r == '\n' || r == '\t' || r == '\r':
			r = ' '
		case unicode.IsControl(r), unicode.In(r, unicode.Cf, unicode.Co),
			r >= 0xFE00 && r <= 0xFE0F, r >= 0xE0000 && r <= 0xE0FFF:
			continue
		}
		if n++; n > limit {
			b.WriteString("…")
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// taskText is the task with the tags of its element escaped: pasted text cannot close it.
func taskText(s string) string {
	return strings.NewReplacer("</task", "‹/task", "<task", "‹task").Replace(clean(s, maxPromptTask, true))
}
