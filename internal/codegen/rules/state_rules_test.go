package rules

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/codegen"
)

// All sentences run in one workspace, in this order. The result of a sentence that computes a value and saves it is an
// object with the value and the state.
func TestStateSentences(t *testing.T) {
	h := newHarness(t, "18")
	for _, c := range []struct {
		task  string
		state map[string]any // the state after the task
		want  any            // the task's result; nil means the state
	}{
		{"Save 5 as count in state", map[string]any{"count": 5.0}, nil},
		{"save greeting = \"hello\" to state.json", map[string]any{"count": 5.0, "greeting": "hello"}, nil},
		{
			"Set status to in_progress in the state",
			map[string]any{"count": 5.0, "greeting": "hello", "status": "in_progress"},
			nil,
		},
		{
			"Delete greeting from the state and remove the field status from /workspace/state.json",
			map[string]any{"count": 5.0},
			nil,
		},
		{"Increment count in the state", map[string]any{"count": 6.0}, nil},
		{"Increment the count in state.json by 2", map[string]any{"count": 8.0}, nil},
		{"Add 5 to count in the state", map[string]any{"count": 13.0}, nil},
		{"What is the count in the state?", map[string]any{"count": 13.0}, 13.0},
		{"Read count from state.json", map[string]any{"count": 13.0}, 13.0},
		{"Show the state", map[string]any{"count": 13.0}, nil},
		{
			"Store [1, 2] as results in the state, then append 7 to the results list in the state",
			map[string]any{"count": 13.0, "results": []any{1.0, 2.0, 7.0}},
			nil,
		},
		{
			"Save 3 to /workspace/state.json as count",
			map[string]any{"count": 3.0, "results": []any{1.0, 2.0, 7.0}},
			nil,
		},
		{"Save step 2 to state.json", map[string]any{"count": 3.0, "step": 2.0, "results": []any{1.0, 2.0, 7.0}}, nil},
		{
			"Calculate 10 * 5 and save the result as count in the state",
			map[string]any{"count": 50.0, "step": 2.0, "results": []any{1.0, 2.0, 7.0}},
			nil,
		},
		{
			"Calculate 10 * 6 and save it to state.json as first",
			map[string]any{"count": 50.0, "first": 60.0, "step": 2.0, "results": []any{1.0, 2.0, 7.0}},
			nil,
		},
		{
			"Calculate 5 + 3 and save it to /workspace/state.json",
			map[string]any{
				"count": 50.0, "first": 60.0, "step": 2.0, "results": []any{1.0, 2.0, 7.0}, "result": 8.0,
			},
			nil,
		},
		{"Overwrite state.json with {\"a\": 1}", map[string]any{"a": 1.0}, nil},
	} {
		got := h.run(c.task)
		if d := cmp.Diff(any(c.state), h.readJSON("workspace/state.json")); d != "" {
			t.Fatalf("%s: state (-want +got):\n%s", c.task, d)
		}
		if c.want == nil {
			c.want = any(c.state)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: result (-want +got):\n%s", c.task, d)
		}
	}
	if _, output, err := h.try("Increment nothing_there in the state"); err == nil {
		t.Errorf("increment of a missing field = nil error, want an error\n%s", output)
	}
}

// The rules refuse ambiguous sentences.
func TestAmbiguousStateSentences(t *testing.T) {
	for _, task := range []string{
		"Save 5 to state.json", "Save the number 3 to /workspace/state.json as count",
		"Save the number 5 to the state", "Store Alice in the state", "Save 5 as count",
		"Save 5,7 as count in state",
		"Save 5 as count in notes.txt", "Save 5 as count and 7 as total in the state",
		"Delete everything from the state", "Save it as count in the state",
		"Save current progress to state.json and continue", "Continue from step 3",
		"Calculate 5 + 3, get weather for Paris and save the result to state.json",
		"Calculate 5 + 3, get weather for Paris and save it as x in the state", "Save the weather as x in the state",
	} {
		p, err := Write(codegen.Request{Task: task, Tools: shippedTools()})
		if _, ok := errors.AsType[*codegen.CodeRequiredError](err); !ok {
			t.Errorf("%q: %v, want code_required; the program is\n%s", task, err, p.Code)
		}
	}
}

// A program that says "Saved", "Wrote" or "Copied" has read the file back. Here all writes are lost.
func TestWritesAreReadBack(t *testing.T) {
	h := newHarness(t, "18")
	h.write("notes.txt", "one\n")
	h.write("state.json", `{"count": 1}`)
	h.write("program.py", "import "+strings.Join(modules, ", ")+"\n"+preludeText+`
def lost(*arguments, **options):
    """Writes nothing."""


write_text = pathlib.Path.write_bytes = lost
for write in (lambda: save("state.json", {"count": 2}), lambda: append_text("notes.txt", "two"),
              lambda: copy_file("state.json", "notes.txt", replace=True)):
    try:
        write()
    except Failure as error:
        print(error)
`)
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "program.py")
	cmd.Dir = h.dir
	out, err := cmd.CombinedOutput()
	if want := "state.json does not hold what was saved\nnotes.txt does not hold what was written\n" +
		"notes.txt does not hold what was written\n"; err != nil || string(out) != want {
		t.Errorf("lost writes print %s, %v, want %s", out, err, want)
	}
	h.write("servers/filesystem/__init__.py", "def write_file(*arguments, **options):\n    pass\n")
	h.write("workspace/a.txt", "old")
	if _, output, err := h.try("Overwrite a.txt with 'new'"); err == nil || strings.Contains(output, "\nWrote") ||
		!strings.Contains(output, "a.txt does not hold what was written") {
		t.Errorf("a lost write of the tool: %v, want an error\n%s", err, output)
	}
}

// Functions of the prelude with what a sentence cannot set up: the date, rows of other servers and half a character.
func TestPreludeFunctions(t *testing.T) {
	h := newHarness(t, "18")
	h.write("half.json", `{"count": 1, "emoji": "\ud83d"}`)
	h.write("program.py", "import "+strings.Join(modules, ", ")+"\n"+preludeText+`
class Date(datetime.date):
    @classmethod
    def today(cls):
        return cls(2026, *on)


datetime.date = Date
for on, day, season in ((12, 25), (12, 25), "winter"), ((7, 1), (6, 30), "summer"), ((6, 21), (6, 22), "summer"):
    print(*(f(later) for f in (lambda later: days_until(*day, later), lambda later: days_until_season(season, later))
            for later in (False, True)))
half = load("half.json")
for fail in (lambda: rows_of(lambda: {"rows": [[1, "Alice"]]}), lambda: rows_of(lambda: ["US", "CA"]),
             lambda: save("half.json", half),
             lambda: ordered([{"age": "9"}, {"age": " -10.5"}, {"age": None}], "age", False)):
    try:
        print("no failure:", fail())
    except Failure as error:
        print(str(error)[:60])
print(rows_of(lambda: {"rows": [{"a": 1}]}), load("half.json") == half)
for texts in (["5.1.2020", "10.2.2019"], ["2020-2-5", "2020-10-01"], ["12/31/2019", "01/02/2020"], ["10 MB", "9 MB"],
              ["1 Feb 2020", "10 Jan 2020"], ["2020-01-01", "2020-01-01 10:00"], ["$10", "$9"], ["1:30 PM", "2:30 AM"],
              ["2020-01-01T10:00:00-02:00", "2020-01-01T11:00:00-01:00"], ["9", "x"], ["2020-01", "2019-12"],
              ["2020-01-01T10:00:00.5Z", "2019-12-31T10:00:00.5Z"], ["10:30", "09:30"], ["v9", "Ann", "3M"],
              ["2026-01-31T10:00:00+00:00", "2026-01-30T11:00:00+00:00"],
              ["2026-01-31 10:00+00", "2026-01-31 09:00+00"],
              ["Apple", "7-Eleven", "3M"], ["2001: A Space Odyssey", "Alien", "1984"], ["20260131", "20251231"],
              ["2026-W05", "2025-W51"], ["2020Q1", "2019Q4"], ["12ab34cd", "1a2b3c4d", "0e1000ff"], ["2 MB", "1 GB"],
              ["2020-01-01T10:00:00.5Z", "2020-01-01T10:00:00Z"], ["02 Jan 2020", "01 Feb 2020"], ["-5", "-1"],
              ["1,000", "900"], ["$1,200", "$950"], ["1 hour", "30 minutes"],
              ["\u06f1\u06f2", "\u06f1\u06f2 x", "5 kg"]):
    try:
        print([row["a"] for row in ordered([{"a": text} for text in texts], "a", False)])
    except Failure as error:
        print(str(error)[:50])
print(ordered([{"on": "2026-01-15"}, {"on": "2025-01-15"}, {"on": ""}, {"on": "n/a"}], "on", True))
`)
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "program.py")
	cmd.Dir = h.dir
	out, err := cmd.CombinedOutput()
	want := `0 365 0 361
364 364 0 355
1 1 0 365
the query returned rows without the names of their columns
the query returned rows without the names of their columns
the text for half.json has half a character: 'utf-8' codec c
the column age has the texts 9,  -10.5: their order may be t
[{'a': 1}] True
the column a has the texts 5.1.2020, 10.2.2019: th
the column a has the texts 2020-2-5, 2020-10-01: t
the column a has the texts 12/31/2019, 01/02/2020:
the column a has the texts 10 MB, 9 MB: their orde
the column a has the texts 1 Feb 2020, 10 Jan 2020
the column a has the texts 2020-01-01, 2020-01-01 
the column a has the texts $10, $9: their order ma
the column a has the texts 1:30 PM, 2:30 AM: their
the column a has the texts 2020-01-01T10:00:00-02:
['9', 'x']
['2019-12', '2020-01']
['2019-12-31T10:00:00.5Z', '2020-01-01T10:00:00.5Z']
['09:30', '10:30']
['3M', 'Ann', 'v9']
['2026-01-30T11:00:00+00:00', '2026-01-31T10:00:00+00:00']
['2026-01-31 09:00+00', '2026-01-31 10:00+00']
['3M', '7-Eleven', 'Apple']
['1984', '2001: A Space Odyssey', 'Alien']
['20251231', '20260131']
['2025-W51', '2026-W05']
['2019Q4', '2020Q1']
['0e1000ff', '12ab34cd', '1a2b3c4d']
the column a has the texts 2 MB, 1 GB: their order
the column a has the texts 2020-01-01T10:00:00.5Z,
the column a has the texts 02 Jan 2020, 01 Feb 202
the column a has the texts -5, -1: their order may
the column a has the texts 1,000, 900: their order
the column a has the texts $1,200, $950: their ord
the column a has the texts 1 hour, 30 minutes: the
the column a has the texts ۱۲, ۱۲ x: their order m
[{'on': 'n/a'}, {'on': '2026-01-15'}, {'on': '2025-01-15'}, {'on': ''}]
`
	if d := cmp.Diff(want, string(out)); err != nil || d != "" {
		t.Errorf("the prelude prints (-want +got), %v:\n%s", err, d)
	}
}
