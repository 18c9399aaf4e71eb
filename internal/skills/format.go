package skills

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"golang.org/x/text/unicode/norm"

	"github.com/codefleet/codefleet/internal/text"
)

// Limits of the format, in characters.
const (
	maxName          = 64
	maxDescription   = 1024
	maxCompatibility = 500
)

// The fields that the format defines.
const (
	fieldName          = "name"
	fieldDescription   = "description"
	fieldLicense       = "license"
	fieldCompatibility = "compatibility"
	fieldMetadata      = "metadata"
	fieldTools         = "allowed-tools"
)

var fields = []string{fieldTools, fieldCompatibility, fieldDescription, fieldLicense, fieldMetadata, fieldName}

// Properties are what the frontmatter of a SKILL.md says.
type Properties struct {
	Name          string
	Description   string
	License       string
	Compatibility string
	AllowedTools  string
	Metadata      map[string]string
}

// InvalidError lists all reasons why a skill is invalid.
type InvalidError struct{ Problems []string }

func (e *InvalidError) Error() string { return strings.Join(e.Problems, "; ") }

// invalid returns an *InvalidError with one problem.
func invalid(format string, args ...any) error {
	return &InvalidError{[]string{fmt.Sprintf(format, args...)}}
}

// findSkillFile returns the name of the file with the frontmatter: SKILL.md, or else skill.md. It is empty if there is
// none.
func findSkillFile(files map[string][]byte) string {
	for _, name := range []string{"SKILL.md", "skill.md"} {
		if _, ok := files[name]; ok {
			return name
		}
	}
	return ""
}

// readFile reads a SKILL.md. dir is the name of its directory; empty means any.
func readFile(dir string, content []byte) (Properties, string, error) {
	if !utf8.Valid(content) {
		return Properties{}, "", invalid("SKILL.md is not UTF-8")
	}
	top, body, err := splitFrontmatter(string(content))
	if err != nil {
		return Properties{}, "", err
	}
	front, err := decodeFrontmatter(top)
	if err != nil {
		return Properties{}, "", err
	}
	properties, problems := front.properties(dir)
	if len(problems) > 0 {
		return properties, body, &InvalidError{problems}
	}
	return properties, body, nil
}

// splitFrontmatter returns the YAML between "---" at the start of content and the next line that begins with "---", and
// the text after it.
func splitFrontmatter(content string) (front, body string, err error) {
	content = strings.ReplaceAll(strings.TrimPrefix(content, "\ufeff"), "\r\n", "\n")
	rest, ok := strings.CutPrefix(content, "---")
	if !ok {
		return "", "", invalid("SKILL.md must start with YAML frontmatter (---)")
	}
	front, body, ok = strings.Cut(rest, "\n---")
	if !ok {
		return "", "", invalid("SKILL.md frontmatter not properly closed with ---")
	}
	return front, strings.TrimSpace(body), nil
}

// frontmatter is the decoded YAML.
type frontmatter struct {
	texts    map[string]*string // by field; nil for a field that is not a string
	metadata map[string]string
	problems []string // problems with the types of fields
}

// decodeFrontmatter reads all scalars as text, as the format's reference does: a version of 1.0 stays 1.0.
func decodeFrontmatter(text string) (frontmatter, error) {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return frontmatter{}, invalid("Invalid YAML in frontmatter: %v", err)
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return frontmatter{}, invalid("SKILL.md frontmatter must be a YAML mapping")
	}
	top, err := members(document.Content[0])
	if err != nil {
		return frontmatter{}, invalid("Invalid YAML in frontmatter: %v", err)
	}
	f := frontmatter{texts: map[string]*string{}}
	for _, name := range slices.Sorted(maps.Keys(top)) {
		node := top[name]
		switch {
		case name == fieldMetadata && node.Kind == yaml.MappingNode:
			if f.metadata, err = textMembers(node); err != nil {
				f.problems = append(f.problems, "Field 'metadata': "+err.Error())
			}
			f.texts[name] = nil
		case name == fieldMetadata:
			f.problems = append(f.problems, "Field 'metadata' must be a mapping of strings")
			f.texts[name] = nil
		case node.Kind == yaml.ScalarNode:
			f.texts[name] = &node.Value
		default:
			f.texts[name] = nil
		}
	}
	return f, nil
}

// members returns the members of a mapping. It refuses aliases, which could make a small text a huge value.
func members(n *yaml.Node) (map[string]*yaml.Node, error) {
	out := make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || value.Kind == yaml.AliasNode {
			return nil, fmt.Errorf("line %d: aliases and complex keys are not allowed", key.Line)
		}
		if out[key.Value] != nil {
			return nil, fmt.Errorf("line %d: %s occurs twice", key.Line, key.Value)
		}
		out[key.Value] = value
	}
	return out, nil
}

func textMembers(n *yaml.Node) (map[string]string, error) {
	all, err := members(n)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(all))
	for name, value := range all {
		if value.Kind != yaml.ScalarNode {
			return nil, errors.New("the value of " + name + " is not a string")
		}
		out[name] = value.Value
	}
	return out, nil
}

// properties returns the fields, and everything that is wrong with them.
func (f frontmatter) properties(dir string) (p Properties, problems []string) {
	problems = f.problems
	var unexpected []string
	for _, name := range slices.Sorted(maps.Keys(f.texts)) {
		if !slices.Contains(fields, name) {
			unexpected = append(unexpected, text.Truncate(text.Printable(name), maxName))
		}
	}
	if len(unexpected) > 0 {
		problems = append(problems, fmt.Sprintf("Unexpected fields in frontmatter: %s. Only %s are allowed.",
			strings.Join(unexpected, ", "), strings.Join(fields, ", ")))
	}
	read := func(name string, required bool) string {
		value, ok := f.texts[name]
		switch {
		case !ok && required:
			problems = append(problems, "Missing required field in frontmatter: "+name)
		case !ok:
		case value == nil:
			problems = append(problems, "Field '"+name+"' must be a string")
		case required && strings.TrimSpace(*value) == "":
			problems = append(problems, "Field '"+name+"' must be a non-empty string")
		default:
			return strings.TrimSpace(*value)
		}
		return ""
	}
	p = Properties{
		Name: norm.NFKC.String(read(fieldName, true)), Description: read(fieldDescription, true),
		License: read(fieldLicense, false), Compatibility: read(fieldCompatibility, false),
		AllowedTools: read(fieldTools, false), Metadata: f.metadata,
	}
	if p.Name != "" {
		problems = append(problems, nameProblems(p.Name, dir)...)
	}
	problems = append(problems, tooLong("Description", p.Description, maxDescription)...)
	return p, append(problems, tooLong("Compatibility", p.Compatibility, maxCompatibility)...)
}

func tooLong(field, value string, limit int) []string {
	if n := utf8.RuneCountInString(value); n > limit {
		return []string{fmt.Sprintf("%s exceeds %d character limit (%d chars)", field, limit, n)}
	}
	return nil
}

// nameProblems applies the format's rules to a normalised name.
func nameProblems(name, dir string) (problems []string) {
	printable := text.Truncate(text.Printable(name), 2*maxName)
	if n := utf8.RuneCountInString(name); n > maxName {
		problems = append(problems,
			fmt.Sprintf("Skill name '%s' exceeds %d character limit (%d chars)", printable, maxName, n))
	}
	if name != strings.ToLower(name) {
		problems = append(problems, fmt.Sprintf("Skill name '%s' must be lowercase", printable))
	}
	if strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-") {
		problems = append(problems, "Skill name cannot start or end with a hyphen")
	}
	if strings.Contains(name, "--") {
		problems = append(problems, "Skill name cannot contain consecutive hyphens")
	}
	forbidden := func(r rune) bool { return r != '-' && !unicode.IsLetter(r) && !unicode.IsNumber(r) }
	if strings.ContainsFunc(name, forbidden) {
		problems = append(problems, fmt.Sprintf(
			"Skill name '%s' contains invalid characters. Only letters, digits, and hyphens are allowed.", printable))
	}
	if dir != "" && norm.NFKC.String(dir) != name {
		problems = append(problems, fmt.Sprintf("Directory name '%s' must match skill name '%s'",
			text.Truncate(text.Printable(dir), 2*maxName), printable))
	}
	return problems
}
