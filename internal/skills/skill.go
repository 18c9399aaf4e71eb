package skills

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
)

// Limits of one skill.
const (
	maxBytes = 8 << 20 // bytes of all files
	maxFiles = 500
	maxPath  = 255 // bytes
	maxDepth = 8   // names in a path, the file's included
)

// Program is the path of a skill's program, in its directory.
const Program = "scripts/run.py"

// TaskSource is the source of the tasks that try a skill before it is saved.
const TaskSource = "codefleet/skills"

// Skill is a valid skill. It is immutable.
type Skill struct {
	Properties
	Body  string            // the instructions of SKILL.md
	Files map[string][]byte // by path in the skill's directory, SKILL.md included
	Entry EntryPoint
}

// EntryPoint says how the program is called.
type EntryPoint string

// The entry points.
const (
	EntryNone     EntryPoint = ""         // the skill has no program
	EntryFunction EntryPoint = "function" // the program has a function run, or one with the name of the skill
	EntryScript   EntryPoint = "script"   // the whole program runs, with the variable inputs
)

// namePattern is narrower than the format: ASCII alone, so that no two names look the same.
var namePattern = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// CheckName returns an error unless the fleet can keep a skill of this name. The name must be valid in the format and
// consist of ASCII. With underscores in place of hyphens, it must be the name of a module that Python can import.
func CheckName(name string) error {
	if problems := nameProblems(name, ""); len(problems) > 0 || name == "" {
		problems = append(problems, "a name is lower-case letters, digits and hyphens, such as double-number")
		return &InvalidError{problems}
	}
	switch module := ModuleOf(name); {
	case !namePattern.MatchString(name):
		return invalid("the name %q has letters other than a-z: programs import it", text.Truncate(name, maxName))
	case name[0] <= '9':
		return invalid("the name %q begins with a digit: programs cannot import skills.%s", name, module)
	case slices.Contains(tools.Keywords, module):
		return invalid("the name %q is a keyword of Python: programs cannot import skills.%s", name, module)
	}
	return nil
}

// ModuleOf returns the Python module of a skill, below skills.
func ModuleOf(name string) string { return strings.ReplaceAll(name, "-", "_") }

// NameOf returns the name of the skill that programs import as skills.<module>.
func NameOf(module string) string { return strings.ReplaceAll(module, "_", "-") }

// New returns the skill with the given files, which New checks. name is the name of the directory; empty means any.
// The error is an *InvalidError.
func New(name string, files map[string][]byte) (Skill, error) {
	if err := checkFiles(files); err != nil {
		return Skill{}, err
	}
	file := findSkillFile(files)
	if file == "" {
		return Skill{}, invalid("Missing required file: SKILL.md")
	}
	properties, body, err := readFile(name, files[file])
	if err != nil {
		return Skill{}, err
	}
	if err := CheckName(properties.Name); err != nil {
		return Skill{}, err
	}
	s := Skill{Properties: properties, Body: body, Files: files}
	if program, ok := files[Program]; ok {
		s.Entry = entryOf(properties.Name, string(program))
	}
	return s, nil
}

func checkFiles(files map[string][]byte) error {
	if len(files) > maxFiles {
		return invalid("the skill has %d files; the limit is %d", len(files), maxFiles)
	}
	size := 0
	folded := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := checkPath(name); err != nil {
			return err
		}
		if other, twice := folded[strings.ToLower(name)]; twice {
			return invalid("the names %q and %q differ by case only", other, name)
		}
		folded[strings.ToLower(name)] = name
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, isFile := files[dir]; isFile {
				return invalid("the path %q is a file and a directory", dir)
			}
		}
		size += len(files[name])
	}
	if size > maxBytes {
		return invalid("the skill is %d bytes; the limit is %d", size, maxBytes)
	}
	return nil
}

func checkPath(name string) error {
	printable := text.Truncate(text.Printable(name), maxPath)
	switch {
	case !fs.ValidPath(name) || name == "." || strings.ContainsAny(name, `\:`) ||
		strings.ContainsFunc(name, unicode.IsControl) || !utf8.ValidString(name):
		return invalid("the file name %q is not a path within the skill", printable)
	case len(name) > maxPath || strings.Count(name, "/") >= maxDepth:
		return invalid("the path %q is longer than %d bytes or deeper than %d levels",
			printable, maxPath, maxDepth)
	case slices.Contains(strings.Split(name, "/"), "__pycache__"):
		return invalid("the path %q is in a cache of bytecode, which Python would run in place of the source: "+
			"leave it out", printable)
	}
	return nil
}

// ignored reports whether a path is left out of skills that are read from a directory: caches and hidden files.
func ignored(name string) bool {
	base := path.Base(name)
	return strings.HasPrefix(base, ".") && base != "." || base == "__pycache__" || strings.HasSuffix(base, ".pyc")
}

// entryOf returns how the program is called. It looks for the function at the top level, without running Python.
func entryOf(name, program string) EntryPoint {
	if functionPattern("run").MatchString(program) || functionPattern(ModuleOf(name)).MatchString(program) {
		return EntryFunction
	}
	return EntryScript
}

// functionPattern matches the definition of a function at the top level, or an assignment to its name.
func functionPattern(name string) *regexp.Regexp {
	return regexp.MustCompile(`(?m)^(async[ \t]+def|def)[ \t]+` + name + `[ \t]*\(|^` + name + `[ \t]*=[^=]`)
}

// Function returns the name of the program's function for an EntryFunction: run, or the skill's own name.
func (s Skill) Function() string {
	if functionPattern("run").Match(s.Files[Program]) {
		return "run"
	}
	return ModuleOf(s.Name)
}

// Signature returns how run is called, or "" if the skill has no program.
func (s Skill) Signature() string {
	switch s.Entry {
	case EntryFunction:
		if params, ok := s.params(); ok {
			return "run" + params
		}
		return "run(...)"
	case EntryScript:
		return "run(inputs)"
	case EntryNone:
	}
	return ""
}

// params returns the parameters and the result of the function, as the program defines it.
func (s Skill) params() (string, bool) {
	program := s.Files[Program]
	names := []string{s.Function()}
	if m := regexp.MustCompile(`(?m)^run[ \t]*=[ \t]*([A-Za-z_]\w*)[ \t]*$`).FindSubmatch(program); m != nil {
		names = append(names, string(m[1])) // run = double_number
	}
	for _, name := range names {
		if signature, ok := tools.FunctionSignature(program, name); ok {
			return strings.TrimPrefix(signature, name), true
		}
	}
	return "", false
}

// Bytes returns the size of all files.
func (s Skill) Bytes() (n int) {
	for _, data := range s.Files {
		n += len(data)
	}
	return n
}

// Draft is a skill that is saved from a program.
type Draft struct {
	Name, Description string
	Code              string
	Instructions      string // the body of SKILL.md; if empty, it is a short default
	Metadata          map[string]string
}

// FromProgram returns the files of a skill with one program.
func FromProgram(d Draft) (map[string][]byte, error) {
	front := map[string]any{fieldName: d.Name, fieldDescription: d.Description}
	if len(d.Metadata) > 0 {
		front[fieldMetadata] = d.Metadata
	}
	var out bytes.Buffer
	out.WriteString("---\n")
	for _, name := range []string{fieldName, fieldDescription, fieldMetadata} { // in the order that people expect
		value, ok := front[name]
		if !ok {
			continue
		}
		line, err := yaml.Marshal(map[string]any{name: value})
		if err != nil {
			return nil, fmt.Errorf("encode the frontmatter: %w", err)
		}
		out.Write(line)
	}
	out.WriteString("---\n\n")
	body := d.Instructions
	if body == "" {
		body = fmt.Sprintf("# %s\n\n%s\n\nIn a program: `from skills.%s import run`. The program is `%s`.",
			d.Name, d.Description, ModuleOf(d.Name), Program)
	}
	out.WriteString(strings.TrimSpace(body) + "\n")
	return map[string][]byte{"SKILL.md": out.Bytes(), Program: []byte(strings.TrimRight(d.Code, "\n") + "\n")}, nil
}

// encode returns the files as one object. The same files give the same bytes.
func encode(files map[string][]byte) ([]byte, error) {
	var out bytes.Buffer
	zw := gzip.NewWriter(&out)
	if err := json.NewEncoder(zw).Encode(files); err != nil {
		return nil, err
	}
	if err := zw.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// maxEncoded bounds the JSON of a skill: its files in base64, and their names.
const maxEncoded = 2*maxBytes + maxFiles*2*maxPath

func decode(data []byte) (map[string][]byte, error) {
	zr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	var files map[string][]byte
	if err := json.NewDecoder(io.LimitReader(zr, maxEncoded)).Decode(&files); err != nil {
		return nil, err
	}
	return files, nil
}
