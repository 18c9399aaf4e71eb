package executor

import (
	"errors"
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

// TestSkillLinks checks which saved skills a workspace shows while a program runs, and what is left afterwards.
func TestSkillLinks(t *testing.T) {
	store, outside := t.TempDir(), t.TempDir()
	v := &views{store: store}
	for _, name := range []string{"own", "saved", "gone", "changed", "index.json"} {
		if err := os.MkdirAll(filepath.Join(store, "v1/skills", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	workspace := t.TempDir()
	skills := filepath.Join(workspace, "skills")
	own := filepath.Join(skills, "own")
	err := errors.Join(os.Mkdir(skills, 0o700), os.Symlink("main.py", own))
	if err != nil {
		t.Fatal(err)
	}
	made, err := v.linkSkills(workspace, "v1")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"own": "main.py", "saved": "/opt/codefleet/v1/skills/saved", "gone": "/opt/codefleet/v1/skills/gone",
		"changed": "/opt/codefleet/v1/skills/changed",
	}
	if diff := cmp.Diff(want, links(t, skills)); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	// A program removes one link, replaces another, and removes its access to the directory.
	changed := filepath.Join(skills, "changed")
	err = errors.Join(os.Remove(filepath.Join(skills, "gone")), os.Remove(changed), os.Symlink("mine", changed),
		os.Chmod(skills, 0))
	if err = errors.Join(err, unlinkSkills(workspace, made)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"own": "main.py", "changed": "mine"}, links(t, skills)); diff != "" {
		t.Errorf("links afterwards (-want +got):\n%s", diff)
	}
	if info, err := os.Lstat(skills); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("stat of skills afterwards = %v, %v, want mode 0700", info, err)
	}

	// A program moves the directory to one without access.
	made, err = v.linkSkills(workspace, "v1")
	elsewhere := filepath.Join(workspace, "a/b\xff")
	err = errors.Join(err, os.MkdirAll(filepath.Dir(elsewhere), 0o700), os.Rename(skills, elsewhere),
		os.Chmod(filepath.Dir(elsewhere), 0))
	if err = errors.Join(err, unlinkSkills(workspace, made)); err != nil || len(made) != 2 {
		t.Fatalf("unlinkSkills of %v = %v, want nil, and the links saved and gone", made, err)
	}
	if diff := cmp.Diff(map[string]string{"own": "main.py", "changed": "mine"}, links(t, elsewhere)); diff != "" {
		t.Errorf("links in a directory that a program has moved (-want +got):\n%s", diff)
	}
	// Root could read the directory even if it had no access.
	if info, err := os.Stat(filepath.Dir(elsewhere)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("stat of the directory without access afterwards = %v, %v, want mode 0700", info, err)
	}

	for name, place := range map[string]func() error{
		"nothing": func() error { return nil },
		"a file":  func() error { return os.WriteFile(skills, nil, 0o600) },
		"a link":  func() error { return os.Symlink(outside, skills) },
	} {
		if err := errors.Join(os.RemoveAll(skills), place()); err != nil {
			t.Fatal(err)
		}
		if made, err := v.linkSkills(workspace, "v1"); len(made) > 0 || err != nil || len(links(t, outside)) > 0 {
			t.Errorf("linkSkills with %s in place of skills = %v, %v, outside %v; want no links", name, made, err,
				links(t, outside))
		}
	}
	for _, none := range []*views{nil, {}, v} {
		if made, err := none.linkSkills(workspace, "v2"); made != nil || err != nil {
			t.Errorf("linkSkills without skills = %v, %v, want nil, nil", made, err)
		}
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
