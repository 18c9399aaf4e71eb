package form

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/codefleet/codefleet/internal/text"
)

// Model is a language model. It returns its response to a system prompt and a user prompt.
type Model func(ctx context.Context, system, user string) (string, error)

// Private keeps personal data from the model: hide replaces it in a text with privacy tokens, and restore replaces the
// privacy tokens in a JSON value with the data. The model that Private returns responds with only the JSON object of
// m's response.
func (m Model) Private(
	hide func(context.Context, string) string, restore func(json.RawMessage) (json.RawMessage, error),
) Model {
	return func(ctx context.Context, system, user string) (string, error) {
		response, err := m(ctx, system, hide(ctx, user))
		if err != nil {
			return "", err
		}
		object, err := objectIn(response)
		if err != nil {
			return "", err
		}
		restored, err := restore(object)
		return string(restored), err
	}
}

//go:embed prompt.txt
var prompt string

// modelValue is the value of a field in a model's response, with the quote of the document that supports it.
type modelValue struct {
	Value any    `json:"value"`
	Quote string `json:"quote"`
}

// byModel asks a model for the fields without a value. It accepts a value only with a quote that is in the document, so
// that people can see where the value comes from. An invented value has no such quote.
func (f Form) byModel(ctx context.Context, m Model, document string, out *Filled) error {
	var names []string
	for _, field := range f.Fields {
		if _, found := out.Values[field.Name]; !found {
			names = append(names, field.Name)
		}
	}
	user := fmt.Sprintf("<fields>\n%s\n</fields>\n<document>\n%s\n</document>", escapeTags(string(f.schemaOf(names))),
		escapeTags(document))
	response, err := m(ctx, prompt, user)
	if err != nil {
		return err
	}
	object, err := objectIn(response)
	if err != nil {
		return err
	}
	var all map[string]modelValue
	if err := jsonv2.Unmarshal(object, &all, exactNumbers); err != nil {
		return errors.New("the response is not the JSON object that the prompt asks for")
	}
	for _, name := range sortedNames(all) {
		s := all[name]
		if !slices.Contains(names, name) || s.Value == nil {
			continue
		}
		field, _ := f.Field(name)
		at, ok := findQuote(document, s.Quote)
		if !ok {
			out.Warnings = append(out.Warnings, fmt.Sprintf(
				"the model's value for %q is not used: its quote is not in the document", field.Label()))
			continue
		}
		out.accept(f, field, s.Value, at, ByModel)
		if _, accepted := out.Values[name]; !accepted {
			out.Warnings = append(out.Warnings, fmt.Sprintf(
				"the model's value for %q is not used: it breaks the rules of the field", field.Label()))
		}
	}
	return nil
}

// schemaOf returns the schemas of the named fields, with all rules of their own.
func (f Form) schemaOf(names []string) json.RawMessage {
	properties := ordered[property]{byName: map[string]property{}}
	for _, field := range f.Fields {
		if slices.Contains(names, field.Name) {
			properties.names = append(properties.names, field.Name)
			properties.byName[field.Name] = field.schema
		}
	}
	data, err := marshal(properties)
	if err != nil {
		panic("form: encode a parsed form: " + err.Error()) // all values came from JSON
	}
	return data
}

// invisible is a space without a width.
const invisible = "\u200b"

// escapeTags escapes the tags that delimit the parts of the prompt.
func escapeTags(s string) string {
	return strings.NewReplacer("</", "<"+invisible+"/", "<fields", "<"+invisible+"fields", "<document",
		"<"+invisible+"document").Replace(s)
}

// maxResponse is the size limit of a model's response in bytes.
const maxResponse = 256 << 10

// objectIn returns the JSON object of a response, which may be in a Markdown block or among other text.
func objectIn(response string) (json.RawMessage, error) {
	from, to := strings.IndexByte(response, '{'), strings.LastIndexByte(response, '}')
	if from < 0 || to < from || len(response) > maxResponse || !json.Valid([]byte(response[from:to+1])) {
		return nil, errors.New("the response has no JSON object, or is too long")
	}
	return json.RawMessage(response[from : to+1]), nil
}

// findQuote returns the quote, and the number of the line in which it begins in the document. White space may differ,
// and what escapeTags has added.
func findQuote(document, quote string) (line, bool) {
	document, quote = strings.ReplaceAll(document, invisible, ""), strings.ReplaceAll(quote, invisible, "")
	want := strings.Join(strings.Fields(quote), " ")
	if want == "" {
		return line{}, false
	}
	var all strings.Builder
	starts := []int{}
	for l := range strings.Lines(document) {
		starts = append(starts, all.Len())
		if fields := strings.Fields(l); len(fields) > 0 {
			all.WriteString(strings.Join(fields, " ") + " ")
		}
	}
	at := strings.Index(all.String(), want)
	if at < 0 {
		return line{}, false
	}
	n, exact := slices.BinarySearch(starts, at)
	for exact && n+1 < len(starts) && starts[n+1] == at { // lines without words begin there too
		n++
	}
	if exact {
		n++
	}
	return line{n, text.OneLine(quote)}, true
}
