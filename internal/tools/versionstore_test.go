package tools_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/tools"
)

func newVersionStore(t *testing.T) (store *tools.VersionStore, write func(name, text string)) {
	t.Helper()
	dir := t.TempDir()
	store, err := tools.OpenVersionStore(tools.VersionStoreOptions{
		Source: tools.OpenCatalogue(dir, tools.Options{Check: tools.PythonChecker("")}),
		Dir:    filepath.Join(t.TempDir(), "versions"), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return store, func(name, text string) {
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

func current(t *testing.T, s *tools.VersionStore) (version string, listing *tools.Listing) {
	t.Helper()
	v := currentOf(t, s, "acme")
	return v.ID, v.Listing
}

func currentOf(t *testing.T, s *tools.VersionStore, tenant string) tools.Installed {
	t.Helper()
	v, release, err := s.Current(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	release()
	return v
}

func TestVersionStoreFollowsTheFiles(t *testing.T) {
	store, write := newVersionStore(t)
	write("mine/f.py", "from ._help import one\n\ndef f():\n    return one()\n")
	write("mine/_help.py", "def one():\n    return 1\n")
	v1, listing := current(t, store)
	if len(listing.Tools) != 1 || listing.Tools[0].ID() != "mine/f" || len(listing.Broken) > 0 {
		t.Fatalf("tools = %v, broken %v, want mine/f and none", listing.Tools, listing.Broken)
	}
	if v, same := current(t, store); v != v1 || same != listing {
		t.Errorf("without a change, version %s became %s, want the same", v1, v)
	}
	write("mine/g.py", "def g():\n    return 2\n")
	v2, listing := current(t, store)
	if v2 == v1 || len(listing.Tools) != 2 {
		t.Errorf("after a new file, version %s became %s with %d tools, want a new version with 2",
			v1, v2, len(listing.Tools))
	}
	write("mine/_help.py", "def one():\n    return 1000\n")
	v3, _ := current(t, store)
	for v, want := range map[string]string{v1: "return 1\n", v2: "return 1\n", v3: "return 1000\n"} {
		got, err := os.ReadFile(filepath.Join(store.Dir(), v, "servers/mine/_help.py"))
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("helper in version %s = %q, %v, want %q", v, got, err, want)
		}
	}
}

func TestVersionStoreWithBrokenFiles(t *testing.T) {
	store, write := newVersionStore(t)
	write("mine/f.py", "def f():\n    return 1\n")
	v1, _ := current(t, store)
	write("mine/_help.py", "def one(:\n")
	write("approvals.json", "{")
	if v, listing := current(t, store); v != v1 || len(listing.Tools) != 1 {
		t.Errorf("with unreadable approvals: version %s with %d tools, want %s", v, len(listing.Tools), v1)
	}
	write("approvals.json", "{}")
	v2, listing := current(t, store)
	if len(listing.Broken) != 1 || listing.Broken[0].Path != "mine/_help.py" || listing.Broken[0].Line != 1 {
		t.Errorf("broken = %v, want line 1 of mine/_help.py", listing.Broken)
	}
	if _, err := os.Stat(filepath.Join(store.Dir(), v2, "servers/mine/_help.py")); err == nil {
		t.Error("the version has a broken file, want it omitted")
	}
}

// Each tenant has the fleet's files and the tools that it registered, which cannot replace a package of the fleet.
// Another host fetches a version that a task kept.
func TestVersionsOfTenants(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077)) // a program's user can still read the files
	dir, bucket := t.TempDir(), mem.New()
	write(t, dir, "mine/f.py", "def f():\n    return 1\n")
	write(t, dir, "common/_util.py", "def helper():\n    return 1\n")
	overlays := map[string]*tools.Overlay{"acme": {Files: map[string][]byte{
		"crm/find.py": []byte("def find():\n    return 2\n"), "mine/g.py": []byte("def g():\n    return 3\n"),
		"common/h.py": []byte("def h():\n    return 4\n"),
	}}}
	open := func(source tools.Source, o map[string]*tools.Overlay) *tools.VersionStore {
		t.Helper()
		store, err := tools.OpenVersionStore(tools.VersionStoreOptions{
			Source: source, Dir: filepath.Join(t.TempDir(), "versions"), Objects: bucket,
			Log: slog.New(slog.DiscardHandler),
			Overlay: func(_ context.Context, tenant string) (*tools.Overlay, error) {
				if tenant == "" { // would read a key with an empty segment, which MinIO refuses
					return nil, errors.New("the overlay of no tenant was requested")
				}
				return o[tenant], nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	read := func(s *tools.VersionStore, v tools.Installed, name string) string {
		data, err := os.ReadFile(filepath.Join(s.Dir(), v.Dir, "servers", name))
		if err != nil {
			return "none"
		}
		return string(data)
	}
	here := open(tools.OpenCatalogue(dir, tools.Options{}), overlays)
	v := currentOf(t, here, "acme")
	if len(v.Listing.Tools) != 2 || v.Listing.Tools[0].ID() != "crm/find" ||
		v.Listing.Tools[0].State != tools.Registered || len(v.Listing.Broken) != 2 {
		t.Fatalf("Current = %+v, want crm/find, mine/f and two broken servers", v)
	}
	find, f, g := read(here, v, "crm/find.py"), read(here, v, "mine/f.py"), read(here, v, "mine/g.py")
	if !strings.Contains(find, "2") || !strings.Contains(f, "1") || g != "none" {
		t.Errorf("files of %s: %q, %q, %q, want the tenant's find, f and no g", v.ID, find, f, g)
	}
	if read(here, v, "common/_util.py") == "none" || read(here, v, "common/h.py") != "none" {
		t.Error("the fleet's package of helpers is missing or replaced, want it unchanged")
	}
	for _, file := range []string{"__init__.py", "crm/find.py", "mine/f.py", "common/_util.py"} {
		at := filepath.Join(here.Dir(), v.Dir, "servers", file)
		for want := fs.FileMode(0o644); at != here.Dir(); at, want = filepath.Dir(at), 0o755 {
			if info, err := os.Stat(at); err != nil || info.Mode().Perm() != want {
				t.Errorf("mode of %s = %v, %v, want %v", at, info.Mode(), err, want)
			}
		}
	}
	base := currentOf(t, here, "other")
	if len(base.Listing.Tools) != 1 || read(here, base, "crm/find.py") != "none" ||
		!strings.HasPrefix(v.ID, base.ID+".") {
		t.Errorf("another tenant has %+v, want one tool without the tenant's", base)
	}
	if shared := currentOf(t, here, ""); shared.ID != base.ID {
		t.Errorf("Current without a tenant = %s, want %s, on which the tenants' versions build", shared.ID, base.ID)
	}
	if info, err := os.Stat(here.Dir()); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("mode of the versions directory = %v, %v, want 0711", info.Mode(), err)
	}
	// Another host, with other files and without registered tools.
	elsewhere := open(tools.OpenCatalogue(t.TempDir(), tools.Options{}), nil)
	again, _, err := elsewhere.Kept(t.Context(), "acme", v.ID)
	if err != nil || again.ID != v.ID || len(again.Listing.Tools) != 2 ||
		again.Listing.Tools[0].State != tools.Registered || read(elsewhere, again, "crm/find.py") != find {
		t.Errorf("Kept on another host = %+v, %v; want the same version", again, err)
	}
	unknown := strings.Repeat("a", 26)
	for _, bad := range []string{
		"x", "../..", base.ID + "..", base.ID + "." + base.ID, base.ID + ".", unknown, v.Dir,
	} {
		if _, _, err := elsewhere.Kept(t.Context(), "acme", bad); err == nil {
			t.Errorf("Kept(%q) = nil, want an error", bad)
		}
	}
	if _, _, err := elsewhere.Kept(t.Context(), "other", v.ID); err == nil {
		t.Error("Kept of another tenant's version = nil, want an error")
	}
	// Old versions of a tenant are removed, unless a task uses them.
	update := func(from, to int) (last tools.Installed) {
		for i := from; i < to; i++ {
			module := fmt.Appendf(nil, "def find():\n    return %d\n", i)
			overlays["acme"] = &tools.Overlay{Files: map[string][]byte{"crm/find.py": module}}
			last = currentOf(t, here, "acme")
		}
		return last
	}
	_, releaseFirst, errFirst := here.Current(t.Context(), "acme")
	_, releaseSecond, errSecond := here.Kept(t.Context(), "acme", v.ID)
	if err := errors.Join(errFirst, errSecond); err != nil {
		t.Fatal(err)
	}
	releaseFirst()
	update(100, 140)
	entries, err := os.ReadDir(here.Dir())
	if err != nil || len(entries) != 2*34+1 || read(here, v, "crm/find.py") != find {
		t.Errorf("%d directories after 41 versions, want two for each of the last 33 and the one in use, and the "+
			"base: %v", len(entries), err)
	}
	releaseSecond()
	last := update(140, 141)
	entries, err = os.ReadDir(here.Dir())
	if err != nil || len(entries) != 2*33+1 ||
		read(here, last, "crm/find.py") == "none" || read(here, v, "crm/find.py") != "none" {
		t.Errorf("%d directories after 42 versions, want two for each of the last 33, and the base: %v",
			len(entries), err)
	}
}

// A program that knows everything about the registered tools of another tenant (their files, the version's ID) does
// not know the names of their directories, because these are random for each tenant and worker process.
func TestDirectoriesOfTenantsAreSecret(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "mine/f.py", "def f():\n    return 1\n")
	overlay := &tools.Overlay{Files: map[string][]byte{"crm/find.py": []byte("def find():\n    return 2\n")}}
	prefixes := map[string]bool{}
	for range 2 {
		store, err := tools.OpenVersionStore(tools.VersionStoreOptions{
			Source: tools.OpenCatalogue(dir, tools.Options{}), Dir: filepath.Join(t.TempDir(), "versions"),
			Log: slog.New(slog.DiscardHandler),
			Overlay: func(_ context.Context, tenant string) (*tools.Overlay, error) {
				return map[string]*tools.Overlay{"a": overlay, "b": overlay}[tenant], nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		base := currentOf(t, store, "without an overlay").ID
		for _, tenant := range []string{"a", "b"} {
			v := currentOf(t, store, tenant)
			prefix, rest, _ := strings.Cut(v.Dir, ".")
			if prefixes[prefix] || len(prefix) != 26 || rest != v.ID || !strings.HasPrefix(v.ID, base+".") {
				t.Errorf("tenant %s: version %s in %s, want a new random prefix of 26 characters", tenant, v.ID, v.Dir)
			}
			prefixes[prefix] = true
		}
		entries, err := os.ReadDir(store.Dir())
		if err != nil || len(entries) != 1+2*2 {
			t.Errorf("%d directories, %v, want the base's, and two for each tenant", len(entries), err)
		}
		for _, e := range entries {
			prefix, _, _ := strings.Cut(e.Name(), ".")
			if e.Name() != base && !prefixes[prefix] {
				t.Errorf("the directory is %s, want a random prefix", e.Name())
			}
		}
	}
}

// A published version arrives within seconds, without local files. If the bucket fails, the last version stays.
func TestPublishedSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		p := tools.OpenPublished(bucket)
		if _, err := p.Read(t.Context()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Read before a version is published: %v, want %v", err, fs.ErrNotExist)
		}
		dir := t.TempDir()
		publish := func(name string) string {
			write(t, dir, "mine/"+name+".py", "def "+name+"():\n    return 1\n")
			v := pack(t, dir)
			if err := tools.Publish(t.Context(), bucket, v); err != nil {
				t.Fatal(err)
			}
			return v.ID
		}
		store, err := tools.OpenVersionStore(tools.VersionStoreOptions{
			Source: p, Dir: filepath.Join(t.TempDir(), "v"), Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		first := publish("f")
		time.Sleep(3 * time.Second) //nolint:forbidigo // virtual time, of synctest
		if v, listing := current(t, store); v != first || len(listing.Tools) != 1 {
			t.Fatalf("Current = %s, %+v, want %s", v, listing, first)
		}
		second := publish("g")
		if v, _ := current(t, store); v != first {
			t.Errorf("Current before the next poll = %s, want %s", v, first)
		}
		time.Sleep(3 * time.Second) //nolint:forbidigo // virtual time, of synctest
		if v, listing := current(t, store); v != second || len(listing.Tools) != 2 {
			t.Errorf("Current three seconds later = %s, want %s", v, second)
		}
		bucket.SetFault(broken)
		time.Sleep(3 * time.Second) //nolint:forbidigo // virtual time, of synctest
		if v, _ := current(t, store); v != second {
			t.Errorf("Current without the bucket = %s, want %s", v, second)
		}
	})
}

// A file that Python has accepted is a tool on every host, also if only Python can parse it.
func TestPublishedFileThatOnlyPythonParses(t *testing.T) {
	dir, bucket := t.TempDir(), mem.New()
	write(t, dir, "mine/f.py", "def f():\n    d = {\"it's\": 1}\n    return f\"{d[\"it's\"]}\"\n")
	accept := func(context.Context, map[string][]byte) (map[string]tools.Broken, error) { return nil, nil }
	v, local, err := tools.OpenCatalogue(dir, tools.Options{Check: accept}).Pack(t.Context())
	if err == nil {
		err = tools.Publish(t.Context(), bucket, v)
	}
	if err != nil {
		t.Fatal(err)
	}
	published, err := tools.OpenPublished(bucket).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	store, err := tools.OpenVersionStore(tools.VersionStoreOptions{
		Source: tools.OpenCatalogue(t.TempDir(), tools.Options{}), Dir: filepath.Join(t.TempDir(), "v"),
		Objects: bucket, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	kept, _, err := store.Kept(t.Context(), "acme", v.ID)
	if err != nil {
		t.Fatal(err)
	}
	for host, listing := range map[string]*tools.Listing{"local": local, "published": published, "kept": kept.Listing} {
		if got := ids(listing); len(got) != 1 || got[0] != "mine/f" || len(listing.Broken) > 0 {
			t.Errorf("%s: tools %v, broken %v; want mine/f and none", host, got, listing.Broken)
		}
	}
}

// If the current version is gone, Read fails with an error that does not say that nothing was published.
func TestPublishedVersionIsGone(t *testing.T) {
	bucket, dir := mem.New(), t.TempDir()
	write(t, dir, "mine/f.py", "def f():\n    return 1\n")
	v := pack(t, dir)
	if err := tools.Publish(t.Context(), bucket, v); err != nil {
		t.Fatal(err)
	}
	if err := bucket.Delete(t.Context(), "_catalogue/versions/"+v.ID+".tar.gz"); err != nil {
		t.Fatal(err)
	}
	p := tools.OpenPublished(bucket)
	_, err := p.Read(t.Context())
	if err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), v.ID+" is missing") {
		t.Errorf("Read = %v, want an error that names the missing version", err)
	}
	if _, _, err := p.Unpack(t.Context(), t.TempDir()); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Unpack = %v, want the same error", err)
	}
}

// While the bucket does not respond to one task, others end with their contexts. The end of the first task's context is
// not an error for others.
func TestHangingBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, dir := hanging{Objects: mem.New()}, t.TempDir()
		write(t, dir, "mine/f.py", "def f():\n    return 1\n")
		v := pack(t, dir)
		if err := tools.Publish(t.Context(), bucket.Objects, v); err != nil {
			t.Fatal(err)
		}
		p := tools.OpenPublished(&bucket)
		store, err := tools.OpenVersionStore(tools.VersionStoreOptions{
			Source: p, Dir: filepath.Join(t.TempDir(), "v"), Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		bucket.hangs.Store(true)
		first, endFirst := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _, _, _ = store.Current(first, "acme") })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		calls := map[string]func() error{
			"Current": func() error { _, _, err := store.Current(ctx, "acme"); return err },
			"Kept":    func() error { _, _, err := store.Kept(ctx, "acme", v.ID); return err },
			"Read":    func() error { _, err := p.Read(ctx); return err },
		}
		for name, call := range calls {
			if err := call(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s() of a task that ends = %v, want %v", name, err, context.DeadlineExceeded)
			}
		}
		bucket.hangs.Store(false)
		endFirst()
		running.Wait()
		if id, _ := current(t, store); id != v.ID {
			t.Errorf("Current() after the first task = %s, want %s", id, v.ID)
		}
	})
}

// hanging is an object store that does not respond to reads while hangs is set.
type hanging struct {
	*mem.Objects
	hangs atomic.Bool
}

func (h *hanging) Get(ctx context.Context, key string, o objects.GetOptions) (objects.Object, error) {
	if h.hangs.Load() {
		<-ctx.Done()
		return objects.Object{}, ctx.Err()
	}
	return h.Objects.Get(ctx, key, o)
}
