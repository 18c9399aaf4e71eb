package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/codefleet/codefleet/client"
)

// valueOf decodes the result of a task.
func valueOf(r client.Result, _ string, err error) (value any, _ error) {
	if err == nil {
		err = json.Unmarshal(r.Result, &value)
	}
	return value, err
}

// field returns a field of an object.
func field(value any, name string) any {
	o, _ := value.(map[string]any)
	return o[name]
}

func simpleAPI(ctx context.Context, r runner) error {
	v, err := valueOf(r.ExecuteTask(ctx, "Calculate 5 + 3"))
	if err != nil {
		return err
	}
	return want("result", v, 8)
}

func basicToolCall(ctx context.Context, r runner) error {
	v, err := valueOf(r.ExecuteTask(ctx, "Calculate 5 + 3 and get weather for San Francisco"))
	if err != nil {
		return err
	}
	if err := want("location", field(field(v, "weather"), "location"), "San Francisco"); err != nil {
		return err
	}
	return want("calculation", field(v, "calculation"), 8)
}

func multiToolChain(ctx context.Context, r runner) error {
	v, err := valueOf(r.ExecuteCode(ctx, `
from servers.calculator import multiply
from servers.weather import get_forecast
days = int(multiply(2, 2))
len(get_forecast("San Francisco", days)["forecast"])`, nil))
	if err != nil {
		return err
	}
	return want("days of forecast", v, 4)
}

func dataFiltering(ctx context.Context, r runner) error {
	if _, _, err := r.ExecuteCode(ctx, `
from servers.database import execute
execute("DROP TABLE IF EXISTS users")
execute("CREATE TABLE users (id INTEGER, name TEXT, age INTEGER, active INTEGER)")
for user in inputs:
    execute("INSERT INTO users VALUES (?, ?, ?, ?)", user)`,
		[][]any{{1, "Alice", 30, 1}, {2, "Bob", 99, 0}, {3, "Carol", 40, 1}}); err != nil {
		return err
	}
	v, err := valueOf(r.ExecuteCode(ctx, `
from servers.database import query
ages = [row["age"] for row in query("SELECT age FROM users WHERE active = 1")]
{"count": len(ages), "mean": sum(ages) / len(ages)}`, nil))
	if err != nil {
		return err
	}
	return want("statistics", v, map[string]any{"count": 2, "mean": 35})
}

func controlFlow(ctx context.Context, r runner) error {
	v, err := valueOf(r.ExecuteCode(ctx, `
from servers.calculator import calculate
found = []
for text in inputs:
    try:
        found.append(calculate(text))
    except Exception:
        found.append(None)
found`, []string{"6 * 7", "1 / 0", "10 - 4"}))
	if err != nil {
		return err
	}
	return want("calculations", v, []any{42, nil, 6})
}

func statePersistence(ctx context.Context, r runner) error {
	if _, _, err := r.ExecuteTask(ctx, "Create /workspace/state.json with:\n- calculation: \"5 + 3\"\n- result: 8\n"+
		"- step: 1\n- message: \"saved\""); err != nil {
		return err
	}
	if _, _, err := r.ExecuteTask(ctx, "Read /workspace/state.json, update step to 2 and save it back"); err != nil {
		return err
	}
	s, err := r.State(ctx, "state.json")
	if err != nil {
		return err
	}
	return want("state", s, map[string]any{"calculation": "5 + 3", "result": 8, "step": 2, "message": "saved"})
}

func skills(ctx context.Context, r runner) error {
	if _, _, err := r.ExecuteCode(ctx, `
import os
os.makedirs("/workspace/skills", exist_ok=True)
with open("/workspace/skills/double_number.py", "w") as file:
    file.write("def run(x):\n    return 2 * x\n")`, nil); err != nil {
		return err
	}
	v, err := valueOf(r.ExecuteTask(ctx, "Import the double_number skill and use it to double 15"))
	if err != nil {
		return err
	}
	return want("double of 15", v, 30)
}

func filesystemOperations(ctx context.Context, r runner) error {
	_, output, err := r.ExecuteTask(ctx,
		"Write a test file with content 'Hello World', then read it back and print the content")
	if err != nil {
		return err
	}
	return want("output has the content", strings.Contains(output, "Hello World"), true)
}

func crossSession(ctx context.Context, r runner) error {
	for _, text := range []string{
		"Initialize a calculation workflow:\n1. Create /workspace/workflow_state.json with:\n   - current_step: 1\n" +
			"   - results: []\n   - status: \"in_progress\"\n" +
			"2. Calculate 10 * 5 and add the result to the results array\n" +
			"3. Update current_step to 2",
		"Continue the workflow from the previous session:\n1. Read /workspace/workflow_state.json\n" +
			"2. Calculate 20 * 3 and add the result to the results array\n3. Update current_step to 3",
		"Complete the workflow:\n1. Read /workspace/workflow_state.json\n" +
			"2. Calculate 15 * 4 and add the result to the results array\n" +
			"3. Calculate the sum of all results in the results array\n4. Update current_step to 4 (completed)\n" +
			"5. Update status to \"completed\"\n6. Add a \"total\" field with the sum of all results",
	} {
		if _, _, err := r.ExecuteTask(ctx, text); err != nil {
			return err
		}
	}
	s, err := r.State(ctx, "workflow_state.json")
	if err != nil {
		return err
	}
	if err := want("results", s["results"], []int{50, 60, 60}); err != nil {
		return err
	}
	return want("total", s["total"], 170)
}

func statefulness(ctx context.Context, r runner) error {
	if err := r.SaveState(ctx, "state.json", map[string]any{"results": []int{}}); err != nil {
		return err
	}
	for _, calculation := range []string{"10 * 5", "20 * 3"} {
		if _, _, err := r.ExecuteCode(ctx, `
import json
from servers.calculator import calculate
state = json.load(open("/workspace/state.json"))
state["results"].append(calculate(inputs))
json.dump(state, open("/workspace/state.json", "w"))`, calculation); err != nil {
			return fmt.Errorf("calculate %s: %w", calculation, err)
		}
	}
	s, err := r.State(ctx, "state.json")
	if err != nil {
		return err
	}
	return want("results", s["results"], []int{50, 60})
}
