package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/schemas"
)

// TestMisplacedFiles checks that a task places no files in the directories of the workspace that belong to the fleet,
// and none that Python would run and no version would have.
func TestMisplacedFiles(t *testing.T) {
	tree, err := state.New(mem.New(), state.Options{}).Tree(t.TempDir(), state.Ref{Tenant: "acme", Workspace: "main"})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	text := "x"
	for name, refused := range map[string]bool{
		"servers/calculator/add.py": true, "servers": true, "client/mcp_client.py": true, "lost+found/x": true,
		"__pycache__/m.cpython-311.pyc": true, "a/__pycache__/m.pyc": true, "a/__pycache__": true, ".venv/x": true,
		"a/node_modules/x": true, ".venv": false, "a.pyc": false,
		"data/servers/x.py": false, "state/x.json": false,
	} {
		err := writeFiles([]schemas.File{{Name: "a.txt", Text: &text}, {Name: name, Text: &text}}, tree)
		e, ok := errors.AsType[*schemas.Error](err)
		if ok != refused || err == nil == refused ||
			refused && (e.Code != errcode.BadFile || fmt.Sprintf("%.9s", e.Message) != "/files/1:") {
			t.Errorf("writeFiles(%s) = %v, refused: %v, want %v", name, err, ok, refused)
		}
	}
}

// TestLogHasNoNames checks that the log of a failed revert does not name a program's files.
func TestLogHasNoNames(t *testing.T) {
	store := state.New(mem.New(), state.Options{})
	dir := t.TempDir()
	tree, err := store.Tree(dir, state.Ref{Tenant: "acme", Workspace: "main"})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if _, err = store.Checkout(t.Context(), tree, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, strings.Repeat("jane-doe/", 129)), 0o755); err != nil {
		t.Fatal(err)
	}
	tooDeep := store.Revert(t.Context(), tree)
	if tooDeep == nil || !strings.Contains(tooDeep.Error(), "jane-doe") {
		t.Fatalf("Revert() of deep directories = %v, want an error that names them", tooDeep)
	}
	removal := fmt.Errorf("remove: %w", &fs.PathError{Op: "unlinkat", Path: "jane-doe", Err: syscall.EPERM})
	for want, err := range map[string]error{
		"the files exceed a limit of all workspaces": tooDeep,
		"operation not permitted":                    removal,
		"context canceled":                           fmt.Errorf("read jane-doe: %w", context.Canceled),
		"the workspace could not be brought back":    errors.New("jane-doe is not a directory"),
	} {
		if got := withoutPaths(err); got != want {
			t.Errorf("withoutPaths(%v) = %q, want %q", err, got, want)
		}
	}
}
