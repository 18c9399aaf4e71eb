package executortest

import (
	"testing"

	"github.com/codefleet/codefleet/internal/executor"
)

// testPackages shows a directory of packages of the host in a box, where every program finds it.
func testPackages(t *testing.T, newDriver newDriver) {
	layer := workspace(t)
	put(t, layer, map[string]string{"greeting/__init__.py": "WORD = 'hello'\n", "json/__init__.py": "WORD = 'not ours'\n"})
	driver := newDriver(t)
	if _, ok := driver.(Host); ok {
		t.Skip("plain processes of the host have no directories of their own")
	}
	b := open(t, driver, executor.Spec{Mounts: []executor.Mount{{Source: layer, Target: executor.PackagesDir, ReadOnly: true}}})
	for _, c := range []struct {
		name, code string
		want       want
	}{
		{"one is imported", "import greeting\n[greeting.WORD, greeting.__file__]", want{result: `["hello","/opt/packages/greeting/__init__.py"]`}},
		{"a process of the program finds it", "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import greeting; print(greeting.WORD)'], check=True) and None", want{output: "hello\n"}},
		{"Python's own come first", "import json\njson.dumps(1)", want{result: `"1"`}},
		{
			"one is written to", "open('/opt/packages/greeting/__init__.py', 'a')",
			want{status: "failed", code: "exception", message: "Error", line: 1},
		},
		{
			"one is added", "open('/opt/packages/new.py', 'w')",
			want{status: "failed", code: "exception", message: "Error", line: 1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.check(t, b.must(t, executor.Program{Code: c.code}, executor.Hooks{}))
			b.check(t)
		})
	}
}
