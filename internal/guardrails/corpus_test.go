package guardrails_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/codefleet/codefleet/internal/guardrails"
)

// parse prints the facts of each program as one line of JSON. It only parses them.
const parse = `
import ast, json, sys
sys.path.insert(0, sys.argv[1])
import facts
for code in json.load(sys.stdin):
    print(json.dumps(facts.facts(ast.parse(code), code)))
`

type program struct {
	name, code string
	facts      guardrails.Program
}

// corpus returns the programs of an archive with the facts that the sandbox's parser reports about them.
func corpus(t *testing.T, archive string) []program {
	t.Helper()
	a, err := txtar.ParseFile(filepath.Join("testdata", archive))
	if err != nil {
		t.Fatalf("read the corpus: %v", err)
	}
	programs, codes := []program{}, []string{}
	for _, f := range a.Files {
		programs = append(programs, program{name: f.Name, code: string(f.Data)})
		codes = append(codes, string(f.Data))
	}
	in, err := json.Marshal(codes)
	if err != nil {
		t.Fatalf("encode the corpus: %v", err)
	}
	runner := filepath.FromSlash("../executor/runner")
	if _, err := os.ReadFile(filepath.Join(runner, "facts.py")); err != nil { // a change repeats the test
		t.Fatal(err)
	}
	cmd := exec.Command("python3", "-W", "ignore", "-c", parse, runner)
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run python3: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(programs) {
		t.Fatalf("python3 printed %d lines, want %d", len(lines), len(programs))
	}
	for i, line := range lines {
		if err := json.Unmarshal([]byte(line), &programs[i].facts); err != nil {
			t.Fatalf("decode the facts of %s: %v", programs[i].name, err)
		}
		programs[i].facts.Code = programs[i].code
	}
	return programs
}

// With `open` blocked, every bad program breaks the rule in its name; without, no innocent program breaks a built-in
// rule.
func TestCorpus(t *testing.T) {
	rules, err := guardrails.New(guardrails.Options{Level: guardrails.Advise}, guardrails.Options{})
	if err != nil {
		t.Fatalf("New = %v, want nil", err)
	}
	blocked := guardrails.Options{BlockedCalls: []string{"open"}}
	withoutOpen, err := guardrails.New(guardrails.Options{Level: guardrails.Advise}, blocked)
	if err != nil {
		t.Fatalf("New = %v, want nil", err)
	}
	bad, found := corpus(t, "bad.txtar"), 0
	for _, p := range bad {
		_, want, _ := strings.Cut(strings.TrimSuffix(p.name, ".py"), "-")
		findings := withoutOpen.Program(p.facts)
		if slices.ContainsFunc(findings, func(f guardrails.Finding) bool { return f.Rule == want }) {
			found++
		} else {
			t.Errorf("bad %s: findings %+v, want one of rule %s:\n%s", p.name, findings, want, p.code)
		}
	}
	innocent, wrong := corpus(t, "innocent.txtar"), 0
	for _, p := range innocent {
		if f := rules.Program(p.facts); len(f) > 0 {
			wrong++
			t.Errorf("innocent %s: findings %+v, want none:\n%s", p.name, f, p.code)
		}
	}
	t.Logf("found %d of %d bad programs; %d of %d innocent ones have findings", found, len(bad), wrong, len(innocent))
}
