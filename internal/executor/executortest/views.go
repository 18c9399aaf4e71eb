package executortest

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/executor"
)

// testViews checks that programs see the modules of their tools in the workspace, and that nothing they do there
// changes what the next program sees.
func testViews(t *testing.T, newDriver driverFunc) {
	catalogue := openDir(t)
	for version, tool := range map[string]string{"v1": "add", "v2": "multiply"} {
		writeFiles(t, filepath.Join(catalogue, version, "servers"), map[string]string{
			"__init__.py":                "",
			"calculator/__init__.py":     "",
			"calculator/" + tool + ".py": tool + " = '" + version + "'\n",
			"weather/__init__.py":        "from client import mcp_client\nmcp_client.call_mcp_tool('weather', 'get')\n",
		})
	}
	b := open(t, newDriver(t), executor.Spec{Mounts: []executor.Mount{{
		Source: catalogue, Target: executor.DefaultGuest().Catalogue, ReadOnly: true,
	}}})
	if b.spec.Views == "" {
		t.Skipf("driver %s has no mounts", b.info.Driver)
	}
	describe := func(t *testing.T, version string) string {
		t.Helper()
		v := b.runProgram(t, executor.Program{Catalogue: version, Code: describeViews}, executor.Hooks{})
		want{}.check(t, executor.Verdict{Status: v.Status, Error: v.Error, Result: []byte("null")})
		return string(v.Result)
	}
	checkViews := func(t *testing.T) {
		for _, c := range []struct{ version, want string }{
			{"", `[["client","servers"],[],[],true]`},
			{"v1", `[["client","servers"],["__init__.py","calculator","weather"],["__init__.py","add.py"],true]`},
			{"v2", `[["client","servers"],["__init__.py","calculator","weather"],["__init__.py","multiply.py"],true]`},
			{"gone", `[["client","servers"],[],[],true]`},
			{"", `[["client","servers"],[],[],true]`},
		} {
			code := "import os\ndef names(path):\n  return sorted(os.listdir(path)) if os.path.exists(path) else []\n" +
				"[names('/workspace'), names('servers'), names('servers/calculator'), " +
				"'def call_mcp_tool' in open('client/mcp_client.py').read()]"
			v := b.runProgram(t, executor.Program{Catalogue: c.version, Code: code}, executor.Hooks{})
			want{result: c.want}.check(t, v)
		}
	}
	t.Run("what programs see", checkViews)
	t.Run("another process", func(t *testing.T) {
		v := b.runProgram(t, executor.Program{Catalogue: "v1", Code: `
import subprocess, sys
run = subprocess.run([sys.executable, "-c", "import servers.weather"], capture_output=True, text=True)
run.stderr.splitlines()[-1]`}, executor.Hooks{})
		want{result: `"client.mcp_client.ToolError: weather.get: only the main process of the program can call tools, ` +
			`in any of its threads; forked processes cannot"`}.check(t, v)
	})
	t.Run("saved skills", func(t *testing.T) { testSkillLink(t, b, catalogue) })
	for name, code := range viewAttacks {
		t.Run(name, func(t *testing.T) {
			for _, version := range []string{"v1", ""} {
				before := describe(t, version)
				v := b.runProgram(t, executor.Program{Catalogue: version, Code: attackViews + code}, executor.Hooks{})
				if v.Status != executor.Succeeded || v.Dirty || string(v.Result) != "[]" {
					t.Errorf("program = %s, want success, and no attempt that succeeded", format(v))
				}
				checkMountPoints(t, b.spec.Workspace)
				emptyWorkspace(t, b.spec.Workspace)
				if diff := cmp.Diff(before, describe(t, version)); diff != "" {
					t.Errorf("the next program sees other tools (-before +after):\n%s", diff)
				}
			}
		})
	}
	b.restart(t)
	t.Run("what programs see in a new box", checkViews)
}

// testSkillLink checks that programs find a saved skill through a link that the host adds to the workspace while the
// box runs, that they cannot change the skill, and that the next program finds none after the link is removed.
func testSkillLink(t *testing.T, b *box, catalogue string) {
	const skill = "v1/skills/double"
	writeFiles(t, filepath.Join(catalogue, skill), map[string]string{
		"__init__.py":    "from .scripts.run import run\n",
		"scripts/run.py": "def run(x):\n  return 2 * x\n",
		"data.txt":       "words",
	})
	dir := filepath.Join(b.spec.Workspace, "skills")
	target := path.Join(executor.DefaultGuest().Catalogue, skill)
	err := errors.Join(os.Mkdir(dir, 0o755), os.Symlink(target, filepath.Join(dir, "double")))
	if err != nil {
		t.Fatal(err)
	}
	v := b.runProgram(t, executor.Program{Catalogue: "v1", Code: `
import os
from skills.double import run
try:
    open("skills/double/data.txt", "w")
    written = True
except OSError:
    written = False
[run(4), open("skills/double/data.txt").read(), os.listdir("skills"), written]`}, executor.Hooks{})
	want{result: `[8,"words",["double"],false]`}.check(t, v)
	emptyWorkspace(t, b.spec.Workspace)
	want{result: "false"}.check(t, b.run(t, "import os\nos.path.lexists('skills/double')"))
}

// checkMountPoints checks that a program has written nothing below the mount points on the host.
func checkMountPoints(t *testing.T, workspace string) {
	t.Helper()
	for _, name := range []string{"client", "servers"} {
		info, err := os.Lstat(filepath.Join(workspace, name))
		if err != nil || info.Mode() != os.ModeDir|0o755 {
			t.Errorf("mount point %s = %v, %v, want a directory with mode 0755", name, info, err)
		}
		if entries, err := os.ReadDir(filepath.Join(workspace, name)); len(entries) > 0 || err != nil {
			t.Errorf("mount point %s contains %v, %v, want nothing", name, entries, err)
		}
	}
}

// describeViews returns everything that a program can read about the views, except the modification times of their root
// directories, which the kernel of a virtual machine rereads only on occasion.
const describeViews = `
import os, stat
found = []
views = "/workspace/servers", "/workspace/client"
def describe(path):
    s = os.lstat(path)
    changed = None if path in views else s.st_mtime_ns
    kind = oct(s.st_mode), s.st_uid, s.st_gid, changed, s.st_size, sorted(os.listxattr(path))
    text = os.readlink(path) if stat.S_ISLNK(s.st_mode) else open(path).read() if stat.S_ISREG(s.st_mode) else ""
    found.append([path, *map(str, kind), text])
for top in views:
    for directory, names, files in os.walk(top, followlinks=True):
        for path in [directory] + [directory + "/" + name for name in files + names]:
            describe(path)
sorted(found)`

// attackViews defines helpers for the attacks. The list done contains the attempts that succeeded.
const attackViews = `
import ctypes, mmap, os, shutil, socket, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
views = "/workspace/servers", "/workspace/client"
paths = [p for v in views for d, names, files in os.walk(v, followlinks=True) for p in [d] + [
    d + "/" + name for name in files + names]]
done = []
open("own", "w").write("x")
os.mkdir("dir")
def attempt(what, f, *arguments, **options):
    try:
        f(*arguments, **options)
        done.append([what, *map(str, arguments)])
    except (OSError, ValueError, shutil.Error):
        pass
def write(path, flags=0):
    os.close(os.open(path, os.O_WRONLY | flags))
def system(command, code=0):
    if subprocess.run(["sh", "-c", command], stderr=subprocess.DEVNULL).returncode == code:
        done.append(command)
def bind(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)
`

// viewAttacks are programs that each try to change the views.
var viewAttacks = map[string]string{
	"writes": `
for p in paths:
    attempt("open", write, p)
    attempt("truncate", os.truncate, p, 0)
    attempt("create", write, p + "/x", os.O_CREAT)
    attempt("nameless", write, p, os.O_TMPFILE)
    attempt("mkdir", os.mkdir, p + "/x")
    attempt("mkfifo", os.mkfifo, p + "/x")
    attempt("symlink", os.symlink, "/etc", p + "/x")
    attempt("link", os.link, "own", p + "/x")
    attempt("bind", bind, p + "/x")
done`,
	"attributes": `
for p in paths:
    attempt("chmod", os.chmod, p, 0o777)
    attempt("chown", os.chown, p, os.getuid(), -1)
    attempt("utime", os.utime, p, (1, 1))
    attempt("setxattr", os.setxattr, p, "user.x", b"x")
    attempt("acl", os.setxattr, p, "system.posix_acl_access", b"\2\0\0\0")
    attempt("lchown", os.chown, p, os.getuid(), -1, follow_symlinks=False)
done`,
	"removes": `
for p in reversed(paths):
    attempt("rmdir", os.rmdir, p)
    attempt("unlink", os.unlink, p)
    attempt("rmtree", shutil.rmtree, p)
attempt("rmtree", shutil.rmtree, "/workspace")
open("own", "w").close()
system("rm -rf /workspace/*")
system("rm -rf /workspace/servers /workspace/client")
done`,
	"moves": `
for p in paths:
    attempt("rename", os.rename, p, "/workspace/moved")
    attempt("away", os.rename, p, "/tmp/moved")
    attempt("over", os.rename, "dir", p)
    attempt("file over", os.replace, "own", p)
    for flags in 1, 2, 4:
        if libc.renameat2(-100, b"dir", -100, p.encode(), flags) == 0: done.append([p, flags])
attempt("workspace", os.rename, "/workspace", "/tmp/moved")
system("mv /workspace/servers /workspace/moved")
system("mv -T /workspace/dir /workspace/servers")
done`,
	"links": `
for p in paths:
    attempt("link", os.link, p, "copy")
    attempt("symlink over", os.symlink, "/etc", p)
for v in views:
    os.symlink(v, "dir/link")
    attempt("through a link", write, "dir/link/x", os.O_CREAT)
    os.unlink("dir/link")
done`,
	"maps": `
for p in paths:
    if os.path.isfile(p) and os.path.getsize(p):
        with open(p, "rb") as f:
            attempt("map", mmap.mmap, f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_WRITE)
done`,
	"reopens": `
for p in paths:
    d = os.open(p, os.O_RDONLY)
    attempt("proc", write, "/proc/self/fd/%d" % d)
    attempt("below", os.open, "x", os.O_CREAT | os.O_WRONLY, dir_fd=d)
    attempt("fchmod", os.fchmod, d, 0o777)
    attempt("fchown", os.fchown, d, os.getuid(), -1)
    attempt("futime", os.utime, d, (1, 1))
    os.close(d)
done`,
	"mounts": `
for v in views:
    if libc.mount(b"x", v.encode(), b"tmpfs", 0, None) == 0: done.append(v)
    if libc.mount(b"/workspace", v.encode(), None, 4096, None) == 0: done.append(v)
    if libc.umount2(v.encode(), 2) == 0: done.append(v)
done`,
	"changes the workspace's mode": `
for mode in 0o777, 0: # permitted to the owner
    try:
        os.chmod("/workspace", mode)
    except PermissionError:
        pass
    for v in views:
        attempt("rename", os.rename, v, "/workspace/moved")
        attempt("rmdir", os.rmdir, v)
done`,
	"races": `
def swap():
    for _ in range(300):
        attempt("swap", os.rename, "dir", "servers")
        attempt("swap back", os.rename, "servers", "dir2")
        attempt("create", write, "servers/x", os.O_CREAT)
        attempt("mkdir", os.mkdir, "servers")
        attempt("rmdir", os.rmdir, "servers")
threads = [threading.Thread(target=swap) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
done`,
	"compiles": `
import compileall
compileall.compile_dir("/workspace/servers", quiet=2, force=True)
compileall.compile_dir("/workspace/client", quiet=2, force=True)
[p for v in views for d, _, files in os.walk(v, followlinks=True) for p in files if p.endswith(".pyc")]`,
}
