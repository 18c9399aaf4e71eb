package tools_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/tools"
)

func newShelf(t *testing.T) (shelf *tools.Shelf, write func(name, text string)) {
	t.Helper()
	dir := t.TempDir()
	shelf, err := tools.OpenShelf(tools.OpenCatalogue(dir, tools.Options{Check: tools.PythonChecker("")}),
		filepath.Join(t.TempDir(), "versions"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return shelf, func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func current(t *testing.T, s *tools.Shelf) (version string, snap *tools.Snapshot) {
	t.Helper()
	version, snap, err := s.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return version, snap
}

func TestShelfFollowsTheFiles(t *testing.T) {
	shelf, write := newShelf(t)
	write("mine/f.py", "from ._help import one\n\ndef f():\n    return one()\n")
	write("mine/_help.py", "def one():\n    return 1\n")
	v1, snap := current(t, shelf)
	if len(snap.Tools) != 1 || snap.Tools[0].ID() != "mine/f" || len(snap.Broken) > 0 {
		t.Fatalf("tools = %v, broken %v", snap.Tools, snap.Broken)
	}
	if v, same := current(t, shelf); v != v1 || same != snap {
		t.Errorf("nothing changed, and version %s became %s", v1, v)
	}
	write("mine/g.py", "def g():\n    return 2\n")
	v2, snap := current(t, shelf)
	if v2 == v1 || len(snap.Tools) != 2 {
		t.Errorf("a new file: version %s, then %s with %d tools", v1, v2, len(snap.Tools))
	}
	write("mine/_help.py", "def one():\n    return 1000\n")
	v3, _ := current(t, shelf)
	for v, want := range map[string]string{v1: "return 1\n", v2: "return 1\n", v3: "return 1000\n"} {
		got, err := os.ReadFile(filepath.Join(shelf.Dir(), v, "servers/mine/_help.py"))
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("helper in version %s = %q, %v, want %q", v, got, err, want)
		}
	}
}

func TestShelfOutlivesBrokenFiles(t *testing.T) {
	shelf, write := newShelf(t)
	write("mine/f.py", "def f():\n    return 1\n")
	v1, _ := current(t, shelf)
	write("mine/_help.py", "def one(:\n")
	write("approvals.json", "{")
	if v, snap := current(t, shelf); v != v1 || len(snap.Tools) != 1 {
		t.Errorf("with unreadable approvals: version %s with %d tools, want %s", v, len(snap.Tools), v1)
	}
	write("approvals.json", "{}")
	v2, snap := current(t, shelf)
	if len(snap.Broken) != 1 || snap.Broken[0].Path != "mine/_help.py" || snap.Broken[0].Line != 1 {
		t.Errorf("broken = %v, want line 1 of mine/_help.py", snap.Broken)
	}
	if _, err := os.Stat(filepath.Join(shelf.Dir(), v2, "servers/mine/_help.py")); err == nil {
		t.Error("a broken file is in the version")
	}
}
