package executortest

import (
	"errors"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/executor"
)

// testPackages mounts a package layer in a box.
func testPackages(t *testing.T, newDriver driverFunc) {
	layer := openDir(t)
	writeFiles(t, layer, map[string]string{
		"greeting/__init__.py": "WORD = 'hello'\n",
		"json/__init__.py":     "WORD = 'not ours'\n",
	})
	driver := newDriver(t)
	if _, ok := driver.(Host); ok {
		t.Skip("driver host has no mounts")
	}
	mount := executor.Mount{Source: layer, Target: executor.PackagesDir, ReadOnly: true}
	b := open(t, driver, executor.Spec{Mounts: []executor.Mount{mount}})
	for _, c := range []struct {
		name, code string
		want       want
	}{
		{
			"import", "import greeting\n[greeting.WORD, greeting.__file__]",
			want{result: `["hello","/opt/packages/greeting/__init__.py"]`},
		},
		{
			"import in a subprocess",
			"import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import greeting; " +
				"print(greeting.WORD)'], check=True) and None",
			want{output: "hello\n"},
		},
		{"the standard library comes first", "import json\njson.dumps(1)", want{result: `"1"`}},
		{
			"write to a package", "open('/opt/packages/greeting/__init__.py', 'a')",
			want{status: "failed", code: "exception", message: "Error", line: 1},
		},
		{
			"add a package", "open('/opt/packages/new.py', 'w')",
			want{status: "failed", code: "exception", message: "Error", line: 1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.check(t, b.run(t, c.code))
			b.checkNext(t)
		})
	}
}

// testPreload creates boxes that preload modules, including badly behaved ones.
func testPreload(t *testing.T, newDriver driverFunc) {
	driver := newDriver(t)
	if _, ok := driver.(Host); ok {
		t.Skip("driver host has no mounts")
	}
	layer := openDir(t)
	writeFiles(t, layer, map[string]string{
		"prints.py":  "import os\nprint('hello from prints')\nos.write(1, b'hello from prints')",
		"reads.py":   "import sys\nread = sys.stdin.read()",
		"leaves.py":  "import os, tempfile\nkept = tempfile.mkstemp()\nos.makedirs('/tmp/of/leaves', 0o700)",
		"threads.py": "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
		"raises.py":  "raise ValueError('no licence')",
		"exits.py":   "raise SystemExit('no display')",
		"crashes.py": "import os\nos._exit(9)",
		"warns.py":   "import warnings\nwarnings.simplefilter('always')",
	})
	spec := executor.Spec{
		Owner: "executortest", Name: "preload",
		Mounts: []executor.Mount{{Source: layer, Target: executor.PackagesDir, ReadOnly: true}},
	}
	for _, name := range []string{"prints", "reads", "leaves", "threads"} {
		t.Run(name, func(t *testing.T) {
			first := template(t, driver, spec, name)
			spec.Workspace = workspace(t)
			single, err := first.Another(t.Context(), spec)
			if err != nil {
				t.Fatalf("Another() = %v, want nil", err)
			}
			v, err := single.Run(t.Context(),
				executor.Program{
					TaskID: "t", Code: "import os, sys\n['" + name + "' in sys.modules, os.listdir('/tmp')]",
				}, executor.Hooks{})
			if err != nil {
				t.Fatalf("Run() = %v, want nil", err)
			}
			want{result: "[true,[]]"}.check(t, v)
			if err := single.Close(t.Context()); err != nil {
				t.Errorf("Close() = %v, want nil", err)
			}
		})
	}
	t.Run("warns", func(t *testing.T) {
		first := template(t, driver, spec, "warns")
		spec.Workspace = workspace(t)
		writeFiles(t, spec.Workspace, map[string]string{"program.py": "another = 'file'\n"})
		single, err := first.Another(t.Context(), spec)
		if err != nil {
			t.Fatalf("Another() = %v, want nil", err)
		}
		v, err := single.Run(t.Context(), executor.Program{TaskID: "t", Code: `own = '\d'`}, executor.Hooks{
			Check: func(executor.Facts) error { return nil },
		})
		if err != nil || v.Status != executor.Succeeded || !strings.Contains(v.Stderr, "invalid escape sequence") ||
			!strings.HasSuffix(v.Stderr, "\n  own = '\\d'\n") {
			t.Errorf("Run() = %s, %v; want success, and a warning that quotes the program", format(v), err)
		}
		if err := single.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	})
	for name, text := range map[string]string{
		"nowhere": "ModuleNotFoundError: No module named 'nowhere'",
		"raises":  "/opt/packages/raises.py\", line 1, in <module>",
		"exits":   "ended with code 1 before it was ready (EOF): no display",
		"crashes": "ended with code 9",
	} {
		t.Run(name, func(t *testing.T) {
			spec.Workspace = workspace(t)
			_, err := executor.NewPreloaded(t.Context(), driver, spec, []string{"json", name}, "")
			host, ok := errors.AsType[*executor.HostError](err)
			if !ok || host.Reason != executor.ReasonPreload || host.Fix == "" ||
				!strings.Contains(err.Error(), "preload of "+name+": ") || !strings.Contains(err.Error(), text) {
				t.Errorf("NewPreloaded() = %v, want a HostError with the module %s and %q", err, name, text)
			}
		})
	}
}
