package dirsync_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/dirsync"
)

// remote is a workspace in memory. A version maps paths to content. The path of an empty directory ends in a slash, and
// the content of a symbolic link is "->" and its target.
type remote struct {
	versions   []map[string]string
	modes      map[string]uint32    // that differ from 0644 and 0755
	beforeFile func(path string)    // called before Read returns each file
	race       func()               // called once before a write
	times      map[string]time.Time // of files that were written, if not nil
	cut        string               // the path in whose content a read breaks off
	fleet      string               // commits in different fleets have different ids
}

func (r *remote) set(files map[string]string) {
	if len(r.versions) == 0 {
		r.versions = []map[string]string{{}}
	}
	r.versions = append(r.versions, files)
}

func (r *remote) current() map[string]string {
	if len(r.versions) == 0 {
		return map[string]string{}
	}
	return maps.Clone(r.versions[len(r.versions)-1])
}

func (r *remote) version(g int) dirsync.Version {
	return dirsync.Version{Generation: int64(g), Commit: fmt.Sprint(r.fleet, "commit", g)}
}

func (r *remote) Newest(context.Context) (dirsync.Version, error) {
	return r.version(max(0, len(r.versions)-1)), nil
}

func (r *remote) Log(_ context.Context, limit int) (list []dirsync.Version, _ error) {
	for g := len(r.versions) - 1; g > 0 && len(list) < limit; g-- {
		list = append(list, r.version(g))
	}
	return list, nil
}

func infoOf(p, content string) dirsync.FileInfo {
	e := dirsync.FileInfo{
		Path: p, Kind: dirsync.File, Mode: 0o644, Bytes: int64(len(content)),
		Time: time.Unix(1e9, 123456789).UTC(),
	}
	const part = 100 // bytes; larger files have parts
	if target, ok := strings.CutPrefix(content, "->"); ok {
		return dirsync.FileInfo{Path: p, Kind: dirsync.Symlink, Mode: 0o777, Target: target}
	}
	sum := sha256.Sum256([]byte(content))
	if len(content) > part {
		var sums []byte
		for chunk := range slices.Chunk([]byte(content), part) {
			sum := sha256.Sum256(chunk)
			sums = append(sums, sum[:]...)
			e.Parts = append(e.Parts, dirsync.Part{SHA256: hex.EncodeToString(sum[:]), Bytes: int64(len(chunk))})
		}
		sum = sha256.Sum256(sums)
	}
	e.ETag = hex.EncodeToString(sum[:])
	return e
}

func (r *remote) Files(_ context.Context, g int64) ([]dirsync.FileInfo, error) {
	var list []dirsync.FileInfo
	if g == 0 {
		return nil, nil
	}
	dirs := map[string]bool{}
	for p, content := range r.versions[g] {
		for d := path.Dir(p); d != "." && d != "/"; d = path.Dir(d) {
			dirs[d] = true
		}
		if name, ok := strings.CutSuffix(p, "/"); ok {
			dirs[name] = true
			continue
		}
		e := infoOf(p, content)
		if mode, ok := r.modes[p]; ok {
			e.Mode = mode
		}
		list = append(list, e)
	}
	for d := range dirs {
		mode := uint32(0o755)
		if m, ok := r.modes[d]; ok {
			mode = m
		}
		list = append(list, dirsync.FileInfo{Path: d, Kind: dirsync.Dir, Mode: mode})
	}
	return list, nil
}

func (r *remote) Read(_ context.Context, g int64, paths []string, fn func(string, io.Reader) error) error {
	for _, p := range paths {
		if r.beforeFile != nil {
			r.beforeFile(p)
		}
		content := io.Reader(strings.NewReader(r.versions[g][p]))
		if p == r.cut {
			content = iotest.ErrReader(io.ErrUnexpectedEOF)
		}
		if err := fn(p, content); err != nil {
			return err
		}
	}
	return nil
}

func (r *remote) Write(_ context.Context, base int64, _ string, edits []dirsync.Edit) (v dirsync.Version, _ error) {
	if r.race != nil {
		race := r.race
		r.race = nil
		race()
	}
	next := r.current()
	var conflicts []string
	for _, e := range edits {
		if e.Kind == dirsync.File && r.modes != nil {
			r.modes[e.Path] = e.Mode
		}
		if e.Kind == dirsync.File && r.times != nil {
			r.times[e.Path] = e.Time
		}
		was := map[string]string{}
		if base > 0 {
			was = r.versions[base]
		}
		if was[e.Path] != next[e.Path] {
			conflicts = append(conflicts, e.Path)
		}
	}
	if len(conflicts) > 0 {
		return v, &dirsync.ConflictError{Paths: conflicts}
	}
	for _, e := range edits {
		switch {
		case e.Remove:
			for p := range next {
				if p == e.Path || strings.HasPrefix(p, e.Path+"/") {
					delete(next, p)
				}
			}
		case e.Kind == dirsync.Dir:
			next[e.Path+"/"] = ""
		case e.Kind == dirsync.Symlink:
			next[e.Path] = "->" + e.Target
		default:
			f, err := e.Open()
			if err != nil {
				return v, err
			}
			data, err := io.ReadAll(f)
			if err = errors.Join(err, f.Close()); err != nil {
				return v, err
			}
			next[e.Path] = string(data)
		}
	}
	for p := range next { // only empty directories are listed
		if strings.HasSuffix(p, "/") {
			for q := range next {
				if q != p && strings.HasPrefix(q, p) {
					delete(next, p)
				}
			}
		}
	}
	r.set(next)
	return r.Newest(context.Background())
}

type fixture struct {
	*testing.T
	dir    string
	remote *remote
	folder *dirsync.Folder
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{T: t, dir: t.TempDir(), remote: &remote{}}
	w.open()
	return w
}

// open opens the folder again, as a new process would.
func (w *fixture) open() {
	w.Helper()
	f, err := dirsync.Open(w.dir, w.remote, dirsync.Options{Workspace: "main"})
	if err != nil {
		w.Fatal(err)
	}
	w.folder = f
	w.Cleanup(func() { f.Close() })
}

func (w *fixture) write(p, content string) {
	w.Helper()
	full := filepath.Join(w.dir, p)
	if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755),
		os.WriteFile(full, []byte(content), 0o644)); err != nil {
		w.Fatal(err)
	}
}

func (w *fixture) remove(p string) {
	w.Helper()
	if err := os.RemoveAll(filepath.Join(w.dir, p)); err != nil {
		w.Fatal(err)
	}
}

// files returns what the directory contains, without the base file.
func (w *fixture) files() map[string]string {
	w.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(w.dir, func(full string, d fs.DirEntry, err error) error {
		p, _ := filepath.Rel(w.dir, full)
		if err != nil || p == "." || p == dirsync.BaseFileName {
			return err
		}
		if d.IsDir() {
			if entries, _ := os.ReadDir(full); len(entries) == 0 {
				got[p+"/"] = ""
			}
			return nil
		}
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(full)
			got[p] = "->" + target
			return err
		}
		data, err := os.ReadFile(full)
		got[p] = string(data)
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return got
}

func (w *fixture) want(where string, got, want map[string]string) {
	w.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("%s (-want +got):\n%s", where, diff)
	}
}

func (w *fixture) pull(p dirsync.Policy) dirsync.Report {
	w.Helper()
	r, err := w.folder.Pull(w.Context(), p)
	if err != nil {
		w.Fatalf("Pull() = %v, want nil", err)
	}
	return r
}

// wantRefused checks that Pull and Push report conflicts at these paths, and change nothing.
func (w *fixture) wantRefused(paths ...string) {
	w.Helper()
	here, there := w.files(), w.remote.current()
	_, pull := w.folder.Pull(w.Context(), dirsync.Refuse)
	_, push := w.folder.Push(w.Context(), "", dirsync.Refuse)
	for _, err := range []error{pull, push} {
		if e, ok := errors.AsType[*dirsync.ConflictError](err); !ok || !slices.Equal(e.Paths, paths) {
			w.Errorf("error = %v, want the conflicts %q", err, paths)
		}
	}
	w.want("here", w.files(), here)
	w.want("there", w.remote.current(), there)
}

func (w *fixture) sync() dirsync.Report {
	w.Helper()
	r, err := w.folder.Sync(w.Context(), "sync")
	if err != nil {
		w.Fatalf("Sync() = %v, want nil", err)
	}
	return r
}

var large = strings.Repeat("0123456789", 35)

func TestPullAndPush(t *testing.T) {
	w := newFixture(t)
	w.remote.set(map[string]string{"a": "1", "d/b": "2", "l": "->d/b", "large": large, "empty": "", "e/": ""})
	r := w.pull(dirsync.Refuse)
	if want := []string{
		"a", "d", "d/b", "e", "empty", "l",
		"large",
	}; !slices.Equal(slices.Sorted(slices.Values(r.Written)), want) || r.Generation != 1 {
		t.Errorf("Pull() = %+v, want %v", r, want)
	}
	w.want("pulled", w.files(), w.remote.current())
	if info, err := os.Stat(filepath.Join(w.dir, "a")); err != nil || info.ModTime().UnixNano() != 1e18+123456789 {
		t.Errorf("time of a = %v, %v; want the time that the workspace has", info.ModTime(), err)
	}
	if dirty, err := w.folder.Dirty(); dirty || err != nil {
		t.Errorf("Dirty() = %v, %v, want false", dirty, err)
	}
	// The workspace changes a and removes d/b. The directory changes empty, removes large and adds x/n.
	w.remote.set(map[string]string{"a": "11", "l": "->a", "large": large, "empty": "", "e/": ""})
	w.open()
	w.write("empty", "not empty")
	w.remove("large")
	w.write("x/n", "new")
	if dirty, err := w.folder.Dirty(); !dirty || err != nil {
		t.Errorf("Dirty() = %v, %v, want true", dirty, err)
	}
	w.pull(dirsync.Refuse)
	w.want("pulled", w.files(), map[string]string{"a": "11", "l": "->a", "empty": "not empty", "e/": "", "x/n": "new"})
	r, err := w.folder.Push(t.Context(), "", dirsync.Refuse)
	if err != nil || !slices.Equal(r.Removed, []string{"large"}) ||
		!slices.Equal(r.Written, []string{"empty", "x", "x/n"}) {
		t.Errorf("Push() = %+v, %v; want large removed, and empty, x and x/n written", r, err)
	}
	w.want("pushed", w.remote.current(), w.files())
	if r, err = w.folder.Push(t.Context(), "", dirsync.Refuse); err != nil || r.Generation != 3 || len(r.Written) != 0 {
		t.Errorf("Push() of nothing = %+v, %v; want generation 3 and nothing written", r, err)
	}
}

// TestFileTimes pushes files with times before 1970, and after those that int64 holds in nanoseconds.
func TestFileTimes(t *testing.T) {
	w := newFixture(t)
	w.remote.times = map[string]time.Time{}
	want := map[string]time.Time{}
	for name, year := range map[string]int{"early": 1960, "late": 2300} {
		w.write(name, name)
		at := unix.Timespec{Sec: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Unix()}
		file := filepath.Join(w.dir, name)
		if err := unix.UtimesNano(file, []unix.Timespec{at, at}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		want[name] = time.Unix(0, clock.Nanos(info.ModTime())).UTC() // file systems have limits, too
	}
	if _, err := w.folder.Push(t.Context(), "", dirsync.Refuse); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, w.remote.times); diff != "" {
		t.Errorf("times (-want +got):\n%s", diff)
	}
}

// TestCase pulls names that differ by case only. A directory that cannot hold both gets one of them, and the workspace
// keeps both.
func TestCase(t *testing.T) {
	w := newFixture(t)
	w.folder.IgnoreCase()
	all := map[string]string{"A.txt": "1", "a.txt": "2", "Dir/x": "3", "dir/y": "4", "dir/z/q": "5", "b": "6"}
	w.remote.set(all)
	r := w.pull(dirsync.Refuse)
	if diff := cmp.Diff([]string{"a.txt", "dir", "dir/y", "dir/z", "dir/z/q"}, r.Skipped); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
	w.want("directory", w.files(), map[string]string{"A.txt": "1", "Dir/x": "3", "b": "6"})
	w.write("b", "7")
	all["b"] = "7"
	w.sync()
	w.want("workspace", w.remote.current(), all)
	delete(all, "A.txt")
	w.remote.set(maps.Clone(all))
	if r := w.pull(dirsync.Refuse); !slices.Equal(r.Removed, []string{"A.txt"}) {
		t.Errorf("Pull after a removal removed %v, want A.txt", r.Removed)
	}
	w.pull(dirsync.Refuse)
	w.want("directory after the removal", w.files(), map[string]string{"a.txt": "2", "Dir/x": "3", "b": "7"})
	w.open() // on the file system of this test, which has both
	w.pull(dirsync.Refuse)
	w.want("directory that holds both", w.files(), all)
}

func TestConflicts(t *testing.T) {
	setup := func(t *testing.T) *fixture {
		t.Helper()
		w := newFixture(t)
		w.remote.set(map[string]string{
			"both": "0", "mine": "0", "theirs": "0", "rm/ours": "0", "rm/theirs": "0",
			"same": "0", "k": "0", "kd/x": "0",
		})
		w.pull(dirsync.Refuse)
		w.remote.set(map[string]string{
			"both": "theirs", "mine": "0", "theirs": "theirs", "rm/ours": "theirs",
			"same": "1", "k/in": "theirs", "kd": "theirs",
		})
		w.write("both", "ours")
		w.write("mine", "ours")
		w.write("same", "1")
		w.remove("rm/ours")
		w.write("rm/theirs", "ours")
		w.write("k", "ours")
		w.write("kd/x", "ours")
		return w
	}
	conflicts := []string{"both", "k", "kd", "kd/x", "rm/ours", "rm/theirs"}
	t.Run("refuse", func(t *testing.T) {
		w := setup(t)
		before := w.files()
		_, err := w.folder.Pull(t.Context(), dirsync.Refuse)
		e, ok := errors.AsType[*dirsync.ConflictError](err)
		if !ok || !slices.Equal(e.Paths, conflicts) {
			t.Errorf("Pull() = %v, want conflicts %v", err, conflicts)
		}
		w.want("after a refusal", w.files(), before)
		if _, err := w.folder.Push(t.Context(), "", dirsync.Refuse); !errors.As(err, &e) ||
			len(w.remote.versions) != 3 {
			t.Errorf("Push() = %v, want conflicts and no new version", err)
		}
	})
	t.Run("keep both", func(t *testing.T) {
		w := setup(t)
		r := w.sync()
		for _, p := range conflicts {
			if !slices.Contains(r.Conflicts, p) {
				t.Errorf("conflicts = %v, want %s among them", r.Conflicts, p)
			}
		}
		want := map[string]string{
			"both": "ours", "both.conflict-g2": "theirs", "mine": "ours", "theirs": "theirs", "same": "1",
			"rm/ours": "theirs", "rm/theirs": "ours", "k/in": "theirs", "k.conflict-g2": "ours", "kd/x": "ours",
			"kd.conflict-g2": "theirs",
		}
		w.want("here", w.files(), want)
		w.want("there", w.remote.current(), want)
		if r := w.sync(); len(r.Written)+len(r.Conflicts)+len(r.Removed) != 0 {
			t.Errorf("Sync() again = %+v, want nothing", r)
		}
	})
	t.Run("theirs", func(t *testing.T) {
		w := setup(t)
		w.pull(dirsync.Theirs)
		want := w.remote.current()
		want["mine"] = "ours"
		w.want("here", w.files(), want)
	})
	t.Run("ours", func(t *testing.T) {
		w := newFixture(t)
		w.remote.set(map[string]string{"f": "theirs", "only": "theirs"})
		w.write("f", "ours")
		if _, err := w.folder.Push(t.Context(), "", dirsync.Ours); err != nil {
			t.Fatal(err)
		}
		w.want("there", w.remote.current(), map[string]string{"f": "ours", "only": "theirs"})
	})
}

// TestFileReplacesDirectory checks that what a task adds to a directory or changes there, which a file or link has
// replaced here, is not removed, and that the next synchronisation brings it.
func TestFileReplacesDirectory(t *testing.T) {
	for _, tt := range []struct{ content, changed string }{
		{"ours", "d/e/new"}, {"->other", "d/e/new"}, {"ours", "d/a"}, {"->other", "d/a"}, {"->/", "d/a"},
	} {
		content, conflicts := tt.content, []string{"d"}
		if tt.changed == "d/a" {
			conflicts = append(conflicts, "d/a")
		}
		name := tt.changed + " " + content
		setup := func(t *testing.T) *fixture {
			t.Helper()
			w := newFixture(t)
			w.remote.set(map[string]string{"d/a": "0", "d/e/b": "0", "other/o": "0"})
			w.pull(dirsync.Refuse)
			w.remove("d")
			if target, link := strings.CutPrefix(content, "->"); !link {
				w.write("d", content)
			} else if err := os.Symlink(target, filepath.Join(w.dir, "d")); err != nil {
				t.Fatal(err)
			}
			there := map[string]string{"d/a": "0", "d/e/b": "0", "other/o": "0"}
			there[tt.changed] = "task"
			w.remote.set(there)
			return w
		}
		if content == "->/" { // is not pushed, so the two sides differ
			t.Run("pull "+name, func(t *testing.T) {
				w := setup(t)
				w.pull(dirsync.KeepBoth)
				w.want("here", w.files(), map[string]string{"d/a": "task", "d.conflict-g2": content, "other/o": "0"})
			})
			continue
		}
		t.Run("refuse "+name, func(t *testing.T) {
			w := setup(t)
			w.wantRefused(conflicts...)
		})
		t.Run("keep both "+name, func(t *testing.T) {
			w := setup(t)
			if r := w.sync(); !slices.Equal(r.Conflicts, conflicts) {
				t.Errorf("Sync() = %+v, want the conflicts %q", r, conflicts)
			}
			want := map[string]string{tt.changed: "task", "d.conflict-g2": content, "other/o": "0"}
			w.want("here", w.files(), want)
			w.want("there", w.remote.current(), want)
			if r := w.sync(); len(r.Written)+len(r.Conflicts)+len(r.Removed) != 0 {
				t.Errorf("Sync() again = %+v, want nothing", r)
			}
		})
		t.Run("theirs "+name, func(t *testing.T) {
			w := setup(t)
			w.pull(dirsync.Theirs)
			w.want("here", w.files(), map[string]string{tt.changed: "task", "other/o": "0"})
		})
		t.Run("ours "+name, func(t *testing.T) {
			w := setup(t)
			w.pull(dirsync.Ours)
			want := map[string]string{"d": content, "other/o": "0"}
			w.want("here", w.files(), want)
			if _, err := w.folder.Push(t.Context(), "", dirsync.Refuse); err != nil {
				t.Fatal(err)
			}
			w.want("there", w.remote.current(), want)
		})
	}
}

// TestTheirFileReplacesDirectory checks that a directory that the workspace has replaced with a file or link is a
// conflict if this side has added files to it.
func TestTheirFileReplacesDirectory(t *testing.T) {
	for _, content := range []string{"theirs", "->other"} {
		setup := func(t *testing.T) *fixture {
			t.Helper()
			w := newFixture(t)
			w.remote.set(map[string]string{"d/a": "0", "d/e/b": "0", "other/o": "0"})
			w.pull(dirsync.Refuse)
			w.write("d/e/new", "ours")
			w.remote.set(map[string]string{"d": content, "other/o": "0"})
			return w
		}
		conflicts := []string{"d", "d/e/new"}
		t.Run("refuse "+content, func(t *testing.T) {
			w := setup(t)
			w.wantRefused(conflicts...)
		})
		t.Run("keep both "+content, func(t *testing.T) {
			w := setup(t)
			if r := w.sync(); !slices.Equal(r.Conflicts, conflicts) {
				t.Errorf("Sync() = %+v, want the conflicts %q", r, conflicts)
			}
			want := map[string]string{"d/e/new": "ours", "d.conflict-g2": content, "other/o": "0"}
			w.want("here", w.files(), want)
			w.want("there", w.remote.current(), want)
			if r := w.sync(); len(r.Written)+len(r.Conflicts)+len(r.Removed) != 0 {
				t.Errorf("Sync() again = %+v, want nothing", r)
			}
		})
		t.Run("theirs "+content, func(t *testing.T) {
			w := setup(t)
			w.pull(dirsync.Theirs)
			want := map[string]string{"d": content, "other/o": "0"}
			w.want("here", w.files(), want)
			if r := w.sync(); len(r.Written)+len(r.Conflicts)+len(r.Removed) != 0 {
				t.Errorf("Sync() = %+v, want nothing", r)
			}
			w.want("there", w.remote.current(), want)
		})
		t.Run("ours "+content, func(t *testing.T) {
			w := setup(t)
			if _, err := w.folder.Push(t.Context(), "", dirsync.Ours); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"d/e/new": "ours", "other/o": "0"}
			w.want("there", w.remote.current(), want)
			w.pull(dirsync.Refuse)
			w.want("here", w.files(), want)
		})
	}
}

// TestEditDuringPull checks that a person's edit between the scan and the write of new content is not lost, however the
// editor writes.
func TestEditDuringPull(t *testing.T) {
	for name, edit := range map[string]func(w *fixture){
		"in place": func(w *fixture) { w.write("f", "person") },
		"atomic": func(w *fixture) {
			w.write("f~", "person")
			if err := os.Rename(filepath.Join(w.dir, "f~"), filepath.Join(w.dir, "f")); err != nil {
				w.Fatal(err)
			}
		},
		"append": func(w *fixture) {
			out, err := os.OpenFile(filepath.Join(w.dir, "f"), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				w.Fatal(err)
			}
			_, err = out.WriteString("person")
			if err = errors.Join(err, out.Close()); err != nil {
				w.Fatal(err)
			}
		},
		"a directory": func(w *fixture) { w.remove("f"); w.write("f/in", "person") },
		"removed":     func(w *fixture) { w.remove("f") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.remote.set(map[string]string{"f": "0"})
			w.pull(dirsync.Refuse)
			w.remote.set(map[string]string{"f": "task", "new": "task"})
			w.remote.beforeFile = func(p string) {
				if p == "f" {
					edit(w)
				} else {
					w.write("new", "person")
				}
			}
			r := w.pull(dirsync.KeepBoth)
			w.remote.beforeFile = nil
			if !slices.Contains(r.Conflicts, "f") || !slices.Contains(r.Conflicts, "new") {
				t.Errorf("conflicts = %v, want f and new", r.Conflicts)
			}
			got := w.files()
			if got["f.conflict-g2"] != "task" || got["new"] != "person" || got["new.conflict-g2"] != "task" {
				t.Errorf("files = %v, want the task's beside the person's", got)
			}
			if all := fmt.Sprint(slices.Sorted(maps.Values(got))); name != "removed" &&
				strings.Count(all, "person") != 2 {
				t.Errorf("files = %v, want the person's edit among them", got)
			}
			for p := range got {
				if strings.Contains(p, "codefleet-tmp") {
					t.Errorf("temporary file %s was not removed", p)
				}
			}
			w.sync()
			w.want("there", w.remote.current(), w.files())
		})
	}
}

// TestModes checks that pulled paths are not writable for all users although a program made them so, that their owner
// can access them in any case, and that neither counts as a change.
func TestModes(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o027))
	w := newFixture(t)
	w.remote.set(map[string]string{"open": "1", "script": "1", "closed": "1", "d/in": "1", "s/in": "1", "l": "->open"})
	w.remote.modes = map[string]uint32{"open": 0o666, "script": 0o777, "closed": 0, "d": 0o777, "s": 0o555}
	w.pull(dirsync.Refuse)
	want := map[string]fs.FileMode{
		"open": 0o640, "script": 0o750, "closed": 0o400, "d": 0o750, "d/in": 0o640, "s": 0o750, "s/in": 0o640,
	}
	modes := func() map[string]fs.FileMode {
		got := map[string]fs.FileMode{}
		for p := range want {
			info, err := os.Lstat(filepath.Join(w.dir, p))
			if err != nil {
				t.Fatal(err)
			}
			got[p] = info.Mode().Perm()
		}
		return got
	}
	if diff := cmp.Diff(want, modes()); diff != "" {
		t.Errorf("pulled modes (-want +got):\n%s", diff)
	}
	w.open()
	if dirty, err := w.folder.Dirty(); dirty || err != nil {
		t.Errorf("Dirty() = %v, %v, want false", dirty, err)
	}
	if r := w.sync(); len(r.Written)+len(r.Conflicts) != 0 {
		t.Errorf("Sync() = %+v, want nothing", r)
	}
	// An edit keeps the mode of the workspace, and a new local mode is pushed.
	w.write("open", "2")
	if err := os.Chmod(filepath.Join(w.dir, "script"), 0o700); err != nil {
		t.Fatal(err)
	}
	if r := w.sync(); !slices.Equal(r.Written, []string{"open", "script"}) {
		t.Errorf("Sync() = %+v, want open and script written", r)
	}
	if w.remote.modes["open"] != 0o666 || w.remote.modes["script"] != 0o700 {
		t.Errorf("modes in the workspace = %v, want 666 for open and 700 for script", w.remote.modes)
	}
	if dirty, err := w.folder.Dirty(); dirty || err != nil {
		t.Errorf("Dirty() after a push = %v, %v, want false", dirty, err)
	}
	if r := w.sync(); len(r.Written)+len(r.Different)+len(r.Conflicts) != 0 {
		t.Errorf("Sync() after a push = %+v, want nothing", r)
	}
	// Without a base, modes that Pull would give are no change either, also of a file that differs.
	w.remove(dirsync.BaseFileName)
	w.write("d/in", "3")
	w.open()
	r := w.sync()
	if m := w.remote.modes; !slices.Equal(r.Conflicts, []string{"d/in"}) || m["open"] != 0o666 || m["d/in"] != 0o644 {
		t.Errorf("Sync() without a base = %+v and modes %v, want a conflict of d/in and the modes from before", r, m)
	}
	// A new mode in the workspace is pulled.
	w.remote.modes["d"], w.remote.modes["script"] = 0o700, 0o777
	w.pull(dirsync.Refuse)
	want["d"] = 0o700
	if diff := cmp.Diff(want, modes()); diff != "" {
		t.Errorf("modes pulled again (-want +got):\n%s", diff)
	}
}

// TestPullFailsMidway checks that a pull that fails leaves complete files only, reports them, and is continued by the
// next pull.
func TestPullFailsMidway(t *testing.T) {
	w := newFixture(t)
	w.write("b", "mine")
	w.remote.set(map[string]string{"b": "mine"})
	w.pull(dirsync.Refuse)
	w.remote.set(map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"})
	w.remote.cut = "c"
	r, err := w.folder.Pull(t.Context(), dirsync.Refuse)
	if !errors.Is(err, io.ErrUnexpectedEOF) || !slices.Equal(r.Written, []string{"a", "b"}) {
		t.Errorf("Pull() = %+v, %v, want a and b written", r, err)
	}
	w.want("after the failure", w.files(), map[string]string{"a": "1", "b": "2"})
	w.remote.cut = ""
	w.open()
	if r := w.pull(dirsync.Refuse); !slices.Equal(r.Written, []string{"c", "d"}) {
		t.Errorf("Pull() again = %+v, want c and d written", r)
	}
	w.want("after the second pull", w.files(), w.remote.current())
}

// TestProgress checks that transfers report how much is done, up to all of it.
func TestProgress(t *testing.T) {
	w := newFixture(t)
	var reports [][2]int64
	f, err := dirsync.Open(w.dir, w.remote, dirsync.Options{Workspace: "main", Progress: func(done, total int64) {
		reports = append(reports, [2]int64{done, total})
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w.remote.set(map[string]string{"a": "1234", "d/b": "56", "l": "->a"})
	if _, err := f.Pull(t.Context(), dirsync.Refuse); err != nil {
		t.Fatal(err)
	}
	if n := len(reports); n != 2 || reports[1] != [2]int64{6, 6} || reports[0][0] >= 6 {
		t.Errorf("reports of Pull = %v, want two, up to 6 of 6", reports)
	}
	reports = nil
	w.write("n", "123")
	if _, err := f.Push(t.Context(), "", dirsync.Refuse); err != nil {
		t.Fatal(err)
	}
	if n := len(reports); n == 0 || reports[n-1] != [2]int64{3, 3} {
		t.Errorf("reports of Push = %v, want up to 3 of 3", reports)
	}
}

// TestCommitDuringPush checks that a push that loses a race against a commit pulls and tries again.
func TestCommitDuringPush(t *testing.T) {
	w := newFixture(t)
	w.remote.set(map[string]string{"f": "0", "d/x": "0"})
	w.pull(dirsync.Refuse)
	w.write("f", "person")
	w.remove("d")
	w.remote.race = func() { w.remote.set(map[string]string{"f": "task", "d/x": "0", "d/y": "task"}) }
	r := w.sync()
	if !slices.Contains(r.Conflicts, "f") {
		t.Errorf("Sync() = %+v, want the conflict f", r)
	}
	want := map[string]string{"f": "person", "f.conflict-g2": "task", "d/y": "task"}
	w.want("here", w.files(), want)
	w.want("there", w.remote.current(), want)
}

// TestReplacedDuringPush checks that a push takes a path as it is in the end, if a file is replaced after the scan.
func TestReplacedDuringPush(t *testing.T) {
	for name, c := range map[string]struct {
		replace func(file, other string) error
		want    map[string]string
	}{
		"another file": {
			func(file, other string) error { return os.Rename(other, file) },
			map[string]string{"d/f": "2"},
		},
		"a link": {
			func(file, _ string) error { return errors.Join(os.Remove(file), os.Symlink("g", file)) },
			map[string]string{"d/f": "->g", "d/g": "2"},
		},
		"a link that leads outside": { // it is skipped, so the workspace keeps its file
			func(file, _ string) error { return errors.Join(os.Remove(file), os.Symlink("/etc/passwd", file)) },
			map[string]string{"d/f": "0", "d/g": "2"},
		},
		"a directory": {
			func(file, other string) error {
				return errors.Join(os.Remove(file), os.Mkdir(file, 0o755), os.Rename(other, file+"/in"))
			},
			map[string]string{"d/f/in": "2"},
		},
		"a pipe": { // it is skipped, so the workspace keeps its file
			func(file, _ string) error { return errors.Join(os.Remove(file), unix.Mkfifo(file, 0o600)) },
			map[string]string{"d/f": "0", "d/g": "2"},
		},
		"nothing": {
			func(file, _ string) error { return os.Remove(file) },
			map[string]string{"d/g": "2"},
		},
	} {
		for _, when := range []string{"compared", "uploaded"} {
			t.Run(name+" before it is "+when, func(t *testing.T) {
				w := newFixture(t)
				w.remote.set(map[string]string{"A": "1", "a": "1", "d/f": "0"})
				w.pull(dirsync.Refuse)
				w.write("d/f", "1")
				w.write("d/g", "2")
				replace := sync.OnceFunc(func() {
					if err := c.replace(filepath.Join(w.dir, "d/f"), filepath.Join(w.dir, "d/g")); err != nil {
						t.Error(err)
					}
				})
				if when == "compared" {
					w.folder.AfterScan(replace)
				} else {
					w.remote.race = replace
				}
				if _, err := w.folder.Push(t.Context(), "", dirsync.Refuse); err != nil {
					t.Errorf("Push() = %v, want nil", err)
				}
				got := w.remote.current()
				maps.DeleteFunc(got, func(p, _ string) bool { return !strings.HasPrefix(p, "d/") })
				w.want("there", got, c.want)
			})
		}
	}
}

// TestParentReplacedDuringPull checks that a pull makes a directory again that is removed while its files arrive, and
// does not follow a link in its place.
func TestParentReplacedDuringPull(t *testing.T) {
	w := newFixture(t)
	w.write(".venv/lib/x", "mine")
	w.remote.set(map[string]string{"d/e/a": "1", "d/e/b": "2", "d/e/c": "3"})
	w.remote.beforeFile = func(p string) {
		switch p {
		case "d/e/b":
			w.remove("d")
		case "d/e/c":
			if got := w.files()["d/e/b"]; got != "2" {
				t.Errorf("d/e/b = %q, want 2", got)
			}
			w.remove("d/e")
			if err := os.Symlink("../.venv/lib", filepath.Join(w.dir, "d/e")); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := w.folder.Pull(t.Context(), dirsync.Refuse); !errors.Is(err, dirsync.ErrNotDir) {
		t.Errorf("Pull() = %v, want ErrNotDir", err)
	}
	w.want("here", w.files(), map[string]string{".venv/lib/x": "mine", "d/e": "->../.venv/lib"})
}

func TestNoEscape(t *testing.T) {
	w := newFixture(t)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("safe"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The directory has symbolic links where the workspace has a directory and a file.
	for _, link := range []string{"dir", "file"} {
		if err := os.Symlink(filepath.Dir(outside), filepath.Join(w.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	w.write(".git/config", "mine")
	w.remote.set(map[string]string{
		"abs": "->/etc/passwd", "up": "->../x", "in": "->fine", "fine": "1", "dir/outside": "task", "file": "task",
		".git/config": "task", ".git/hooks/post-checkout": "task", "sub/.git/config": "task",
		"bad\u202ename": "1", "ctl\x07": "1", "../outside": "1", "/outside": "1", "x/../../outside": "1", "": "1",
		".GIT/config": "task", "sub/.Git/config": "task", "sub/GIT~1/config": "task", "bad\ufffdname": "1",
		".Codefleet-workspace.json": "task", ".codefleet-work\u017fpace.json": "task", ".CODEFLEET-tmp-1": "task",
	})
	r := w.pull(dirsync.KeepBoth)
	got := w.files()
	want := map[string]string{
		"fine": "1", "in": "->fine", "sub/": "", ".git/config": "mine", "dir/outside": "task",
		"dir.conflict-g1": "->" + filepath.Dir(outside), "file.conflict-g1": "task",
		"file": "->" + filepath.Dir(outside),
	}
	w.want("after the pull", got, want)
	for p := range w.remote.current() {
		if _, written := got[p]; !written && !slices.Contains(r.Skipped, p) && p != "file" && p != ".git/config" &&
			p != ".git/hooks/post-checkout" && p != "sub/.git/config" {
			t.Errorf("%q was neither written nor reported as skipped", p)
		}
	}
	for _, p := range []string{filepath.Join(w.dir, "../outside"), filepath.Join(w.dir, "../x"), "/outside"} {
		if _, err := os.Lstat(p); err == nil {
			t.Errorf("%s was written", p)
		}
	}
	if data, err := os.ReadFile(outside); string(data) != "safe" || err != nil {
		t.Errorf("outside = %q, %v; want it unchanged", data, err)
	}
}

// TestLinkThroughLink checks that a link whose target goes up from a name is skipped: the name may be another link, so
// that the target is outside although its text is not.
func TestLinkThroughLink(t *testing.T) {
	w := newFixture(t)
	w.remote.set(map[string]string{
		"d1/d2/d3/up": "->../../..", "out": "->d1/d2/d3/up/../secret", "d1/out": "->./d2/d3/up//../secret",
		"end": "->d1/d2/d3/up/..", "d1/d2/in": "->.././d2/d3",
	})
	r := w.pull(dirsync.Refuse)
	if want := []string{"d1/out", "end", "out"}; !slices.Equal(slices.Sorted(slices.Values(r.Skipped)), want) {
		t.Errorf("Pull() skipped %q, want %q", r.Skipped, want)
	}
	w.want("here", w.files(), map[string]string{
		"d1/d2/d3/up": "->../../..", "d1/d2/in": "->.././d2/d3",
	})
}

// TestWritesFollowNoLinks checks that a link of the workspace to a path that is never synchronised does not make a pull
// write there.
func TestWritesFollowNoLinks(t *testing.T) {
	const excluded = ".venv/bin/activate"
	temp := dirsync.BaseFileName + ".tmp"
	for _, tt := range []struct {
		name    string
		there   map[string]string
		add     []dirsync.FileInfo // that a hostile fleet lists, too
		here    map[string]string  // links in the directory
		wantErr bool
	}{
		{name: "former name of the new base file", there: map[string]string{temp: "->" + excluded}},
		{
			name:  "former name of the new base file, pulled by an earlier version",
			there: map[string]string{temp: "->" + excluded}, here: map[string]string{temp: excluded},
		},
		{
			name:  "former name of the probe for case",
			there: map[string]string{"A": "1", "a": "2"}, here: map[string]string{".codefleet-tmp-case": ".venv/new"},
		},
		{
			name: "link above a file", there: map[string]string{"l": "->.venv/bin", "f": "1"},
			add: []dirsync.FileInfo{infoOf("l/new", "")}, wantErr: true,
		},
		{
			name: "link above a directory", there: map[string]string{"l": "->.venv/bin", "f": "1"},
			add: []dirsync.FileInfo{{Path: "l/new", Kind: dirsync.Dir, Mode: 0o755}}, wantErr: true,
		},
		{
			name: "link above a link", there: map[string]string{"l": "->.venv/bin", "f": "1"},
			add: []dirsync.FileInfo{infoOf("l/new", "->f")}, wantErr: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newFixture(t)
			w.write(excluded, "mine")
			for link, target := range tt.here {
				if err := os.Symlink(target, filepath.Join(w.dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			w.remote.set(tt.there)
			f, err := dirsync.Open(w.dir, &adding{w.remote, tt.add}, dirsync.Options{Workspace: "main"})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.Pull(t.Context(), dirsync.Refuse); (err != nil) != tt.wantErr {
				t.Errorf("Pull() = %v, want an error: %v", err, tt.wantErr)
			}
			got := w.files()
			for link, target := range tt.here {
				if got[link] != "->"+target {
					t.Errorf("%s has %q, want a link to %s", link, got[link], target)
				}
			}
			maps.DeleteFunc(got, func(p, _ string) bool { return !strings.HasPrefix(p, ".venv/") })
			w.want("excluded files", got, map[string]string{excluded: "mine"})
			base, err := os.Lstat(filepath.Join(w.dir, dirsync.BaseFileName))
			if err != nil || !base.Mode().IsRegular() {
				t.Errorf("Lstat() of the base file = %v, %v, want a regular file", base, err)
			}
		})
	}
}

// adding lists more paths than the workspace has.
type adding struct {
	*remote
	add []dirsync.FileInfo
}

func (a *adding) Files(ctx context.Context, g int64) ([]dirsync.FileInfo, error) {
	list, err := a.remote.Files(ctx, g)
	return append(list, a.add...), err
}

// TestIgnoreFileIsNoLink checks that patterns are not read through a link, as they are not when a task commits.
func TestIgnoreFileIsNoLink(t *testing.T) {
	w := newFixture(t)
	want := map[string]string{".workspaceignore": "->list", "list": "*.log\n", "a.log": "1"}
	for p, content := range want {
		if target, ok := strings.CutPrefix(content, "->"); !ok {
			w.write(p, content)
		} else if err := os.Symlink(target, filepath.Join(w.dir, p)); err != nil {
			t.Fatal(err)
		}
	}
	w.sync()
	w.want("there", w.remote.current(), want)
}

// TestUnreadableIgnoreFile checks that no path is sent if the patterns of excluded ones cannot be read.
func TestUnreadableIgnoreFile(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root can read every file")
	}
	w := newFixture(t)
	w.write(".workspaceignore", "secret\n")
	w.write("secret", "1")
	if err := os.Chmod(filepath.Join(w.dir, ".workspaceignore"), 0); err != nil {
		t.Fatal(err)
	}
	_, err := w.folder.Sync(t.Context(), "")
	_, dirtyErr := w.folder.Dirty()
	if !errors.Is(err, fs.ErrPermission) || !errors.Is(dirtyErr, fs.ErrPermission) {
		t.Errorf("Sync = %v, Dirty = %v, want that permission is denied", err, dirtyErr)
	}
	w.want("there", w.remote.current(), map[string]string{})
}

// TestPushSkipsOutsideLinks checks that links that point outside are not pushed, also in place of a file.
func TestPushSkipsOutsideLinks(t *testing.T) {
	w := newFixture(t)
	w.remote.set(map[string]string{"f": "1"})
	w.pull(dirsync.Refuse)
	w.write("new", "1")
	if err := os.Remove(filepath.Join(w.dir, "f")); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"abs": "/etc/passwd", "up": "../x", "f": "/etc/passwd", "in": "new"} {
		if err := os.Symlink(target, filepath.Join(w.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"abs", "f", "up"}
	for range 2 {
		r, err := w.folder.Push(t.Context(), "", dirsync.Refuse)
		if err != nil || !slices.Equal(slices.Sorted(slices.Values(r.Skipped)), want) {
			t.Errorf("Push() skipped %q, %v, want %q", r.Skipped, err, want)
		}
		w.want("there", w.remote.current(), map[string]string{"f": "1", "new": "1", "in": "->new"})
	}
	if dirty, err := w.folder.Dirty(); err != nil || dirty {
		t.Errorf("Dirty() after the push = %v, %v, want false", dirty, err)
	}
}

// TestPushSkipsBelow checks that a push does not remove the files of a directory if its place was taken by something
// that the push skips.
func TestPushSkipsBelow(t *testing.T) {
	for name, replace := range map[string]func(string) error{
		"link that points outside": func(dir string) error { return os.Symlink("/mnt/large", dir) },
		"pipe":                     func(dir string) error { return syscall.Mkfifo(dir, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.remote.set(map[string]string{"data/a": "1", "data/sub/b": "2", "f": "3"})
			w.pull(dirsync.Refuse)
			dir := filepath.Join(w.dir, "data")
			if err := errors.Join(os.RemoveAll(dir), replace(dir)); err != nil {
				t.Fatal(err)
			}
			w.write("f", "4")
			for range 2 {
				r, err := w.folder.Push(t.Context(), "", dirsync.Refuse)
				if err != nil || !slices.Equal(r.Skipped, []string{"data"}) || len(r.Removed) > 0 {
					t.Errorf("Push() skipped %q and removed %q, %v, want data and none", r.Skipped, r.Removed, err)
				}
				w.want("there", w.remote.current(), map[string]string{"data/a": "1", "data/sub/b": "2", "f": "4"})
			}
			if dirty, err := w.folder.Dirty(); err != nil || dirty {
				t.Errorf("Dirty() after the push = %v, %v, want false", dirty, err)
			}
		})
	}
}

func TestContentIsVerified(t *testing.T) {
	for _, sent := range []string{"", "short", "larger than it should be", "wrong!"} {
		w := newFixture(t)
		w.remote.set(map[string]string{"f": "right!"})
		liar := &lying{remote: w.remote, content: sent}
		f, err := dirsync.Open(w.dir, liar, dirsync.Options{Workspace: "main"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Pull(t.Context(), dirsync.Refuse); err == nil {
			t.Errorf("Pull() of %q = nil, want an error", sent)
		}
		f.Close()
		w.want("after "+sent, w.files(), map[string]string{})
	}
}

// lying sends other content than Files describes.
type lying struct {
	*remote
	content string
}

func (l *lying) Read(_ context.Context, _ int64, paths []string, fn func(string, io.Reader) error) error {
	return fn(paths[0], strings.NewReader(l.content))
}

func TestExcludedAndSkipped(t *testing.T) {
	w := newFixture(t)
	for _, p := range []string{
		"node_modules/x", "a/__pycache__/y", ".workspaceignore", "no.log", "servers/s.py",
		"client/c", "yes",
	} {
		w.write(p, "*.log\n")
	}
	w.write("new\nline", "1")
	r, err := w.folder.Push(t.Context(), "", dirsync.Refuse)
	if err != nil {
		t.Fatal(err)
	}
	w.want("there", w.remote.current(), map[string]string{"a/": "", ".workspaceignore": "*.log\n", "yes": "*.log\n"})
	if want := []string{"client", "new\nline", "servers"}; !slices.Equal(slices.Sorted(slices.Values(r.Skipped)),
		want) {
		t.Errorf("skipped = %q, want %q", r.Skipped, want)
	}
}

// TestDataDirs checks that data directories of fleets stay as they are, whatever the workspace has there, and are not
// pushed, and that a workspace cannot mark one.
func TestDataDirs(t *testing.T) {
	w := newFixture(t)
	private := map[string]string{"fleet/credentials.json": "secret", "a/b/servers/a.py": "secret"}
	for p, content := range private {
		w.write(p, content)
	}
	for _, dir := range []string{"fleet", "a/b"} {
		if err := dirsync.MarkDataDir(filepath.Join(w.dir, dir)); err != nil {
			t.Fatal(err)
		}
	}
	marker := dirsync.DataDirMarker
	for _, there := range []map[string]string{
		{"fleet/credentials.json": "x", "a/b/servers/b.py": "x", "a/x": "1"},
		{},
		{"a": "1", "fleet": "1"},
		{"a": "->fleet", "fleet": "->a"},
		{"a/b": "1", "fleet/" + marker: "1"},
		{marker: "1", "new/" + marker: "1", "fleet/" + marker: "->x"},
	} {
		w.remote.set(there)
		for range 3 {
			w.sync()
			if _, ok := there["a/x"]; ok && w.files()["a/x"] != "1" {
				t.Errorf("%v: a/x was not written", there)
			}
			for p, content := range private {
				if got, err := os.ReadFile(filepath.Join(w.dir, p)); string(got) != content {
					t.Errorf("%v: %s has %q, %v, want %q", there, p, got, err, content)
				}
			}
			for _, p := range []string{marker, "new/" + marker, "a/b/servers/b.py"} {
				if _, err := os.Lstat(filepath.Join(w.dir, p)); err == nil {
					t.Errorf("%v: %s was written", there, p)
				}
			}
			for p, content := range w.remote.current() {
				if content == "secret" {
					t.Errorf("%v: %s was pushed", there, p)
				}
			}
		}
	}
	for _, dir := range []string{"fleet", "a/b", "a/b/servers"} {
		if _, err := dirsync.Open(filepath.Join(w.dir, dir), w.remote, dirsync.Options{}); !errors.Is(err,
			dirsync.ErrDataDir) {
			t.Errorf("Open(%s), in a data directory = %v, want %v", dir, err, dirsync.ErrDataDir)
		}
	}
}

func TestOtherWorkspace(t *testing.T) {
	w := newFixture(t)
	if r, err := w.folder.Push(t.Context(), "push", dirsync.Refuse); err != nil || r.Generation != 0 {
		t.Errorf("Push() of nothing = %+v, %v; want generation 0", r, err)
	}
	if _, err := os.Stat(filepath.Join(w.dir, dirsync.BaseFileName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat of the base after a push of nothing to a new workspace = %v, want %v", err, fs.ErrNotExist)
	}
	w.remote.set(map[string]string{"f": "1"})
	w.pull(dirsync.Refuse)
	_, err := dirsync.Open(w.dir, w.remote, dirsync.Options{Workspace: "lab"})
	if !errors.Is(err, dirsync.ErrOtherWorkspace) {
		t.Errorf("Open() for another workspace = %v, want %v", err, dirsync.ErrOtherWorkspace)
	}
	base := filepath.Join(w.dir, dirsync.BaseFileName)
	if err := os.WriteFile(base, bytes.Repeat([]byte("{"), 10), 0o600); err != nil {
		t.Fatal(err)
	}
	w.open() // a damaged base counts as missing
	if r := w.pull(dirsync.Refuse); len(r.Conflicts) != 0 {
		t.Errorf("Pull() without a base = %+v, want no conflicts", r)
	}
}

// TestNothingIsLost changes both sides at random, and checks that the last text that a person wrote into each file is
// in some file afterwards.
func TestNothingIsLost(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := newFixture(t)
		names := []string{"a", "b", "d/a", "d/b", "d/e/f", "b/x"}
		for round := range 6 {
			edits := []string{}
			for i := range 3 {
				p := names[rng.IntN(len(names))]
				text := fmt.Sprintf("person %d.%d", round, i)
				full := filepath.Join(w.dir, p)
				if rng.IntN(4) == 0 {
					_ = os.Remove(full)
					continue
				}
				if os.MkdirAll(filepath.Dir(full), 0o755) == nil && os.WriteFile(full, []byte(text), 0o600) == nil {
					edits = append(edits, full+"\x00"+text)
				}
			}
			next := w.remote.current()
			p := names[rng.IntN(len(names))]
			for q := range next {
				if strings.HasPrefix(q, p+"/") || strings.HasPrefix(p, q+"/") {
					delete(next, q)
				}
			}
			if next[p] = fmt.Sprintf("task %d", round); rng.IntN(4) == 0 {
				delete(next, p)
			}
			w.remote.set(next)
			last := map[string]string{} // a later edit replaces an earlier one
			for _, e := range edits {
				full, text, _ := strings.Cut(e, "\x00")
				if data, err := os.ReadFile(full); err == nil && string(data) == text {
					last[full] = text
				}
			}
			w.sync()
			got := w.files()
			for full, text := range last {
				if !slices.Contains(slices.Collect(maps.Values(got)), text) {
					t.Fatalf("seed %d, round %d: %q of %s is lost; files = %v, want one with it",
						seed, round, text, full, got)
				}
			}
			there := w.remote.current() // unlike a real workspace, it drops directories that become empty
			for _, side := range []map[string]string{there, got} {
				maps.DeleteFunc(side, func(p, _ string) bool { return strings.HasSuffix(p, "/") })
			}
			if diff := cmp.Diff(there, got); diff != "" {
				t.Fatalf("seed %d, round %d: the sides differ (-there +here):\n%s", seed, round, diff)
			}
		}
	}
}

// TestDifferent changes both sides at random, and checks that Pull and Push report exactly the files at which the sides
// differ afterwards.
func TestDifferent(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 2))
		w := newFixture(t)
		names := []string{"a", "b", "d/a", "d/b", "d/e/f"}
		for round := range 6 {
			next := w.remote.current()
			for i := range 3 {
				p, text := names[rng.IntN(len(names))], fmt.Sprintf("%d.%d", round, i)
				if rng.IntN(2) == 0 {
					w.write(p, text)
				} else if next[p] = text; rng.IntN(3) == 0 {
					delete(next, p)
				}
			}
			w.remote.set(next)
			var r dirsync.Report
			var err error
			if policies := []dirsync.Policy{dirsync.KeepBoth, dirsync.Theirs, dirsync.Ours}; rng.IntN(2) == 0 {
				r, err = w.folder.Pull(t.Context(), policies[rng.IntN(len(policies))])
			} else {
				r, err = w.folder.Push(t.Context(), "", dirsync.Ours)
			}
			if err != nil {
				t.Fatal(err)
			}
			here, there := w.files(), w.remote.current()
			var want []string
			for p := range here {
				if text, ok := there[p]; !strings.HasSuffix(p, "/") && (!ok || text != here[p]) {
					want = append(want, p)
				}
			}
			for p := range there {
				if _, ok := here[p]; !ok && !strings.HasSuffix(p, "/") {
					want = append(want, p)
				}
			}
			got := slices.DeleteFunc(slices.Sorted(slices.Values(r.Different)), func(p string) bool {
				return p == "d" || p == "d/e"
			})
			if slices.Sort(want); !slices.Equal(got, want) {
				t.Fatalf("seed %d, round %d: Different = %q, want %q", seed, round, got, want)
			}
		}
	}
}

// TestPushBesideAnotherCommit checks that a push reports what another commit has changed since the comparison.
func TestPushBesideAnotherCommit(t *testing.T) {
	w := newFixture(t)
	w.remote.set(map[string]string{"a": "1", "gone": "1", "same": "1"})
	if _, err := w.folder.Pull(t.Context(), dirsync.Refuse); err != nil {
		t.Fatal(err)
	}
	w.write("b", "1")
	w.remote.race = func() { w.remote.set(map[string]string{"a": "2", "new": "1", "same": "1"}) }
	r, err := w.folder.Push(t.Context(), "", dirsync.Refuse)
	if want := []string{"a", "gone", "new"}; err != nil || !slices.Equal(r.Different, want) {
		t.Errorf("Push = %q different, %v, want %q", r.Different, err, want)
	}
}

// TestLostWorkspace checks that nothing is removed from the directory if the workspace has lost its versions, and that
// the directory can begin anew without its base.
func TestLostWorkspace(t *testing.T) {
	w := newFixture(t)
	files := map[string]string{"a": "1", "d/b": "2"}
	w.remote.set(map[string]string{"a": "0"})
	w.remote.set(files)
	w.pull(dirsync.Refuse)
	for name, left := range map[string][]map[string]string{"all": nil, "the newest": {{}, {"a": "0"}}} {
		w.remote.versions = left
		w.open()
		for call, fn := range map[string]func() (dirsync.Report, error){
			"Pull": func() (dirsync.Report, error) { return w.folder.Pull(t.Context(), dirsync.Theirs) },
			"Push": func() (dirsync.Report, error) { return w.folder.Push(t.Context(), "", dirsync.Ours) },
			"Sync": func() (dirsync.Report, error) { return w.folder.Sync(t.Context(), "") },
		} {
			if _, err := fn(); !errors.Is(err, dirsync.ErrOlder) {
				t.Errorf("%s() with %s versions lost = %v, want %v", call, name, err, dirsync.ErrOlder)
			}
		}
		w.want("here", w.files(), files)
	}
	w.remote.versions = nil
	w.remove(dirsync.BaseFileName)
	w.open()
	w.sync()
	w.want("here", w.files(), files)
	w.want("there", w.remote.current(), files)
}

// TestOtherFleet checks that a directory is not synchronised with the workspace of the same name in another fleet.
func TestOtherFleet(t *testing.T) {
	theirs := map[string]string{"theirs": "1"}
	for name, newest := range map[string]int{"the same generation": 2, "a later one": 5} {
		w := newFixture(t)
		w.remote.set(map[string]string{"a": "1"})
		w.pull(dirsync.Refuse)
		w.write("b", "1")
		w.sync()
		files := w.files()
		own := w.remote.versions
		w.remote.fleet, w.remote.versions = "other", nil
		for range newest {
			w.remote.set(theirs)
		}
		w.open()
		for call, fn := range map[string]func() (dirsync.Report, error){
			"Pull": func() (dirsync.Report, error) { return w.folder.Pull(t.Context(), dirsync.Theirs) },
			"Push": func() (dirsync.Report, error) { return w.folder.Push(t.Context(), "", dirsync.Ours) },
			"Sync": func() (dirsync.Report, error) { return w.folder.Sync(t.Context(), "") },
		} {
			if _, err := fn(); !errors.Is(err, dirsync.ErrOtherWorkspace) {
				t.Errorf("%s() with %s in another fleet = %v, want %v", call, name, err, dirsync.ErrOtherWorkspace)
			}
		}
		w.want("here", w.files(), files)
		w.want("there", w.remote.current(), theirs)
		w.remote.fleet, w.remote.versions = "", append(own, theirs)
		w.pull(dirsync.Refuse)
		w.want("here, of the own fleet", w.files(), theirs)
	}
}

// TestOldBase checks that a base without a generation or a commit is still read.
func TestOldBase(t *testing.T) {
	w := newFixture(t)
	w.remote.set(map[string]string{"a": "1"})
	w.pull(dirsync.Refuse)
	file := filepath.Join(w.dir, dirsync.BaseFileName)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const version = `"generation":1,"commit":"commit1",`
	withBase := func(old string) {
		text := strings.Replace(string(data), version, old, 1)
		if text == string(data) {
			t.Fatalf("the base does not have %s:\n%s", version, data)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w.open()
	}
	w.remote.fleet = "other"
	withBase(`"generation":1,`)
	w.pull(dirsync.Refuse)
	withBase("")
	w.remote.versions = nil
	w.pull(dirsync.Refuse)
	w.want("here", w.files(), map[string]string{})
}
