package skills_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/skills"
)

func skillFile(lines ...string) string {
	return "---\n" + strings.Join(lines, "\n") + "\n---\n# Body\n\nInstructions here.\n"
}

// TestCheck has the cases of the format's reference validator, and others.
func TestCheck(t *testing.T) {
	const description = "description: A test skill"
	long := strings.Repeat("a", 70)
	for name, c := range map[string]struct {
		dir, file string
		want      []string // a part of each problem; none for a valid skill
	}{
		"valid":            {"my-skill", skillFile("name: my-skill", description), nil},
		"missing SKILL.md": {"my-skill", "", []string{"Missing required file: SKILL.md"}},
		"name in upper case": {
			"MySkill", skillFile("name: MySkill", description),
			[]string{"must be lowercase"},
		},
		"name too long": {long, skillFile("name: "+long, description), []string{"exceeds 64 character limit"}},
		"leading hyphen": {
			"-my-skill", skillFile("name: -my-skill", description),
			[]string{"cannot start or end with a hyphen"},
		},
		"trailing hyphen": {
			"my-skill-", skillFile("name: my-skill-", description),
			[]string{"cannot start or end with a hyphen"},
		},
		"consecutive hyphens": {
			"my--skill", skillFile("name: my--skill", description),
			[]string{"consecutive hyphens"},
		},
		"invalid characters": {"my_skill", skillFile("name: my_skill", description), []string{"invalid characters"}},
		"directory mismatch": {
			"wrong-name", skillFile("name: correct-name", description),
			[]string{"must match skill name"},
		},
		"unexpected fields": {
			"my-skill", skillFile("name: my-skill", description, "unknown_field: no"),
			[]string{"Unexpected fields in frontmatter: unknown_field"},
		},
		"all fields": {"my-skill", skillFile("name: my-skill", description, "license: MIT", "metadata:",
			"  author: Test"), nil},
		"allowed-tools": {
			"my-skill", skillFile("name: my-skill", description, "allowed-tools: Bash(jq:*) Bash(git:*)"),
			nil,
		},
		"Chinese name":       {"技能", skillFile("name: 技能", description), nil},
		"Russian name":       {"мой-навык", skillFile("name: мой-навык", description), nil},
		"Russian lower case": {"навык", skillFile("name: навык", description), nil},
		"Russian upper case": {"НАВЫК", skillFile("name: НАВЫК", description), []string{"lowercase"}},
		"description too long": {
			"a", skillFile("name: a", "description: "+strings.Repeat("x", 1100)), []string{"1024"},
		},
		"description of 1024": {"a", skillFile("name: a", "description: "+strings.Repeat("ü", 1024)), nil},
		"compatibility": {
			"a", skillFile("name: a", description, "compatibility: Requires Python 3.11+"), nil,
		},
		"compatibility too long": {
			"a", skillFile("name: a", description, "compatibility: "+strings.Repeat("x", 550)), []string{"500"},
		},
		"NFKC":                  {"caf\u00e9", skillFile("name: cafe\u0301", description), nil},
		"no frontmatter":        {"a", "# No frontmatter here", []string{"must start with YAML frontmatter"}},
		"unclosed frontmatter":  {"a", "---\nname: a\ndescription: x\n", []string{"not properly closed"}},
		"invalid YAML":          {"a", skillFile("name: [invalid", description), []string{"Invalid YAML"}},
		"frontmatter is a list": {"a", skillFile("- just", "- a", "- list"), []string{"must be a YAML mapping"}},
		"empty frontmatter":     {"a", "---\n---\nBody\n", []string{"must be a YAML mapping"}},
		"missing name": {
			"a", skillFile(description), []string{"Missing required field in frontmatter: name"},
		},
		"missing description": {
			"a", skillFile("name: a"), []string{"Missing required field in frontmatter: description"},
		},
		"empty description":     {"a", skillFile("name: a", "description: ''"), []string{"non-empty string"}},
		"name without a value":  {"a", skillFile("name:", description), []string{"non-empty string"}},
		"description is a list": {"a", skillFile("name: a", "description: [x]"), []string{"must be a string"}},
		"compatibility is a list": {
			"a", skillFile("name: a", description, "compatibility: [x]"), []string{"must be a string"},
		},
		"metadata is a text": {
			"a", skillFile("name: a", description, "metadata: x"), []string{"must be a mapping"},
		},
		"a key twice": {"a", skillFile("name: a", "name: b", description), []string{"Invalid YAML"}},
		"aliases":     {"a", skillFile("name: &x a", "description: *x"), []string{"aliases"}},
		"everything is reported": {"b", skillFile("name: A-", "color: red"), []string{
			"Unexpected fields", "Missing required field in frontmatter: description", "lowercase", "hyphen",
			"Directory name",
		}},
		"Windows line ends": {"a", strings.ReplaceAll(skillFile("name: a", description), "\n", "\r\n"), nil},
	} {
		files := map[string][]byte{}
		if c.file != "" {
			files["SKILL.md"] = []byte(c.file)
		}
		_, err := skills.Check(c.dir, files)
		invalid, _ := errors.AsType[*skills.InvalidError](err)
		var got []string
		if invalid != nil {
			got = invalid.Problems
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: Check = %q, want %d problems: %q", name, got, len(c.want), c.want)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(got[i], want) {
				t.Errorf("%s: problem %d = %q, want one with %q", name, i, got[i], want)
			}
		}
	}
}

func TestProperties(t *testing.T) {
	file := skillFile("name: my-skill", "description: A test skill", "license: MIT", "allowed-tools: Bash(jq:*)",
		"metadata:", "  author: Test Author", "  version: 1.0")
	for _, name := range []string{"SKILL.md", "skill.md"} {
		got, err := skills.Check("my-skill", map[string][]byte{name: []byte(file)})
		want := skills.Properties{
			Name: "my-skill", Description: "A test skill", License: "MIT", AllowedTools: "Bash(jq:*)",
			Metadata: map[string]string{"author": "Test Author", "version": "1.0"},
		}
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("Check of %s = %v (-want +got):\n%s", name, err, d)
		}
	}
	both := map[string][]byte{"skill.md": []byte("lower"), "SKILL.md": []byte(file)}
	if _, err := skills.Check("my-skill", both); err != nil {
		t.Errorf("Check of both names = %v, want SKILL.md to be read", err)
	}
}

// TestCheckName has names that are valid in the format, but that programs could not import.
func TestCheckName(t *testing.T) {
	for name, want := range map[string]string{
		"double-number": "", "a": "", "a1-b2": "", strings.Repeat("a", 64): "",
		"class": "a keyword of Python", "import": "a keyword of Python", "3d-print": "begins with a digit",
		"навык": "letters other than a-z", "Double": "lowercase", "double_number": "invalid characters",
		"":     "lower-case",
		"../x": "invalid characters", "a\x00b": "invalid characters",
	} {
		err := skills.CheckName(name)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("CheckName(%q) = %v, want %q", name, err, want)
		}
	}
}

// TestHostileFiles has files that no skill can have.
func TestHostileFiles(t *testing.T) {
	for want, files := range map[string]map[string]int{
		`"../x" is not a path`:     {"../x": 1},
		`"/etc/passwd" is not`:     {"/etc/passwd": 1},
		`"a//b" is not`:            {"a//b": 1},
		`"a/../b" is not`:          {"a/../b": 1},
		`not a path`:               {"a\nb": 1},
		`"a\\b" is not`:            {`a\b`: 1},
		`deeper than`:              {"a/b/c/d/e/f/g/h/i": 1},
		`longer than`:              {strings.Repeat("x", 300): 1},
		`a cache of bytecode`:      {"scripts/__pycache__/run.cpython-311.pyc": 1},
		`differ by case only`:      {"A.txt": 1, "a.txt": 1},
		`is a file and a`:          {"a": 1, "a/b": 1},
		`bytes; the limit is 8388`: {"large": 50 << 20},
	} {
		all := map[string][]byte{"SKILL.md": []byte(skillFile("name: a", "description: x"))}
		for name, size := range files {
			all[name] = make([]byte, size)
		}
		if _, err := skills.New("a", all); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New with %v = %v, want an error with %q", files, err, want)
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(skillFile("name: a", "description: x", "metadata: {a: b}"))
	f.Add("---\n---\n")
	f.Add("---\na: &a [*a]\n---")
	f.Fuzz(func(t *testing.T, file string) {
		p, err := skills.Check("", map[string][]byte{"SKILL.md": []byte(file)})
		if err == nil && (p.Name == "" || p.Description == "" || len(p.Name) > 4*64) {
			t.Errorf("Check(%q) = %+v, want an error", file, p)
		}
	})
}
