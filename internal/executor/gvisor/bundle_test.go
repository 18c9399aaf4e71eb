package gvisor

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/executor"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestBundle(t *testing.T) {
	spec := executor.Spec{
		Name: "w0", Owner: "worker-1", Workspace: "/state/ws",
		Mounts: []executor.Mount{{Source: "/state/catalogue", Target: "/opt/codefleet", ReadOnly: true}},
		Env:    []string{"PATH=/usr/bin:/bin"},
	}
	args := []string{"/usr/bin/python3", "-I"}
	for name, b := range map[string]boxConfig{
		"root": {
			spec: spec, root: "/state/root",
			mounts: []executor.Mount{{Source: "/usr/lib", Target: "/usr/lib", ReadOnly: true}}, args: args,
		},
		"rootless": {spec: spec, root: "/images/python", rootless: true, args: args},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := json.MarshalIndent(b.config(), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
		})
	}
}

// fill makes files below dir. A value that begins with "-> " makes a symbolic link.
func fill(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(content, "-> "); link {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestCopyLink checks that a link that is out of date is replaced, and a file is not.
func TestCopyLink(t *testing.T) {
	host, root := t.TempDir(), t.TempDir()
	fill(t, host, map[string]string{"link": "-> new", "file": "x"})
	fill(t, root, map[string]string{"old": "-> old", "same": "-> new", "file": "y", "dir/file": "z"})
	for path, want := range map[string]string{
		"old": "new", "same": "new", "missing": "new", // links
		"file": "", "dir": "",
	} {
		if err := copyLink(filepath.Join(host, "link"), filepath.Join(root, path)); err != nil {
			t.Errorf("copyLink(%q) = %v, want nil", path, err)
		}
		if got, _ := os.Readlink(filepath.Join(root, path)); got != want {
			t.Errorf("copyLink(%q) leaves a link to %q, want %q", path, got, want)
		}
	}
	if err := copyLink(filepath.Join(host, "file"), filepath.Join(root, "old")); err != nil {
		t.Errorf("copyLink of a file = %v, want nil", err)
	}
	for path, want := range map[string]string{"file": "y", "dir/file": "z"} {
		if got, err := os.ReadFile(filepath.Join(root, path)); err != nil || string(got) != want {
			t.Errorf("file %s of the root = %q, %v, want %s", path, got, err, want)
		}
	}
}

func TestRootOfAMergedHost(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	host, root := t.TempDir(), t.TempDir()
	fill(t, host, map[string]string{
		"usr/bin/python3": "x", "usr/lib/libc.so": "x", "usr/local/bin/own": "x", "home/me/secret": "x",
		"bin": "-> usr/bin", "lib": "-> usr/lib",
		"etc/shadow": "secret", "etc/ld.so.cache": "cache",
		"etc/alternatives/awk": "-> /usr/bin/mawk", "etc/alternatives/mt": "-> /bin/mt-gnu",
		"etc/alternatives/awk.1.gz": "-> /usr/share/man/man1/mawk.1.gz", // boxes see no manual pages
	})
	for range 2 { // a second call finds everything in place
		if err := buildRoot(root, host); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			got = append(got, strings.TrimPrefix(path, root))
		}
		if err == nil && info.Mode().Perm()&0o044 != 0o044 {
			t.Errorf("%s has mode %v, want it readable by all users", path, info.Mode())
		}
		return err
	})
	want := []string{
		"/bin", "/etc/alternatives/awk", "/etc/alternatives/mt", "/etc/group", "/etc/hosts", "/etc/ld.so.cache",
		"/etc/passwd", "/lib",
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("files of the root (-want +got):\n%s%v", diff, err)
	}
	parts := []executor.Mount{
		{Source: filepath.Join(host, "usr/bin"), Target: "/usr/bin", ReadOnly: true},
		{Source: filepath.Join(host, "usr/lib"), Target: "/usr/lib", ReadOnly: true},
	}
	if diff := cmp.Diff(parts, partsOf(host)); diff != "" {
		t.Errorf("partsOf (-want +got):\n%s", diff)
	}
}

func TestFindPython(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  string // part of the error
	}{
		"link": {
			map[string]string{"usr/bin/python3": "-> python3.11", "usr/bin/python3.11": "\x7fELF..."}, "",
		},
		"absolute link": {map[string]string{"usr/bin/python3": "-> /opt/p", "opt/p": "\x7fELF..."}, ""},
		"missing":       {nil, "install python3 in the root file system"},
		"dangling link": {map[string]string{"usr/bin/python3": "-> nowhere"}, "install python3"},
		"shim": {
			map[string]string{"usr/bin/python3": "#!/bin/sh\nexec pyenv"}, "a script or a wrapper, not an interpreter",
		},
		"empty": {map[string]string{"usr/bin/python3": ""}, "not an interpreter"},
		"shim in /usr/local": {
			map[string]string{"usr/local/bin/python3": "#!/bin/sh", "usr/bin/python3": "\x7fELF..."}, "",
		},
		"loop of links": {map[string]string{"usr/bin/python3": "-> python3"}, "too many symbolic links"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			fill(t, root, test.files)
			_, err := findPython(t.Context(), root)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("findPython = %v, want an error with %q, or nil if that is empty", err, test.want)
			}
		})
	}
}

func TestCheckVersion(t *testing.T) {
	for output, want := range map[string]string{
		"python 3 9 0\n": "", "python 3 14 2\n": "",
		"python 3 8 18\n": "at least 3.9", "python 2 7 18\n": "at least 3.9", "": "read the version",
	} {
		err := checkVersion(output)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("checkVersion(%q) = %v, want an error with %q, or nil if that is empty", output, err, want)
		}
	}
}

func TestNamespaceHints(t *testing.T) {
	sysctls := t.TempDir()
	fill(t, sysctls, map[string]string{
		"kernel/apparmor_restrict_unprivileged_userns": "1\n",
		"kernel/unprivileged_userns_clone":             "0\n",
		"user/max_user_namespaces":                     "0\n",
	})
	got := bootError(errors.New("exit status 1"), "fork: operation not permitted", namespaceHints(sysctls)).Error()
	for _, want := range []string{
		"fork: operation not permitted",
		"sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
		"sudo sysctl -w kernel.unprivileged_userns_clone=1",
		"sudo sysctl -w user.max_user_namespaces=15000",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("error = %q, want it to contain %q", got, want)
		}
	}
	fill(t, sysctls, map[string]string{"free/x": ""})
	if hints := namespaceHints(filepath.Join(sysctls, "free")); len(hints) > 0 {
		t.Errorf("hints for a system without restrictions = %q; want none", hints)
	}
}

func TestDateOf(t *testing.T) {
	day := time.Date(2026, 9, 5, 0, 0, 0, 0, time.UTC)
	for version, want := range map[string]time.Time{
		"v0.0.0-20260905035102-160fafc42237": day,
		"release-20260905.0":                 day,
		"VERSION_MISSING":                    {},
		"release-20269905.0":                 {},
	} {
		if got := dateOf(version); !got.Equal(want) {
			t.Errorf("dateOf(%q) = %v, want %v", version, got, want)
		}
	}
}

func TestSettings(t *testing.T) {
	for name, test := range map[string]struct{ got, want []setting }{
		"v1": {settings(false, 300, 1.5), []setting{
			{"memory.swappiness", "0", true}, {
				"memory.limit_in_bytes", "314572800", false,
			}, {"cpu.cfs_quota_us", "150000", true},
		}},
		"v2": {settings(true, 300, 0.5), []setting{
			{"memory.oom.group", "1", true}, {
				"memory.swap.max", "0", true,
			}, {"memory.max", "314572800", false}, {"cpu.max", "50000 100000", false},
		}},
		"v2 without limits": {settings(true, 0, 0), []setting{
			{"memory.oom.group", "1", true}, {
				"memory.swap.max", "0", true,
			}, {"memory.max", "max", false}, {"cpu.max", "max 100000", false},
		}},
	} {
		if diff := cmp.Diff(test.want, test.got, cmp.AllowUnexported(setting{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestCgroupsVersion2 uses regular files in place of a cgroup hierarchy.
func TestCgroupsVersion2(t *testing.T) {
	mount := t.TempDir()
	fill(t, mount, map[string]string{"cgroup.controllers": "cpu io memory pids"})
	c := findCgroups(mount)
	if !c.v2 || len(c.roots) != 1 {
		t.Fatalf("findCgroups = %+v, want one version 2 hierarchy", c)
	}
	g, err := c.create("/state/worker-1", "w0")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.add(77); err != nil {
		t.Fatal(err)
	}
	control, err := os.ReadFile(filepath.Join(mount, "codefleet", "cgroup.subtree_control"))
	if err != nil || string(control) != "+memory +cpu" {
		t.Errorf("subtree_control = %q, %v; want \"+memory +cpu\"", control, err)
	}
	fill(t, g.dirs[0], map[string]string{
		"memory.events": "low 0\noom 2\noom_kill 1\n", "memory.current": "41943040\n",
		"memory.stat": "anon 20971520\nfile 20971520\nshmem 10485760\n",
		"cpu.stat":    "usage_usec 1500\nuser_usec 900\n",
		"memory.max":  "", "cpu.max": "",
	})
	if err := g.apply(settings(true, 1, 1)); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(g.dirs[0], "memory.max")); string(got) != "1048576" {
		t.Errorf("memory.max = %q, want 1048576", got)
	}
	if !g.outOfMemory() {
		t.Error("outOfMemory with oom_kill 1 = false, want true")
	}
	if got, want := g.stats(), (executor.Stats{MemoryMB: 30, CPUMS: 1.5}); got != want {
		t.Errorf("stats = %+v, want %+v", got, want)
	}
}

func TestFindCgroups(t *testing.T) {
	bare, hybrid := t.TempDir(), t.TempDir()
	fill(t, hybrid, map[string]string{
		"memory/memory.limit_in_bytes": "", "cpu,cpuacct/cpu.shares": "",
		"cpu": "-> cpu,cpuacct", "cpuacct": "-> cpu,cpuacct",
	})
	if c := findCgroups(bare); c.enabled() {
		t.Errorf("findCgroups without hierarchies = %+v; want it disabled", c)
	}
	want := []string{filepath.Join(hybrid, "memory"), filepath.Join(hybrid, "cpu,cpuacct")}
	if diff := cmp.Diff(want, findCgroups(hybrid).roots); diff != "" {
		t.Errorf("findCgroups of version 1 (-want +got):\n%s", diff)
	}
}

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"w0": true, "host.example-1_b": true,
		"": false, ".": false, "..": false, "a/b": false, "a b": false, "a:b": false, "a,b": false, "a\x00": false,
	} {
		if got := validName(name); got != want {
			t.Errorf("validName(%q) = %t, want %t", name, got, want)
		}
	}
}
