package tree_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/content"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/tree"
)

func open(t *testing.T, bucket objects.Objects) (dir string, d *tree.Dir) {
	t.Helper()
	return openWith(t, bucket, format.DefaultQuota)
}

func openWith(t *testing.T, bucket objects.Objects, quota format.Quota) (dir string, d *tree.Dir) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store := content.New(bucket, content.Options{Log: log})
	dir = t.TempDir()
	d, err := tree.Open(dir, format.Ref{Tenant: "acme", Workspace: "main"}, store, tree.Options{
		Reserved: []string{"servers"}, MountPoints: []string{"servers"}, Excludes: []string{"*.tmp"},
		Quota: quota, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return dir, d
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAccess checks that a version contains files from which a program has removed all permissions. A worker that is
// not root could not read them.
func TestAccess(t *testing.T) {
	dir, d := open(t, mem.New())
	write(t, dir, map[string]string{"a/b/file": "x", "a/link.txt": "", "read-only": "y"})
	write(t, dir, map[string]string{".workspaceignore": "*.log\n", "x.log": "z"})
	for _, c := range []struct {
		path string
		mode os.FileMode
	}{{"a/b/file", 0}, {"a/b", 0o055}, {"a", 0}, {"read-only", 0o444}, {".workspaceignore", 0}} {
		if err := os.Chmod(filepath.Join(dir, c.path), c.mode); err != nil {
			t.Fatal(err)
		}
	}
	up, err := d.Diff(t.Context(), format.EmptySet, false, nil, 0)
	if err == nil {
		err = up.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint32{}
	for _, c := range up.Changes {
		got[c.Path] = c.Entry.Mode
	}
	want := map[string]uint32{
		"a": 0o700, "a/b": 0o755, "a/b/file": 0o400, "a/link.txt": 0o600, "read-only": 0o444, ".workspaceignore": 0o400,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("modes (-want +got):\n%s", diff)
	}
}

// TestMountPoints checks that only empty directories stay at mount points.
func TestMountPoints(t *testing.T) {
	for _, c := range []struct {
		name  string
		write func(dir string) error // changes the mount point
		stays bool
	}{
		{"empty", func(dir string) error { return os.Mkdir(dir, 0o755) }, true},
		{"not empty", func(dir string) error { return os.MkdirAll(filepath.Join(dir, "x"), 0o755) }, false},
		{"a file", func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, false},
		{"a link", func(dir string) error { return os.Symlink(".", dir) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, d := open(t, mem.New())
			if err := c.write(filepath.Join(dir, "servers")); err != nil {
				t.Fatal(err)
			}
			up, err := d.Diff(t.Context(), format.EmptySet, false, nil, 0)
			if err != nil || len(up.Changes) > 0 {
				t.Errorf("Diff() = %v, %v, want no changes", up, err)
			}
			if d.Exact() != c.stays {
				t.Errorf("Exact() = %v, want %v", d.Exact(), c.stays)
			}
			for range 2 {
				if err := d.Materialise(t.Context(), format.EmptySet, true); err != nil {
					t.Fatal(err)
				}
				if _, err := os.Lstat(filepath.Join(dir, "servers")); (err == nil) != c.stays {
					t.Errorf("Lstat() = %v, want it to stay: %v", err, c.stays)
				}
			}
		})
	}
	if os.Geteuid() != 0 {
		t.Skip("the owner of files can only be set by root")
	}
	t.Run("of a program", func(t *testing.T) {
		dir := t.TempDir()
		log := slog.New(slog.DiscardHandler)
		d, err := tree.Open(dir, format.Ref{Tenant: "acme", Workspace: "main"},
			content.New(mem.New(), content.Options{Log: log}), tree.Options{
				Owner: &tree.Owner{UID: 65534, GID: 65534}, Reserved: []string{"servers", "client", "lost+found"},
				MountPoints: []string{"servers", "client"}, Quota: format.DefaultQuota, Log: log,
			})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for _, name := range []string{"servers", "client", "lost+found"} {
			if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chown(filepath.Join(dir, "client"), 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if err := d.Materialise(t.Context(), format.EmptySet, true); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 || entries[0].Name() != "servers" {
			t.Errorf("left are %v, %v; want only servers", entries, err)
		}
	})
}

// TestTooDeep checks the error for a path that no workspace can hold.
func TestTooDeep(t *testing.T) {
	dir, d := open(t, mem.New())
	write(t, dir, map[string]string{strings.Repeat("d/", 128) + "f": "1"})
	_, err := d.Diff(t.Context(), format.EmptySet, false, nil, 0)
	const want = "limit of all workspaces exceeded: path "
	if !errors.Is(err, format.ErrQuota) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("Diff() of a path with 129 components = %v, want %v that begins with %q", err, format.ErrQuota, want)
	}
	if _, ok := errors.AsType[*format.QuotaError](err); ok {
		t.Errorf("Diff() of a path with 129 components = %v, want no *QuotaError: no quota raises the limit", err)
	}
}

// TestTooManyPaths checks that a scan fails before it has seen many more paths than the quota allows, whether they are
// excluded or not, and sooner if they are long.
func TestTooManyPaths(t *testing.T) {
	long := strings.Repeat(strings.Repeat("d", 250)+"/", 9)
	for _, c := range []struct {
		name, dir, suffix string
		links             int // names of one file
		fails             bool
	}{
		{"few", long, ".tmp", 1_100, false},
		{"found", long, "", 1_200, true},
		{"excluded", long, ".tmp", 1_200, true},
		{"short", "", ".tmp", 10_500, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			quota := format.DefaultQuota
			quota.Files = 200
			dir, d := openWith(t, mem.New(), quota)
			write(t, dir, map[string]string{c.dir + "file": ""})
			for i := range c.links {
				name := filepath.Join(dir, c.dir, strconv.Itoa(i)+c.suffix)
				if err := os.Link(filepath.Join(dir, c.dir, "file"), name); err != nil {
					t.Fatal(err)
				}
			}
			up, err := d.Diff(t.Context(), format.EmptySet, false, nil, 0)
			if err == nil {
				err = up.Wait()
			}
			if c.fails != (err != nil) || c.fails && (!errors.Is(err, format.ErrQuota) ||
				!strings.Contains(err.Error(), "there are more than 10400 paths; excluded paths count")) {
				t.Errorf("Diff() of %d paths = %v, want an error: %v", c.links, err, c.fails)
			}
		})
	}
}

// TestRoundTrip checks that Materialise writes to one directory what Diff found in another.
func TestRoundTrip(t *testing.T) {
	bucket := mem.New()
	dir, d := open(t, bucket)
	if err := d.Materialise(t.Context(), format.EmptySet, false); err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{"a": "1", "deep/b": "2", "servers/x": "reserved", "c.tmp": "excluded"})
	if err := os.Symlink("../../etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	up, err := d.Diff(t.Context(), format.EmptySet, false, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "deep", "deep/b", "link"}, format.ChangedPaths(up.Changes)); diff != "" {
		t.Errorf("Diff() (-want +got):\n%s", diff)
	}
	if err := up.Wait(); err != nil {
		t.Fatal(err)
	}
	set, err := format.EmptySet.Apply(up.Changes)
	if err != nil {
		t.Fatal(err)
	}

	other, o := open(t, bucket)
	write(t, other, map[string]string{"a": "another", "old": "removed", "servers/x": "reserved"})
	if err := o.Materialise(t.Context(), set, true); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a": "1", "deep/b": "2"} {
		if got, err := os.ReadFile(filepath.Join(other, name)); string(got) != want {
			t.Errorf("%s = %q, %v, want %q", name, got, err, want)
		}
	}
	if target, err := os.Readlink(filepath.Join(other, "link")); target != "../../etc/passwd" {
		t.Errorf("link to %q, %v, want ../../etc/passwd", target, err)
	}
	for _, name := range []string{"old", "servers"} {
		if _, err := os.Lstat(filepath.Join(other, name)); !os.IsNotExist(err) {
			t.Errorf("%s still exists: %v, want it removed", name, err)
		}
	}
	again, err := o.Diff(t.Context(), set, true, nil, 0)
	if err != nil || len(again.Changes) > 0 {
		t.Errorf("Diff() of what was materialised = %v, %v, want no changes", again, err)
	}
}

// TestFileTimes checks that files may have times before 1970, and after those that int64 holds in nanoseconds.
func TestFileTimes(t *testing.T) {
	dir, d := open(t, mem.New())
	if err := d.Materialise(t.Context(), format.EmptySet, false); err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{"early": "1", "late": "2"})
	want := map[string]int64{}
	for name, year := range map[string]int{"early": 1960, "late": 2300} {
		at := unix.Timespec{Sec: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Unix()}
		file := filepath.Join(dir, name)
		if err := unix.UtimesNano(file, []unix.Timespec{at, at}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		want[name] = clock.Nanos(info.ModTime()) // file systems have limits, too
	}
	up, err := d.Diff(t.Context(), format.EmptySet, false, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := up.Wait(); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, c := range up.Changes {
		got[c.Path] = c.Entry.MTime
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("times (-want +got):\n%s", diff)
	}
}

// TestWatch checks that Diff scans a directory again unless nothing was written to it since a Diff found no change.
func TestWatch(t *testing.T) {
	for _, c := range []struct {
		name  string
		paths int
		skips bool // the scan, if nothing seems to have been written
	}{
		{"few paths", 255, false},
		{"many paths", 256, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, d := open(t, mem.New())
			var untouched, asked bool
			d.Watch(func() bool { asked = true; return untouched })
			for i := range c.paths {
				write(t, dir, map[string]string{strconv.Itoa(i): "x"})
			}
			diff := func(base *format.EntrySet) []format.Change {
				t.Helper()
				up, err := d.Diff(t.Context(), base, false, nil, 0)
				if err == nil {
					err = up.Wait()
				}
				if err != nil {
					t.Fatal(err)
				}
				return up.Changes
			}
			var entries []*format.Entry
			for _, change := range diff(format.EmptySet) {
				entries = append(entries, change.Entry)
			}
			set, err := format.NewEntrySet(entries)
			if err != nil {
				t.Fatal(err)
			}
			if untouched = true; len(diff(set)) != 0 || asked {
				t.Error("Diff() skipped the first scan with a version, want it to scan")
			}
			write(t, dir, map[string]string{"0": "changed"})
			if got := len(diff(set)) == 0; got != c.skips || asked != c.skips {
				t.Errorf("Diff() skipped the scan: %v, asked: %v, want %v", got, asked, c.skips)
			}
			untouched = false
			if got := diff(set); len(got) != 1 || got[0].Path != "0" {
				t.Errorf("Diff() after a write = %v, want the change of 0", got)
			}
			untouched = true
			if got := diff(set); len(got) != 1 {
				t.Errorf("Diff() after a Diff with changes = %v, want the change of 0 again", got)
			}
		})
	}
}
