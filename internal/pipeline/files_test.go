package pipeline

import (
	"errors"
	"fmt"
	"testing"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/schemas"
)

// TestMisplacedFiles checks that a task places no files in the directories of the workspace that belong to the fleet, and
// none that Python would run and no version would have.
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
