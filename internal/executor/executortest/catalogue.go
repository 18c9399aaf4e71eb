package executortest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
)

// testCompiled imports modules of two catalogue versions, which the runner compiles for later programs. It checks
// that no program can change the modules of the next one.
func testCompiled(t *testing.T, b *box, catalogue string) {
	for _, version := range []string{"v2", "v3"} {
		writeFiles(t, filepath.Join(catalogue, version, "servers"), map[string]string{
			"__init__.py":         "",
			"letters/__init__.py": "",
			"letters/which.py":    fmt.Sprintf("def which():\n    return %q\n", version),
		})
	}
	// This program returns the module's result, whether it was compiled ahead, and whether its source can be read.
	const which = "import inspect\nfrom servers.letters import which\n" +
		"[which.which(), type(which.__loader__).__module__ == 'codefleet.catalogue', 'def which' in " +
		"inspect.getsource(which)]"
	run := func(version, code, result string) {
		t.Helper()
		v := b.runProgram(t, executor.Program{Catalogue: version, Code: code}, executor.Hooks{})
		want{result: result}.check(t, v)
	}
	run("v2", which, `["v2",false,true]`)
	run("v2", which, `["v2",true,true]`)
	run("v3", which, `["v3",false,true]`)
	run("v3", which, `["v3",true,true]`)
	run("v2", which, `["v2",false,true]`)

	// Modules that a program leaves in memory or in files do not replace the catalogue's.
	run("v2", `
import os, py_compile, sys, types
from servers.letters import which
which.which = lambda: "changed"
letters = "servers/letters/"
names = ["__init__.py", "which.py", "evil.py"]
for path in ["servers/__init__.py", "servers/evil.py"] + [letters + name for name in names]:
    try:
        os.makedirs("servers/letters/__pycache__", exist_ok=True)
        with open(path, "w") as f: f.write("def which(): return 'evil'")
        py_compile.compile(path, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    except OSError: # the directory is read-only
        pass
for name in "servers.evil", "servers.letters.evil", "servers.letters.../evil", "servers." + "x" * 300, 7:
    sys.modules[name] = types.ModuleType("x")
sys.modules["servers.letters"].__file__ = "/workspace/servers/letters/__init__.py"
which.which()`, `"changed"`)
	run("v2", which, `["v2",true,true]`)
	run("v2", "try:\n  from servers.letters import evil\nexcept ImportError:\n  result = 'none'\nNone", `"none"`)
	first := "import sys\nsys.path.insert(0, '/workspace')\n"
	run("v3", first+which, `["v3",false,true]`)
	run("v3", first+which, `["v3",true,true]`)
	wantWithoutCatalogue := `"evil"` // the program finds the module that is in the workspace
	if b.spec.Views != "" {
		wantWithoutCatalogue = `"none"`
	}
	run("", "import servers\ngetattr(servers, 'which', lambda: 'none')()", wantWithoutCatalogue)

	for _, forged := range []string{
		"7", "{}", "[7]", "['servers.../evil']", "['os']", "['servers.a.b.c']", "['servers.a\\n']",
		"['servers'] * 300",
	} {
		v := b.runProgram(t, executor.Program{Catalogue: "v2", Code: `
import json, os, time
line = json.dumps({"t": "end", "modules": ` + forged + `}).encode() + b"\n"
os.write(3, len(line).to_bytes(4, "big") + line)
time.sleep(60)`}, executor.Hooks{})
		want{status: executor.Failed, code: errcode.ChannelBroken}.check(t, v)
	}
	run("v2", which, `["v2",false,true]`)
	b.checkNext(t)
}

// writeFiles writes files below a directory, by their relative paths.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}
