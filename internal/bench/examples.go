package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
)

// An Example is work that an agent submits in one or several tasks.
type Example struct {
	Number, Title string

	setup string   // a program that prepares the workspace, and is not measured
	tasks []string // the tasks' descriptions
	code  string   // a program, as a last task
	mcp   []int    // the indexes of the tasks that are submitted over MCP
	check string   // a program whose output is checked; if empty, the last task's output is checked
	want  string   // must be in the output that is checked
}

// Examples returns the examples. Their numbers are those in the documents of codefleet's first version.
func Examples() []Example {
	return []Example{
		{Number: "00", Title: "the simplest call", tasks: []string{"Calculate 5 + 3"}, want: "8"},
		{Number: "01", Title: "basic tool call", tasks: []string{
			"Calculate 5 + 3 and get weather for San Francisco",
		}, want: "8"},
		{Number: "02", Title: "several tools, data from one to the next", tasks: []string{
			"Calculate 10 * 5, then get weather for that many cities starting with San Francisco",
		}, want: "50"},
		{Number: "03", Title: "filtering data", setup: usersTable, tasks: []string{
			"Query database for users, filter for active users, and calculate statistics",
		}, want: "35"},
		{Number: "04", Title: "control flow", tasks: []string{
			"Get weather for San Francisco, and if temperature is above 20, calculate how many days until summer",
		}, want: "temperature above 20"},
		{
			Number: "05", Title: "state over two sessions", tasks: []string{
				"Create /workspace/state.json with:\n- calculation: \"5 + 3\"\n- result: 8\n- step: 1\n" +
					"- message: \"saved\"",
				"Read /workspace/state.json, update step to 2 and save it back",
			}, check: `import json; state = json.load(open("state.json")); print(state["result"], state["step"])`,
			want: "8 2\n",
		},
		{Number: "06", Title: "a skill", setup: doubleSkill, tasks: []string{
			"Import the double_number skill and use it to double 15",
		}, want: "30"},
		{Number: "07", Title: "files", tasks: []string{
			"Write a test file with content 'Hello World', then read it back and print the content",
		}, want: "Hello World"},
		{Number: "08", Title: "a workflow over three sessions", tasks: []string{
			"Initialize a calculation workflow:\n1. Create /workspace/workflow_state.json with:\n" +
				"   - workflow_id: \"calc_001\"\n   - current_step: 1\n   - total_steps: 3\n   - results: []\n" +
				"   - status: \"in_progress\"\n2. Calculate 10 * 5 and add the result to the results array\n" +
				"3. Update current_step to 2",
			"Continue the workflow from the previous session:\n1. Read /workspace/workflow_state.json\n" +
				"2. Calculate 20 * 3 and add the result to the results array\n3. Update current_step to 3",
			"Complete the workflow:\n1. Read /workspace/workflow_state.json\n" +
				"2. Calculate 15 * 4 and add the result to the results array\n" +
				"3. Calculate the sum of all results in the results array\n4. Update current_step to 4 (completed)\n" +
				"5. Update status to \"completed\"\n6. Add a \"total\" field with the sum of all results\n" +
				"7. Print a summary of the completed workflow",
		}, want: "170"},
		{
			Number: "09", Title: "settings, and a state document of its own", tasks: []string{
				"Create /workspace/workflow_state.json with:\n- step: 1",
				"Read /workspace/workflow_state.json, update step to 2 and save it back",
			}, check: `import json; print(json.load(open("workflow_state.json"))["step"])`, want: "2\n",
		},
		{Number: "10", Title: "the MCP server", tasks: []string{"Calculate 2 + 2"}, mcp: []int{0}, want: "4"},
		{Number: "11", Title: "an MCP client, several tools", tasks: []string{
			"Calculate 5 + 3 and get weather for San Francisco",
		}, mcp: []int{0}, want: "8"},
		{Number: "12", Title: "the same over the client and MCP", tasks: []string{
			"Calculate 5 + 3", "Calculate 5 + 3",
		}, mcp: []int{1}, want: "8"},
		{
			Number: "13", Title: "functions of this process as tools",
			code: "from servers.custom import square\nprint(square(4))", want: "16",
		},
		{
			Number: "14", Title: "state of a workflow", tasks: []string{
				"Initialize a workflow:\n1. Create /workspace/workflow_state.json with:\n" +
					"   - workflow_id: \"wf_stateful_001\"\n   - current_step: 0\n   - results: []\n" +
					"   - status: \"initialized\"\n2. Print confirmation",
				"Read /workspace/workflow_state.json.\nCalculate 20 * 3 = 60.\nAdd the result to the results array.\n" +
					"Update current_step to 2.\nSave the updated state.",
			},
			check: `import json; s = json.load(open("workflow_state.json")); print(s["results"], s["current_step"])`,
			want:  "[60] 2\n",
		},
	}
}

// usersTable is a program that creates the table users with three rows.
const usersTable = `from servers.database import execute
execute("DROP TABLE IF EXISTS users")
execute("CREATE TABLE users (id INTEGER, name TEXT, age INTEGER, active INTEGER)")
for user in ((1, "Alice", 30, 1), (2, "Bob", 99, 0), (3, "Carol", 40, 1)):
    execute("INSERT INTO users VALUES (?, ?, ?, ?)", list(user))
`

// doubleSkill is a program that writes the skill double_number.
const doubleSkill = `import os
os.makedirs("skills", exist_ok=True)
with open("skills/double_number.py", "w") as file:
    file.write("def run(x):\n    return 2 * x\n")
`

// Sequence returns the examples with the given numbers, such as "1" or "01".
func Sequence(numbers []string) ([]Example, error) {
	all := Examples()
	var chosen []Example
	for _, n := range numbers {
		n = strings.TrimSpace(n)
		i := slices.IndexFunc(all, func(e Example) bool {
			return e.Number == n || e.Number == "0"+n
		})
		if i < 0 {
			var valid []string
			for _, e := range all {
				valid = append(valid, e.Number)
			}
			return nil, fmt.Errorf("unknown example %q: want one of %s", n, strings.Join(valid, ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// RunExamples starts a fleet and runs a sequence of examples in it, one after the other. It compares the first
// execution, including the start of the fleet, with the next ones, which find warm boxes. If verbose is true, the
// report contains the stages and the output of each task.
func RunExamples(ctx context.Context, o Options, sequence []Example, verbose bool) (*Report, error) {
	return o.run(ctx, Scenario{Name: "examples", NoSandbox: true, Measure: func(b *Bench, ctx context.Context) error {
		return b.examples(ctx, sequence, verbose)
	}})
}

func (b *Bench) examples(ctx context.Context, sequence []Example, verbose bool) (err error) {
	began := time.Now()
	c, stop, err := b.startExamples(ctx, func(*config.Config) {})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	started := Since(began)
	executions := Table{Title: "Executions", Columns: []string{"#", "example", "what", "tasks", "ms"}}
	stages := Table{
		Title: "Tasks",
		Columns: []string{
			"#", "task", "written by", "boot", "queued", "select", "generate", "sandbox", "checkout", "run",
			"commit", "total ms", "output",
		},
	}
	for i, e := range sequence {
		b.Progress(fmt.Sprintf("example %s: %d of %d", e.Number, i+1, len(sequence)))
		took, tasks, err := runExample(ctx, c, e)
		if err != nil {
			return fmt.Errorf("example %s, %s: %w", e.Number, e.Title, err)
		}
		name := "next executions"
		if i == 0 {
			name = "first execution"
			took += started
		}
		b.Add(name, "ms", took)
		number := strconv.Itoa(i + 1)
		executions.Rows = append(executions.Rows, []string{
			number, e.Number, e.Title, strconv.Itoa(len(tasks)), fmt.Sprintf("%.0f", took),
		})
		for n, res := range tasks {
			stages.Rows = append(stages.Rows, stageRow(number, n+1, res))
		}
	}
	b.Tables = append(b.Tables, executions)
	if verbose {
		b.Tables = append(b.Tables, stages)
	}
	b.compareFirst(started)
	return b.withoutPooling(ctx, sequence)
}

// withoutPooling runs each example of a sequence once in a fleet that creates a box for each task. It compares the mean
// with that of the next executions, which find warm boxes.
func (b *Bench) withoutPooling(ctx context.Context, sequence []Example) (err error) {
	next := b.Samples["next executions"]
	if len(next) == 0 {
		return nil
	}
	c, stop, err := b.startExamples(ctx, func(c *config.Config) {
		c.Optimizations.SandboxPooling, c.Execution.Reuse = false, "never"
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	const name = "without pooling"
	seen := map[string]bool{}
	for _, e := range sequence {
		if seen[e.Number] {
			continue
		}
		seen[e.Number] = true
		b.Progress("example " + e.Number + " " + name)
		took, _, err := runExample(ctx, c, e)
		if err != nil {
			return fmt.Errorf("example %s, %s, %s: %w", e.Number, e.Title, name, err)
		}
		b.Add(name, "ms", took)
	}
	b.Summarise()
	off := b.Samples[name]
	b.Numbers["pooling"] = Number{
		Value: mean(off) / mean(next), Target: 1, Unit: "×", Met: mean(off) > mean(next),
		What: "mean without pooling ÷ mean of the next executions",
	}
	b.Note("without pooling, a box for each task: mean %.1f ms, minimum %.1f, maximum %.1f", mean(off), slices.Min(off),
		slices.Max(off))
	return nil
}

// runExample runs the tasks of an example and checks its result.
func runExample(ctx context.Context, c *exampleClient, e Example) (took float64, results []client.Result, err error) {
	workspace := "example-" + e.Number
	if e.setup != "" {
		if _, err := requireSuccess(ctx, c.Client, client.Submission{
			Task: client.Task{Code: e.setup}, Workspace: workspace,
		}); err != nil {
			return 0, nil, fmt.Errorf("prepare the workspace: %w", err)
		}
	}
	began := time.Now()
	for i, text := range e.tasks {
		run := c.run
		if slices.Contains(e.mcp, i) {
			run = c.runOverMCP
		}
		res, err := run(ctx, client.Submission{Task: client.Task{Description: text}, Workspace: workspace})
		if err != nil {
			return 0, nil, err
		}
		results = append(results, res)
	}
	if e.code != "" {
		res, err := c.run(ctx, client.Submission{Task: client.Task{Code: e.code}, Workspace: workspace})
		if err != nil {
			return 0, nil, err
		}
		results = append(results, res)
	}
	took = Since(began)
	last := results[len(results)-1]
	if e.check != "" {
		if last, err = requireSuccess(ctx, c.Client, client.Submission{
			Task: client.Task{Code: e.check}, Workspace: workspace,
		}); err != nil {
			return 0, nil, fmt.Errorf("check the result: %w", err)
		}
	}
	if !strings.Contains(last.Output, e.want) {
		return 0, nil, fmt.Errorf("output %.300q does not contain %q", last.Output, e.want)
	}
	return took, results, nil
}

func stageRow(execution string, task int, res client.Result) []string {
	t := res.TimingMS
	row := []string{execution, strconv.Itoa(task), res.GeneratedBy, res.Sandbox.Boot}
	for _, ms := range []float64{t.Queued, t.Select, t.Generate, t.SandboxWait, t.Checkout, t.Run, t.Commit, t.Total} {
		row = append(row, fmt.Sprintf("%.1f", ms))
	}
	output := []rune(strings.Join(strings.Fields(res.Output), " "))
	return append(row, string(output[:min(len(output), 60)]))
}

// compareFirst adds the figures of the first version's benchmark: the ratio of the first execution to the mean of the
// next ones, and the mean, minimum, maximum and standard deviation of the next ones.
func (b *Bench) compareFirst(started float64) {
	b.Summarise()
	first, next := b.Samples["first execution"], b.Samples["next executions"]
	b.Note("the first execution includes the start of the fleet, %.0f ms: queue, object store, first sandbox", started)
	if len(next) == 0 {
		b.Note("only one execution was measured: use -n 5 or --sequence to measure the next ones")
		return
	}
	b.Numbers["speedup"] = Number{
		Value: first[0] / mean(next), Target: 1, Unit: "×", Met: first[0] > mean(next),
		What: "first execution ÷ mean of the next ones",
	}
	b.Note("next executions: mean %.1f ms, minimum %.1f, maximum %.1f, standard deviation %.1f", mean(next),
		slices.Min(next), slices.Max(next), deviation(next))
}

// deviation returns the standard deviation of the samples.
func deviation(samples []float64) float64 {
	m, sum := mean(samples), 0.0
	for _, s := range samples {
		sum += (s - m) * (s - m)
	}
	return math.Sqrt(sum / float64(max(1, len(samples)-1)))
}
