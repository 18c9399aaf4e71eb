package toolstest

import (
	"flag"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/builtin"
	"github.com/codefleet/codefleet/internal/tools/mcp"
	"github.com/codefleet/codefleet/internal/tools/pygen"
	"github.com/codefleet/codefleet/servers"
)

var update = flag.Bool("update", false, "write the shipped servers tree")

// The shipped tree must be what the generator produces from the built-in servers, with approvals.
func TestShippedTreeIsCurrent(t *testing.T) {
	want := shippedTree(t)
	if *update {
		for name, data := range want {
			target := filepath.Join("..", "..", "..", "servers", filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(target, []byte(data), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	for name, data := range want {
		got, err := fs.ReadFile(servers.FS, name)
		if err != nil {
			t.Errorf("read servers/%s = %v, want nil (run with -update)", name, err)
		} else if diff := cmp.Diff(data, string(got)); diff != "" {
			t.Errorf("servers/%s is out of date (run with -update) (-want +got):\n%s", name, diff)
		}
	}
}

func shippedTree(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{"__init__.py": string(tools.Support)}
	approvals := tools.Approvals{}
	m := inProcess(t)
	for _, name := range builtin.Names() {
		defs, about, err := m.Definitions(t.Context(), name, "", "")
		if err != nil {
			t.Fatal(err)
		}
		p, err := pygen.Generate(pygen.Source{Server: name, About: about, Tools: defs})
		if err != nil {
			t.Fatal(err)
		}
		for file, data := range p.Files {
			files[path.Join(p.Dir, file)] = string(data)
		}
		for _, d := range defs {
			approvals.Approve(name, d, "shipped", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		}
	}
	dir := t.TempDir()
	if err := approvals.Save(dir); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, tools.ApprovalsFile))
	if err != nil {
		t.Fatal(err)
	}
	files[tools.ApprovalsFile] = string(data)
	for server, exports := range map[string][]tools.Export{
		"filesystem": {
			{Module: "read_file", Function: "read_file"},
			{Module: "write_file", Function: "write_file"},
			{Module: "list_directory", Function: "list_directory"},
		},
		"database": {
			{Module: "query", Function: "query"},
			{Module: "execute", Function: "execute"},
			{Module: "list_tables", Function: "list_tables"},
		},
	} {
		files[server+"/__init__.py"] = string(tools.PackageInit("Tools on the task's workspace: "+server+".", exports))
	}
	return files
}

// inProcess returns a manager of the built-in servers, which run in this process on a fixed day.
func inProcess(t *testing.T) *mcp.Manager {
	t.Helper()
	var list []mcp.Server
	for _, name := range builtin.Names() {
		s, err := builtin.New(name,
			builtin.Options{Now: func() time.Time { return time.Date(2026, 7, 1, 15, 4, 5, 0, time.UTC) }})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, mcp.Server{Name: name, InProcess: s})
	}
	m, err := mcp.NewManager(list, mcp.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}
