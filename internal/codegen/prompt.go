package codegen

import (
	"embed"
	"fmt"
	"strings"
	"text/template"
	"unicode"
)

//go:embed prompts/*.tmpl
var promptFiles embed.FS

var prompts = template.Must(template.ParseFS(promptFiles, "prompts/*.tmpl"))

// Message is one message to a model.
type Message struct {
	Role string // system, user or assistant
	Text string
}

// Failure is what a repair prompt tells about the program that failed.
type Failure struct {
	Program string
	Error   string   // code, message, line
	Done    []string // mutating calls that were made, with their results
}

// Bounds of what others' text may take in a prompt, in characters.
const (
	maxPromptTask  = 40_000
	maxDoc         = 1_200
	maxLine        = 300
	maxSignature   = 1_000
	maxDone        = 1_200 // a call that changed something, and its answer
	maxInputs      = 2_000
	maxPromptFiles = 200 // lines
	maxPromptError = 6_000
	maxProgram     = 60_000
)

// fullDocs is how many tools, the likeliest, show their whole docstring; the others the first sentence.
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
			untrusted(t.module(), maxLine, false), untrusted(t.function(), maxLine, false),
			untrusted(t.signature(), maxSignature, false), docstring(doc),
		})
	}
	for _, s := range r.Skills {
		data.Skills = append(data.Skills, promptSkill{
			untrusted(s.Name, maxLine, false), orElse(untrusted(s.Entry, maxLine, false), "run"),
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

// untrusted makes others' text harmless in a prompt: it cannot close its element, open a code block, or hide text.
func untrusted(s string, limit int, multiline bool) string {
	return strings.NewReplacer("</", "‹/", "<tools", "‹tools", "<task", "‹task", "<skills", "‹skills", "<notes", "‹notes", "<files", "‹files",
		"<error", "‹error", "<program", "‹program", "```", "'''", "~~~", "---").Replace(clean(s, limit, multiline))
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

// clean drops invalid, control and invisible characters (bidirectional marks, zero widths, tags) and cuts to limit
// characters; without multiline it becomes one line.
func clean(s string, limit int, multiline bool) string {
	var b strings.Builder
	n := 0
	for _, r := range strings.ToValidUTF8(s, "") {
		switch {
		case r == '\n' && multiline, r == '\t' && multiline:
		case r == '\n' || r == '\t' || r == '\r':
			r = ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Co, r), r >= 0xFE00 && r <= 0xFE0F, r >= 0xE0000 && r <= 0xE0FFF:
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

// taskText is the task as it was written, but for its own element's marks: pasted text cannot end it.
func taskText(s string) string {
	return strings.NewReplacer("</task", "‹/task", "<task", "‹task").Replace(clean(s, maxPromptTask, true))
}
