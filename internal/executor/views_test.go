package executor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestViews checks which packages the view of servers/ shows after each change of the catalogue version.
func TestViews(t *testing.T) {
	store := t.TempDir()
	for _, file := range []string{
		"v1/servers/a/x.py", "v1/servers/__init__.py", "v2/servers/a/x.py", "v2/servers/b/x.py",
	} {
		path := filepath.Join(store, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spec := Spec{
		Workspace: t.TempDir(), Views: filepath.Join(t.TempDir(), "views"),
		Mounts: []Mount{{Source: store, Target: "/opt/codefleet", ReadOnly: true}},
	}
	v, err := mountViews(&spec)
	if err != nil {
		t.Fatal(err)
	}
	want := []Mount{
		{Source: store, Target: "/opt/codefleet", ReadOnly: true},
		{Source: filepath.Join(spec.Views, "servers"), Target: "/workspace/servers", ReadOnly: true},
		{Source: filepath.Join(spec.Views, "client"), Target: "/workspace/client", ReadOnly: true},
	}
	if diff := cmp.Diff(want, spec.Mounts); diff != "" {
		t.Errorf("Mounts (-want +got):\n%s", diff)
	}
	for _, step := range []struct {
		version string
		links   map[string]string
	}{
		{"", map[string]string{}},
		{"v1", map[string]string{
			"a": "/opt/codefleet/v1/servers/a", "__init__.py": "/opt/codefleet/v1/servers/__init__.py",
		}},
		{"v2", map[string]string{"a": "/opt/codefleet/v2/servers/a", "b": "/opt/codefleet/v2/servers/b"}},
		{"missing", map[string]string{}},
		{"v2", map[string]string{"a": "/opt/codefleet/v2/servers/a", "b": "/opt/codefleet/v2/servers/b"}},
		{"", map[string]string{}},
	} {
		if err := v.show(step.version); err != nil {
			t.Errorf("show(%s) = %v, want nil", step.version, err)
		}
		if diff := cmp.Diff(step.links, links(t, v.servers)); diff != "" {
			t.Errorf("show(%s) (-want +got):\n%s", step.version, diff)
		}
	}

	obstacle := filepath.Join(v.servers, "x")
	if err := os.MkdirAll(filepath.Join(obstacle, "y"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := v.show("v1"); err == nil {
		t.Error("show(v1) = nil, want an error about a directory that cannot be removed")
	}
	if err := os.RemoveAll(obstacle); err != nil {
		t.Fatal(err)
	}
	// The version is the one from before the error, but show must remove the links that the failed call made.
	if err := v.show(""); err != nil || len(links(t, v.servers)) > 0 {
		t.Errorf("show() after an error = %v, links %v, want nil and no links", err, links(t, v.servers))
	}
	if none, err := mountViews(&Spec{}); none != nil || err != nil || none.show("v1") != nil {
		t.Errorf("mountViews() without Spec.Views = %v, %v, want nil, nil, and show(v1) = nil", none, err)
	}
}

// links returns the targets of the symbolic links in a directory, by name.
func links(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, entry := range entries {
		if found[entry.Name()], err = os.Readlink(filepath.Join(dir, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return found
}
