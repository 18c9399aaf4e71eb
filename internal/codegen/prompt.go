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

// Message is one turn of a conversation with a model.
type Message struct {
	Role string // system, user or assistant
	Text string
}

// Failure describes a failed program to the model that repairs it.
type Failure struct {
	Program string
	Error   string   // the error code, the message and the cause, such as the traceback
	Done    []string // the calls that changed something, with their arguments and results
}

// Limits of the texts in a prompt, in characters.
const (
	maxPromptTask  = 40_000
	maxDoc         = 1_200
	maxLine        = 300
	maxSignature   = 1_000
	maxDone        = 1_200 // a call and its result
	maxInputs      = 2_000
	maxPromptError = 6_000
	maxProgram     = 60_000
)

// maxPromptLines is the maximum number of files, or of calls, that a prompt lists.
const maxPromptLines = 200

// fullDocs is the number of tools whose whole docstring is in the prompt. For the others, the prompt has the first
// sentence.
const fullDocs = 3

type promptTool struct{ Module, Function, Signature, Doc string }

// Messages renders the conversation that asks for a program.
func Messages(r Request) ([]Message, error) {
	data := struct {
		Task, Inputs string
		Tools        []promptTool
		Skills       []Skill
		Files        []string
	}{taskText(r.Task), untrusted(r.Inputs, maxInputs, false), nil, nil, lines(r.Files, maxLine)}
	for _, k := range r.Skills {
		data.Skills = append(data.Skills, Skill{
			Module: untrusted(k.Module, maxLine, false), Signature: untrusted(k.Signature, maxSignature, false),
			Description: untrusted(k.Description, maxDoc, false),
		})
	}
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

// lines escapes each text as one line of at most limit characters. In place of the texts after the first
// maxPromptLines, it returns their number.
func lines(texts []string, limit int) []string {
	var out []string
	for _, t := range texts[:min(len(texts), maxPromptLines)] {
		out = append(out, untrusted(t, limit, false))
	}
	if more := len(texts) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("… and %d more", more))
	}
	return out
}

// elements replaces what opens or closes an element of a prompt or a code block.
var elements = strings.NewReplacer("</", "‹/", "<tools", "‹tools", "<task", "‹task", "<notes", "‹notes",
	"<files", "‹files", "<skills", "‹skills", "<error", "‹error", "<program", "‹program",
	"```", "'''", "~~~", "---")

// untrusted escapes untrusted text for a prompt, so that it cannot close its element, open a code block, or contain
// invisible characters.
func untrusted(s string, limit int, multiline bool) string {
	return elements.Replace(clean(s, limit, multiline))
}

// docstring escapes an untrusted text for a docstring in a prompt.
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

// clean drops invalid, control and invisible characters (bidirectional marks, zero-width characters, tags) and
// truncates the text to limit characters. If multiline is false, it returns one line.
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

// taskText returns the task with its element's tags escaped, so that pasted text cannot close the element.
func taskText(s string) string {
	return strings.NewReplacer("</task", "‹/task", "<task", "‹task").Replace(clean(s, maxPromptTask, true))
}
