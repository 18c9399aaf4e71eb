package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/form"
)

func (a *app) formCommand() *cobra.Command {
	return commandGroup(&cobra.Command{Use: "form", Short: "Fill in forms from documents, and check values"},
		a.formFillCommand(), a.formCheckCommand())
}

func (a *app) formCheckCommand() *cobra.Command {
	var values string
	c := &cobra.Command{
		Use:   "check FORM",
		Short: "Check a form, and values for it",
		Long: "Without --values, list the fields of a form. With --values, list what is wrong with the\n" +
			"values, each with its field; if something is wrong, the exit code is 1. A form is a flat\n" +
			"JSON Schema: see docs/forms.md.",
		Example: "  codefleet form check claim.json\n  codefleet form check claim.json --values answers.json",
		Args:    cobra.ExactArgs(1),
		RunE: a.do(func(_ context.Context, args []string) error {
			f, err := a.readForm(args[0])
			if err != nil {
				return err
			}
			if values == "" {
				return a.listFields(f)
			}
			text, err := readText(values, values, a.stdin)
			if err != nil {
				return err
			}
			var given form.Values
			if err := json.Unmarshal([]byte(text), &given); err != nil {
				return usage("%s: %v", values, err)
			}
			problems := f.Check(given)
			if err := a.listProblems(problems); err != nil || len(problems) == 0 {
				return err
			}
			return &failure{code: errcode.ExitFailed, message: fmt.Sprintf("%s: problems: %d", values, len(problems))}
		}),
	}
	c.Flags().StringVar(&values, "values", "", "`FILE` with a JSON object of values, or - for standard input")
	return c
}

func (a *app) readForm(path string) (form.Form, error) {
	source, err := readText(path, path, a.stdin)
	if err != nil {
		return form.Form{}, err
	}
	f, err := form.Parse([]byte(source))
	if err != nil {
		return form.Form{}, usage("%s: %v", path, err)
	}
	return f, nil
}

// fieldLine describes a field for `form check`.
type fieldLine struct {
	Name     string   `json:"name"`
	Title    string   `json:"title,omitempty"`
	Type     string   `json:"type"`
	Format   string   `json:"format,omitempty"`
	Required bool     `json:"required,omitempty"`
	Choices  []string `json:"choices,omitempty"`
}

func (a *app) listFields(f form.Form) error {
	var lines []fieldLine
	for _, field := range f.Fields {
		l := fieldLine{
			Name: field.Name, Title: field.Title, Type: string(field.Type), Format: field.Format,
			Required: field.Required,
		}
		for _, c := range field.Choices {
			l.Choices = append(l.Choices, c.Value)
		}
		lines = append(lines, l)
	}
	return list(a, lines, "FIELD\tTYPE\tREQUIRED\tTITLE\tCHOICES", func(l fieldLine) []any {
		kind := l.Type
		if l.Format != "" {
			kind = l.Format
		}
		return []any{l.Name, kind, yesNo(l.Required), l.Title, strings.Join(l.Choices, ", ")}
	})
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (a *app) listProblems(problems []form.Problem) error {
	return listOr(a, problems, "the values are valid", "FIELD\tPROBLEM", func(p form.Problem) []any {
		return []any{p.Field, p.Message}
	})
}

// formFill holds the flags of `form fill`.
type formFill struct {
	from, by string
	set      []string
	noAsk    bool
}

func (a *app) formFillCommand() *cobra.Command {
	var o formFill
	c := &cobra.Command{
		Use:   "fill FORM",
		Short: "Fill in a form from a document or a task",
		Long: "Find the values of a form's fields in a text: by rules (labels such as \"Name: …\", dates,\n" +
			"e-mail addresses, numbers and choices), and then by the model of the settings llm, if it is\n" +
			"enabled. Each value is shown with the line from which it comes. On a terminal, the command\n" +
			"asks for what is missing or wrong. The exit code is 1 if something remains. Rules send\n" +
			"nothing anywhere; a model gets privacy tokens for personal data if privacy.mode is set.",
		Example: "  codefleet form fill claim.json --from letter.txt\n" +
			"  codefleet form fill claim.json --from a2wntt52fwmbq3ezlg6zelfsfu --by rules --no-ask -o json",
		Args: cobra.ExactArgs(1),
		RunE: a.do(func(ctx context.Context, args []string) error {
			if !slices.Contains([]string{"", form.ByRules, form.ByModel}, o.by) {
				return usage("--by %s: want %s or %s", o.by, form.ByRules, form.ByModel)
			}
			f, err := a.readForm(args[0])
			if err != nil {
				return err
			}
			filled, err := a.fillForm(ctx, f, o)
			if err != nil {
				return err
			}
			if !o.noAsk && isTerminal(a.stdin) && isTerminal(a.stderr) {
				askMissing(bufio.NewReader(inputReader{a.stdin}), a.stderr, f, &filled)
			}
			if err := a.print(filled, func(w io.Writer) { showFilled(w, f, filled) }); err != nil {
				return err
			}
			if n := len(filled.Problems); n > 0 {
				return (&failure{code: errcode.ExitFailed, message: fmt.Sprintf("%s: problems: %d", args[0], n)}).
					try("set a value with --set FIELD=VALUE, or run it on a terminal to be asked")
			}
			return nil
		}),
	}
	c.Flags().StringVar(&o.from, "from", "",
		"`FILE`, - for standard input, or the id of a task, whose output and result are read")
	c.Flags().StringVar(&o.by, "by", "", "find values only by rules, or only by the model")
	c.Flags().StringArrayVar(&o.set, "set", nil, "`FIELD=VALUE`, instead of a value that is found")
	c.Flags().BoolVar(&o.noAsk, "no-ask", false, "do not ask for what is missing")
	completeFlag(c, "by", form.ByRules, form.ByModel)
	return c
}

func (a *app) fillForm(ctx context.Context, f form.Form, o formFill) (form.Filled, error) {
	document, err := a.formDocument(ctx, o.from)
	if err != nil {
		return form.Filled{}, err
	}
	m := form.Method{NoRules: o.by == form.ByModel}
	if o.by != form.ByRules {
		settings, err := a.load()
		if err != nil {
			return form.Filled{}, err
		}
		if m.Model, err = assembly.FormModel(settings); err != nil {
			return form.Filled{}, err
		}
		if m.Model == nil && o.by == form.ByModel {
			return form.Filled{}, usage("--by model: no model is enabled").
				try("set llm.enabled: true, or use --by rules")
		}
	}
	filled, err := form.Fill(ctx, f, document, m)
	if err != nil && ctx.Err() != nil {
		return form.Filled{}, context.Cause(ctx)
	}
	if err != nil {
		return form.Filled{}, usage("--from %s: %v", o.from, err)
	}
	given := map[string]bool{}
	for _, s := range o.set {
		name, text, ok := strings.Cut(s, "=")
		field, known := f.Field(name)
		if !ok || !known || given[name] {
			return form.Filled{}, usage("--set %s: want FIELD=VALUE with a field of the form, once for each field", s)
		}
		given[name] = true
		v, ok := field.Read(text)
		if !ok {
			return form.Filled{}, usage("--set %s: the text is not a value of the field, or is ambiguous", name)
		}
		filled.Put(f, name, v)
	}
	return filled, nil
}

// formDocument returns the text of a file or of standard input, or the output and the result of a task.
func (a *app) formDocument(ctx context.Context, from string) (string, error) {
	if from == "" {
		return "", nil
	}
	if _, err := os.Stat(from); !errors.Is(err, fs.ErrNotExist) || !isTaskID(from) {
		return readText(from, from, a.stdin)
	}
	c, err := a.connect(ctx, retryTime)
	if err != nil {
		return "", err
	}
	defer c.Close()
	r, err := c.Result(ctx, from)
	if err != nil {
		return "", markCall(err)
	}
	document := r.Output
	var text string
	switch {
	case json.Unmarshal(r.Result, &text) == nil:
		document += "\n" + text
	case len(r.Result) > 0:
		document += "\n" + string(indented(r.Result))
	}
	return document, nil
}

// isTaskID reports whether a name has the form of a task id.
func isTaskID(s string) bool {
	return len(s) == 26 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// maxAsked is how often a person is asked for one field.
const maxAsked = 3

// askMissing asks a person for missing and wrong values, until the form has no problems, each field with a problem has
// been asked for maxAsked times, or the input ends. An empty line skips a field.
func askMissing(in *bufio.Reader, out io.Writer, f form.Form, filled *form.Filled) {
	asked := map[string]int{}
	for {
		i := slices.IndexFunc(filled.Problems, func(p form.Problem) bool {
			return p.Field != "" && asked[p.Field] < maxAsked
		})
		if i < 0 {
			return
		}
		p := filled.Problems[i]
		asked[p.Field]++
		field, known := f.Field(p.Field)
		if !known {
			continue
		}
		fmt.Fprintf(out, "%s\n%s%s: ", printable(p.Message), printable(field.Label()), choicesText(field))
		answer, err := in.ReadString('\n')
		if v, ok := field.Read(answer); ok {
			filled.Put(f, p.Field, v)
		} else if strings.TrimSpace(answer) == "" {
			asked[p.Field] = maxAsked
		}
		if err != nil {
			return
		}
	}
}

// choicesText lists the choices of a field in parentheses.
func choicesText(field form.Field) string {
	if len(field.Choices) == 0 {
		return ""
	}
	values := mapSlice(field.Choices, func(c form.Choice) string { return c.Value })
	return " (" + printable(strings.Join(values, ", ")) + ")"
}

func showFilled(w io.Writer, f form.Form, filled form.Filled) {
	fmt.Fprintln(w, "FIELD\tVALUE\tFROM")
	for _, field := range f.Fields {
		v, ok := filled.Values[field.Name]
		if !ok {
			continue
		}
		row(w, field.Name, valueText(v), sourceText(filled.Sources[field.Name]))
	}
	for _, p := range filled.Problems {
		row(w, p.Field, "-", p.Message)
	}
	printLines(w, "warning:", filled.Warnings)
}

func valueText(v any) string {
	if list, ok := v.([]any); ok {
		return strings.Join(mapSlice(list, func(v any) string { return fmt.Sprint(v) }), ", ")
	}
	return fmt.Sprint(v)
}

func sourceText(s form.Source) string {
	if s.Line == 0 {
		return s.By
	}
	return fmt.Sprintf("%s, line %d: %s", s.By, s.Line, s.Quote)
}
