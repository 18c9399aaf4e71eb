package rules

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/codegen"
)

// outcomeIn runs a task in a workspace and returns its outcome in the form of sentence.want.
func outcomeIn(h *harness, task string) string {
	h.t.Helper()
	result, output, err := h.try(task)
	if refused, ok := errors.AsType[*codegen.CodeRequiredError](err); ok {
		return "refused " + strings.TrimPrefix(refused.Reason, "the rules do not understand ")
	}
	if err != nil {
		lines := strings.Split(strings.TrimSpace(output), "\n")
		return "fails " + strings.ReplaceAll(strings.TrimPrefix(lines[len(lines)-1], "Failure: "), h.dir, "")
	}
	text, _ := json.Marshal(result)
	return string(text)
}

// Sentences about tables that do not say what the sentence needs. The rows are in Python.
func TestTables(t *testing.T) {
	const (
		nulls = `[{"id": 1, "active": 1, "salary": 100}, {"id": 2, "active": 0, "salary": 50},
			{"id": 3, "active": None, "salary": 1000}]`
		texts    = `[{"id": 1, "is_active": "1"}, {"id": 2, "is_active": ""}, {"id": 3, "is_active": ""}]`
		statuses = `[{"id": 1, "status": "open"}, {"id": 2, "status": None}]`
		two      = `[{"name": "Ann", "status": "open", "open": 0}, {"name": "Bob", "status": "closed", "open": 1}]`
		salaries = `[{"id": 1, "salary": 100, "bonus": None}, {"id": 2, "salary": None, "bonus": None}]`
		orders   = `[{"id": 1, "status": "Open ", "state": "CA"}, {"id": 2, "status": "closed", "state": "US"}]`
	)
	for _, c := range []struct{ rows, task, want string }{
		{nulls, "How many inactive users are there?", "fails the column active is NULL in 1 row"},
		{nulls, "How many active users are there?", "fails the column active is NULL in 1 row"},
		{nulls, "total salary of inactive users", "fails the column active is NULL in 1 row"},
		{nulls, "Query database for users, keep only active users", "fails the column active is NULL in 1 row"},
		{texts, "How many inactive users are there?", "fails the column is_active is empty in 2 rows"},
		{statuses, "Show all open orders", "fails the column status is NULL in 1 row"},
		{`[{"active": "NULL"}, {"active": "1"}]`, "Show all active users", "fails the column active has the value NULL, " +
			"neither yes nor no"},
		{two, "Show all open users", "fails cannot tell which rows are open: status and open may say so"},
		{two, "Show all closed users", "fails cannot tell which rows are closed: status and open may say so"},
		{
			`[{"status": "active", "active": 0}, {"status": "inactive", "active": 1}]`, "How many active users are there?",
			"fails cannot tell which rows are active: status and active may say so",
		},
		{
			`[{"status": "active", "state": "inactive"}]`, "How many active users are there?",
			"fails cannot tell which rows are active: status and state may say so",
		},
		{
			`[{"enabled": 1, "disabled": 1}]`, "Show all enabled users",
			"fails cannot tell which rows are enabled: enabled and disabled may say so",
		},
		{
			`[{"is_active": 1, "active": 0}]`, "Show all inactive users",
			"fails cannot tell which rows are inactive: is_active and active may say so",
		},
		{
			`[{"active": 1, "Active": 0}]`, "Show all active users",
			"fails cannot tell which rows are active: active and Active may say so",
		},
		{
			`[{"status": "open", "payment": "open"}]`, "Show all open orders",
			"fails cannot tell which rows are open: status and payment may say so",
		},
		{
			`[{"active": 1, "deleted": 1}]`, "Show all active users",
			"fails cannot tell which rows are active: active and deleted may say so",
		},
		{
			`[{"done": 1, "status": "completed"}]`, "Show all completed tasks",
			"fails cannot tell which rows are completed: done and status may say so",
		},
		{`[{"payment": "open"}]`, "Show all open orders", "fails cannot tell which rows are open: no column says so; " +
			"the columns are: payment"},
		{`[{"open": 10.5}]`, "Show all open stocks", "fails the column open has the value 10.5, neither yes nor no"},
		{`[{"status": "failed", "enabled": 1}, {"status": "done", "enabled": 1}]`, "How many failed jobs are there?", "1"},
		{`[{"status": "failed", "enabled": 1}, {"status": "done", "enabled": 0}]`, "How many enabled jobs are there?", "1"},
		{orders, "How many open orders are there?", "1"},
		{orders, "How many closed orders are there?", "1"},
		{`[{"id": 1, "is_active": "true"}, {"id": 2, "is_active": "no"}]`, "How many inactive users are there?", "1"},
		{`[]`, "How many active users are there?", "0"},

		{salaries, "What is the total salary of users?", "100"},
		{salaries, "What is the total bonus of users?", "fails there are no values of bonus"},
		{salaries, "What is the average bonus of users?", "fails there are no values of bonus"},
		{salaries, "Query database for users and calculate statistics", `{"statistics":{"count":2,` +
			`"salary":{"max":100,"mean":100,"median":100,"min":100,"missing":1,"sum":100}},"users":[` +
			`{"bonus":null,"id":1,"salary":100},{"bonus":null,"id":2,"salary":null}]}`},
		{`[]`, "What columns are in users?", "fails users has no rows: its columns are unknown"},
	} {
		h := everydayHarness(t)
		h.write("servers/database/__init__.py", "def query(sql):\n    return "+
			strings.NewReplacer("\n", " ", "\t", "").Replace(c.rows)+"\n")
		if got := outcomeIn(h, c.task); got != c.want {
			t.Errorf("%q with %s:\n got %s\nwant %s", c.task, c.rows, got, c.want)
		}
	}
	for task, want := range map[string]string{
		"What is the average salary of users?":              "Rows without a value of salary: 1 of 2\n",
		"Query database for users and calculate statistics": "Columns without statistics: id, bonus\n",
		"Query database for users, filter for salary not 90 and count them": "Rows without a value of salary: " +
			"1 of 2\nRows kept: 1 of 2\n",
	} {
		h := everydayHarness(t)
		h.write("servers/database/__init__.py", "def query(sql):\n    return "+salaries+"\n")
		if _, output, err := h.try(task); err != nil || !strings.Contains(output, want) {
			t.Errorf("%q: %v, printed %s, want %s", task, err, output, want)
		}
	}
}

// A task does not change a field that it does not name, nor one that it adds.
func TestFieldsThatExist(t *testing.T) {
	const (
		exists   = " already has a field "
		hasField = "fails doc.json has a field "
	)
	for _, c := range []struct{ content, task, want string }{
		{`{"result": 1}`, "Calculate 5 + 3 and save it to doc.json", "fails doc.json" + exists + "result"},
		{`{"Result": 1}`, "Calculate 5 + 3 and save the result in doc.json", "fails doc.json" + exists + "Result"},
		{`{"result": true}`, "Calculate 5 - 4 and save it to doc.json", "fails doc.json" + exists + "result"},
		{`{"result": 8}`, "Calculate 5 + 3 and save it to doc.json", `{"result":8}`},
		{`{"a": 1}`, "Calculate 5 + 3 and save it to doc.json", `{"a":1,"result":8}`},
		{`{"result": 1}`, "Calculate 5 + 3 and save it as result in doc.json", `{"result":8}`},
		{`{"n": 1}`, "Read doc.json and add a new field n with value 5", "fails doc.json" + exists + "n"},
		{`{"n": 1}`, "Read doc.json and create a new n field with 5", "fails doc.json" + exists + "n"},
		{`{"n": 1}`, "Read doc.json and set a new n field to 5", "fails doc.json" + exists + "n"},
		{`{"n": 1}`, "Read doc.json and add n = 5", "fails doc.json" + exists + "n"},
		{`{"n": 1}`, "Add n = 5 to doc.json", "fails doc.json" + exists + "n"},
		{`{"n": 1}`, "Add {\"n\": 5} to doc.json", "fails doc.json" + exists + "n"},
		{`{"n": 1}`, "Put {\"n\": 5} into doc.json", `{"n":5}`},
		{`{"n": 1}`, "Read doc.json, calculate 2 + 3 and add an n field with the result", "fails doc.json" + exists + "n"},
		{`{"n": 1, "a": [5]}`, "Read doc.json and add an n field with the sum of a", "fails doc.json" + exists + "n"},
		{
			`{"total": 1, "a": [5]}`, "Read doc.json and add a total field with the sum of a",
			`{"a":[5],"total":5}`,
		},
		{
			`{"total": 1}`, "Read doc.json, calculate 2 + 3, add a total field with the result",
			"fails doc.json" + exists + "total",
		},
		{`{"total": 1}`, "Read doc.json and add total = 5", "fails doc.json" + exists + "total"},
		{`{"n": 1}`, "Read doc.json and set the n field to 5", `{"n":5}`},
		{`{"n": 1}`, "Read doc.json and add a new field m with value 5", `{"m":5,"n":1}`},
		{`{"n": 1, "count": 3}`, "Read state.json and save the data to doc.json", "fails doc.json" + exists + "count"},
		{`{"n": 1, "count": 1}`, "Read state.json and save the data to doc.json", `{"doc.json":{"count":1,"n":1,` +
			`"results":[1]},"state.json":{"count":1,"results":[1]}}`},
		{`{"c": {}}`, `Write {"c.d": 7} to doc.json`, "fails doc.json has no field c.d, only c"},
		{`{"a": {"c": {}}}`, `Write {"a": {"c.d": 7}} to doc.json`, "fails doc.json has no field c.d, only c"},

		{`{"status": "x"}`, "Read doc.json and show the status", hasField + "status"},
		{`{"summary": 1}`, "Read doc.json and show the summary", hasField + "summary"},
		{`{"content": 1}`, "Read doc.json and show the content", hasField + "content"},
		{`{"Data": 1}`, "Read doc.json and show the data", hasField + "Data"},
		{`{"results": 1}`, "Read doc.json and show the content of the results", hasField + "results"},
		{`{"data": 1}`, "Read the data from doc.json", hasField + "data"},
		{`{"data": 1}`, "Get the data in doc.json", hasField + "data"},
		{`{"content": 1}`, "Show the content of doc.json", hasField + "content"},
		{`{"data": 1}`, "Read doc.json and save the data to b.json", hasField + "data"},
		{`{"data": 1}`, "Read doc.json and print it", `{"data":1}`},
		{`{"x": 1}`, "Read doc.json and show the status", `{"x":1}`},
		{`[1]`, "Read doc.json and show the status", `[1]`},

		{`{"x": 1}`, "Read doc.json, save 5 as x in state, and show the data", `refused "data"`},
		{`{"x": 1}`, "Read doc.json, save 5 as x in state, and print it", `refused "it"`},
		{`{"x": 1}`, "Read doc.json, save 5 as x in state, and set x to 6", `refused "6"`},
		{`{"x": 1}`, "Read doc.json, save 5 as x in state, and set x to 6 in doc.json", `{"doc.json":{"x":6},` +
			`"state.json":{"count":1,"results":[1],"x":5}}`},
		{`{"x": 1}`, "Save 5 as x in state. Save 6 as x in doc.json. Save 7 as y in state", `{"doc.json":{"x":6},` +
			`"state.json":{"count":1,"results":[1],"x":5,"y":7}}`},
		{`{"x": 1}`, "Read state.json and set a to 1. Read doc.json and set x to 6", `{"doc.json":{"x":6},` +
			`"state.json":{"a":1,"count":1,"results":[1]}}`},
		{`{"x": 1}`, "Read doc.json. Save 5 as x in state. How many users are there?", `{"count":3,"state":{` +
			`"doc.json":{"x":1},"state.json":{"count":1,"results":[1],"x":5}}}`},
	} {
		h := everydayHarness(t)
		h.write("workspace/doc.json", c.content)
		got, _, _ := strings.Cut(outcomeIn(h, c.task), "; name it with save or set")
		got = strings.TrimSuffix(got, ": name the field or the file")
		if got != c.want {
			t.Errorf("%q with %s:\n got %s\nwant %s", c.task, c.content, got, c.want)
		}
	}
}
