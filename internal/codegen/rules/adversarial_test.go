package rules

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/codefleet/codefleet/internal/codegen"
)

// sentence is a line of testdata/sentences.txt: the task, and its outcome: "refused" and the words that are not
// understood, "fails" and the end of the program's message, or the program's result as JSON.
type sentence struct{ task, want string }

func sentences(tb testing.TB) []sentence {
	tb.Helper()
	data, err := os.ReadFile("testdata/sentences.txt")
	if err != nil {
		tb.Fatal(err)
	}
	var out []sentence
	for line := range strings.Lines(string(data)) {
		task, want, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " => ")
		if !ok {
			tb.Fatalf("testdata/sentences.txt: %q has no =>", line)
		}
		out = append(out, sentence{strings.NewReplacer(`\\`, `\`, `\n`, "\n").Replace(task), want})
	}
	return out
}

// Sentences by people who do not know the grammar are refused, fail, or have the right value.
func TestEverydaySentences(t *testing.T) {
	all := sentences(t)
	if len(all) < 300 {
		t.Fatalf("testdata/sentences.txt has %d sentences, want at least 300", len(all))
	}
	for _, s := range all {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			if got := outcome(t, s.task); got != s.want {
				t.Errorf("%q:\n got %s\nwant %s", s.task, got, s.want)
			}
		})
	}
}

// outcome runs a task in the everyday workspace and returns its outcome in the form of sentence.want.
func outcome(t *testing.T, task string) string {
	t.Helper()
	h := everydayHarness(t)
	return strings.ReplaceAll(outcomeIn(h, task), h.dir, "")
}

func everydayHarness(t *testing.T) *harness {
	t.Helper()
	w := newHarness(t, "18")
	w.write("workspace/notes.txt", "one x\ntwo\n")
	w.write("workspace/state.json", `{"count": 1, "results": [1]}`)
	w.write("skills/format_price.py", "def run(x):\n    return '%.2f' % x\n")
	w.write("skills/saved_count.py", "import json\ndef run(x):\n"+
		"    return json.load(open('workspace/state.json'))['count']\n")
	return w
}

// accepted returns the sentences that become programs.
func accepted(tb testing.TB) (tasks []string) {
	tb.Helper()
	for _, s := range sentences(tb) {
		if !strings.HasPrefix(s.want, "refused ") {
			tasks = append(tasks, s.task)
		}
	}
	return tasks
}

// A sentence with one more word that the grammar does not know is refused, wherever the word stands. If the word
// becomes the name of a field or a column, the program fails and names it.
func TestAnotherWordIsRefused(t *testing.T) {
	nouns := []string{"name", "key", "field", "value"} // "as name x" names the field x
	for _, task := range accepted(t) {
		for _, word := range []string{"zorblat", "carefully", "Bitcoin"} {
			tokens := tokenise(task)
			for i, tok := range tokens {
				if tok.kind != wordKind || i == 0 || slices.Contains(nouns, task[tokens[i-1].start:tokens[i-1].end]) {
					continue
				}
				changed := task[:tok.start] + word + " " + task[tok.start:]
				_, err := Write(codegen.Request{Task: changed, Tools: shippedTools()})
				required, ok := errors.AsType[*codegen.CodeRequiredError](err)
				output := ""
				if err == nil {
					_, output, err = everydayHarness(t).try(changed)
				}
				switch {
				case err == nil:
					t.Errorf("%q: no error, want code_required", changed)
				case ok && !strings.Contains(required.Reason, word):
					t.Errorf("%q: refused with %q, want a reason that names %s", changed, required.Reason, word)
				case !ok && !regexp.MustCompile(`Failure: .*`+word).MatchString(output):
					t.Errorf("%q: the program fails, want an error that names %q\n%s", changed, word, output)
				}
			}
		}
	}
}

const wordKind = word // word is a variable in the test above

// parser is a Python process that parses programs. For each, it returns the text outside strings and comments.
type parser struct {
	in  io.WriteCloser
	out *bufio.Scanner
}

const parse = `
import ast, io, json, sys, tokenize
for line in sys.stdin:
    code = json.loads(line)
    try:
        ast.parse(code)
        tokens = tokenize.generate_tokens(io.StringIO(code).readline)
        names = [t.string for t in tokens if t.type not in (tokenize.STRING, tokenize.COMMENT)]
        print(json.dumps({"names": " ".join(names)}), flush=True)
    except Exception as error:
        print(json.dumps({"error": repr(error)}), flush=True)
`

func newParser(tb testing.TB) *parser {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "/usr/bin/python3", "-c", parse)
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 10<<20)
	return &parser{in, lines}
}

// names returns the text of a program outside strings and comments. The error is Python's.
func (c *parser) names(code string) (string, error) {
	data, err := json.Marshal(code)
	if err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(c.in, "%s\n", data); err != nil {
		return "", err
	}
	if !c.out.Scan() {
		return "", errors.New("the parser has ended")
	}
	var parsed struct{ Names, Error string }
	if err := json.Unmarshal(c.out.Bytes(), &parsed); err != nil {
		return "", err
	}
	if parsed.Error != "" {
		return "", errors.New(parsed.Error)
	}
	return parsed.Names, nil
}

// Text of a task appears in a program only in strings and comments, and the program is Python.
func TestTextOfTasksIsLiteral(t *testing.T) {
	c := newParser(t)
	const mark = "zq9"
	texts := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		`"`, `'`, `\`, `"""`, `'''`, "{", "}", "%s", "{value}", "$number", "\\n", "#", "\u2028", "\u202e",
		"'); import os; (\"",
	}))
	templates := []string{
		"Save 'X' as count in state", "Save 5 as 'X' in state", "Write 'X' to notes.txt", "Get weather for 'X'",
		"Query database for 'X'", "Query database for users, keep users with 'X' above 3",
		"Does notes.txt contain 'X'?",
		"Save `X` as count in state", `Save {"a": "X"} as count in state`,
		"Create a.json with:\n- a: 'X'",
		"Run 'SELECT X'",
		"Calculate 1 + 1 and X", "X", "Query database for X", "Save 5 as X in state", "Import the X_skill skill",
		"Copy X.txt to a.txt", "What is the average X of users?",
		"Get weather for Paris. If X is above 3, calculate 1 + 1",
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", " ", "_"}).Draw(t, "joint")
		text = mark + text + texts.Draw(t, "text") + mark
		task := strings.ReplaceAll(rapid.SampledFrom(templates).Draw(t, "template"), "X", text)
		p, err := Write(codegen.Request{Task: task, Tools: shippedTools()})
		code := p.Code
		if required, ok := errors.AsType[*codegen.CodeRequiredError](err); ok {
			code = required.Skeleton
		}
		names, err := c.names(code)
		if err != nil || strings.Contains(names, mark) {
			t.Errorf("%q: %v, names %q\n%s", task, err, names, code)
		}
	})
}

func FuzzWrite(f *testing.F) {
	for _, s := range sentences(f) {
		f.Add(s.task)
	}
	for _, s := range []string{
		"Create /workspace/a.json with:\n- a: 1", "{\"a\": [1,2", "'x' /a.json", "if x is > 3, add 1 to it",
		"Save " + strings.Repeat("[", 300) + strings.Repeat("]", 300) + " as a in state",
		"Calculate " + strings.Repeat("9", 5000) + " + 1",
		"Calculate " + strings.Repeat("(", 200) + "1" + strings.Repeat(")", 200),
		"Calculate 1" + strings.Repeat(" + 1", 2000), strings.Repeat("calculate ", 1900),
		strings.Repeat("1 + ", 4000) + "1",
		strings.Repeat("Paris, ", 2000) + "and Oslo", "get weather for " + strings.Repeat("Paris, ", 150) + "and Oslo",
		"add " + strings.Repeat("1, ", 300) + "2",
	} {
		f.Add(s)
	}
	c := newParser(f)
	f.Fuzz(func(t *testing.T, task string) {
		p, err := Write(codegen.Request{Task: task, Tools: shippedTools()})
		code := p.Code
		if required, ok := errors.AsType[*codegen.CodeRequiredError](err); ok {
			code = required.Skeleton
		}
		if _, err := c.names(code); err != nil {
			t.Errorf("Write(%.200q): %v\n%.2000s", task, err, code)
		}
	})
}

// resembling has pieces of tasks in which every token resembles the beginning of a longer one.
var resembling = []string{"1x", "[1,", `{"a":`, "(", "a/", "1,1", "“", "\xff", "please "}

func repeated(part string, size int) codegen.Request {
	return codegen.Request{Task: strings.Repeat(part, size/len(part)-1) + "a"}
}

func TestLargestTasksAreRefused(t *testing.T) {
	for _, part := range resembling {
		if _, err := Write(repeated(part, maxTask)); err == nil {
			t.Errorf("Write(%q repeated) = nil error, want a refusal", part)
		}
	}
}

// BenchmarkLargestTasks shows whether the time grows with the square of a task's size: the bytes per second of the two
// sizes would differ by a factor of eight.
func BenchmarkLargestTasks(b *testing.B) {
	for _, part := range resembling {
		for _, size := range []int{maxTask / 8, maxTask} {
			r := repeated(part, size)
			b.Run(fmt.Sprintf("%q/%d", part, size), func(b *testing.B) {
				b.SetBytes(int64(size))
				for b.Loop() {
					if _, err := Write(r); err == nil {
						b.Fatal("no refusal")
					}
				}
			})
		}
	}
}

// A function of prelude.py uses only earlier ones.
func TestPreludeOrder(t *testing.T) {
	functions := prelude()
	for i, f := range functions {
		later := functions[i+1:]
		if j := slices.IndexFunc(later, func(g function) bool { return g.called.MatchString(f.code) }); j >= 0 {
			t.Errorf("%s uses %s, which is defined later; want only earlier functions", f.name, later[j].name)
		}
	}
}

// Each slot of the grammar is a kind of value or a set of phrases.
func TestSlotsExist(t *testing.T) {
	g := theGrammar()
	var check func(nodes []node)
	check = func(nodes []node) {
		for _, n := range nodes {
			if n.slot != "" && slots[n.slot] == nil && wordSlots[n.slot] == nil && g.phrases[n.slot] == nil {
				t.Errorf("grammar.txt: unknown slot %q", n.slot)
			}
			for _, a := range n.alternatives {
				check(a)
			}
		}
	}
	for _, f := range g.forms {
		for _, p := range f.patterns {
			check(p)
		}
	}
}
