package schemas

import "testing"

func TestTaskSummary(t *testing.T) {
	for _, c := range []struct {
		task Task
		want string
	}{
		{Task{Description: " Add 5 and 3 \n"}, "Add 5 and 3"},
		{Task{Code: "x = 1", Labels: map[string]string{"description": "Add"}}, "Add"},
		{
			Task{Code: "\n# -*- coding -*-\nimport os\nfrom servers.a import b\n\n  print(b(os.getpid()))\nx = 2"},
			"print(b(os.getpid()))",
		},
		{Task{Code: "#!/usr/bin/python3\n\"\"\"Count the orders.\n\nMore.\"\"\"\nprint(1)"}, "Count the orders."},
		{Task{Code: "'''\n  Count the orders. '''\nprint(1)"}, "Count the orders."},
		{Task{Code: "'''\n'''\nprint(1)"}, "print(1)"},
		{Task{Code: "''''''\nprint(1)"}, "print(1)"},
		{Task{Code: "text = '''a\nb'''"}, "text = '''a"},
		{Task{Code: "# nothing yet\nimport os"}, "nothing yet"},
		{Task{Code: "import os\n# nothing yet"}, "import os"},
		{Task{Code: "importlib = 1"}, "importlib = 1"},
		{
			Task{Code: "from a import (  # (\n  find,\n\n  # more)\n  update,\n)\nimport a, \\\n  b\nprint(find())"},
			"print(find())",
		},
		{Task{Code: "from a import (b, c)\nprint(b)"}, "print(b)"},
		{Task{Code: "from a import (\n  b,"}, "from a import ("},
		{Task{Code: " \n"}, ""},
		{Task{Skill: "report"}, "skill report"},
		{Task{Workflow: []byte(`{}`)}, "workflow"},
		{Task{}, ""},
	} {
		if got := c.task.Summary(); got != c.want {
			t.Errorf("Summary of %+v = %q, want %q", c.task, got, c.want)
		}
	}
}

func TestRecordSummary(t *testing.T) {
	for _, c := range []struct {
		record Record
		want   string
	}{
		{Record{Description: "Add 5 and 3", Code: "x = 1"}, "Add 5 and 3"},
		{Record{Code: "import os\nx = 1"}, "x = 1"}, // written by an earlier version
		{Record{Code: "x = 1", Result: &Result{Labels: map[string]string{"description": "Add"}}}, "Add"},
		{Record{}, ""},
	} {
		if got := c.record.Summary(); got != c.want {
			t.Errorf("Summary of %+v = %q, want %q", c.record, got, c.want)
		}
	}
}
