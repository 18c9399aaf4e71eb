package tools_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/pythontest"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/tools"
)

// broken makes every request to the bucket fail.
func broken(mem.Call) mem.Fault { return mem.Broken }

func pack(t *testing.T, dir string) tools.Version {
	t.Helper()
	v, _, err := tools.OpenCatalogue(dir, tools.Options{}).Pack(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVersions(t *testing.T) {
	dir := t.TempDir()
	generated(t, dir, "up", definition("get"))
	write(t, dir, "mine/f.py", "def f():\n    return 6 * 7\n")
	write(t, dir, "mine/__init__.py", "# My tools.\n\n")
	write(t, dir, "mine/broken.py", "def broken(:\n")
	write(t, dir, "mine/__pycache__/f.pyc", "x")
	write(t, dir, "notes.txt", "x")
	v := pack(t, dir)
	other := t.TempDir()
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if again := pack(t, other); again.ID != v.ID || !bytes.Equal(again.Archive, v.Archive) {
		t.Errorf("equal files have the versions %s and %s, want one", v.ID, again.ID)
	}
	bucket := mem.New()
	if _, err := tools.Current(t.Context(), bucket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Current of an empty bucket = %v, want fs.ErrNotExist", err)
	}
	if err := tools.Publish(t.Context(), bucket, v); err != nil {
		t.Fatal(err)
	}
	id, err := tools.Current(t.Context(), bucket)
	if err != nil || id != v.ID {
		t.Errorf("Current = %s, %v, want %s", id, err, v.ID)
	}
	host := filepath.Join(t.TempDir(), "catalogue")
	at := filepath.Join(host, id)
	if err := tools.FetchTo(t.Context(), bucket, id, host); err != nil {
		t.Fatalf("FetchTo = %v, want nil", err)
	}
	bucket.SetFault(broken)
	if err := tools.FetchTo(t.Context(), bucket, id, host); err != nil {
		t.Errorf("FetchTo an existing directory = %v, want nil", err)
	}
	var files []string
	err = fs.WalkDir(os.DirFS(at), ".", func(name string, e fs.DirEntry, err error) error {
		if !e.IsDir() {
			files = append(files, name)
		}
		return err
	})
	want := "servers/__init__.py servers/mine/__init__.py servers/mine/f.py " +
		"servers/up/__init__.py servers/up/definitions.json servers/up/get.py"
	if got := strings.Join(files, " "); err != nil || got != want {
		t.Errorf("files = %s, %v, want %s", got, err, want)
	}
	// The unpacked version has the same tools. Packed again, it has the same ID.
	listing := read(t, tools.OpenCatalogue(filepath.Join(at, "servers"), tools.Options{}))
	if len(listing.Tools) != 2 || pack(t, filepath.Join(at, "servers")).ID != id {
		t.Errorf("unpacked tools = %v, or the ID changed; want two and the same ID", ids(listing))
	}
	write(t, dir, "mine/g.py", "def g(): pass\n")
	if next := pack(t, dir); next.ID == v.ID {
		t.Error("the version with a new tool has the same ID, want another")
	}
	cmd := exec.Command(pythontest.Find(t), "-S", "-B", "-c", "from servers.mine import f; print(f())")
	cmd.Env = []string{"PYTHONPATH=" + at}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "42\n" {
		t.Errorf("from servers.mine import f = %s, %v; want 42", out, err)
	}
}

// Programs can import each tool as it is listed, whatever the other files of its server are named or contain. Files
// that cannot be imported are broken, and not packed.
func TestImportsAsListed(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"mine/h.py":        "def g():\n    return 1\n",
		"mine/first.py":    "def first[T: (int, str)](items: list[T]) -> T:\n    return items[0]\n",
		"mine/class.py":    "def f():\n    return 2\n",
		"mine/x€.py":       "def f():\n    return 2\n",
		"mine/a\u200bb.py": "def f():\n    return 2\n",
		"mine/pass.py":     "def in():\n    return 2\n",
		"class/f.py":       "def f():\n    return 2\n",
		"größe/maß.py":     "def maß():\n    return 3\n",
	} {
		write(t, dir, name, text)
	}
	v := pack(t, dir)
	host := t.TempDir()
	if err := tools.UnpackOnce(v, host); err != nil {
		t.Fatal(err)
	}
	bucket := mem.New()
	if err := tools.Publish(t.Context(), bucket, v); err != nil {
		t.Fatal(err)
	}
	listing, err := tools.OpenPublished(bucket).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, tool := range listing.Tools {
		got[tool.ID()] = tool.Import()
	}
	want := map[string]string{
		"mine/h": "from servers.mine import g", "mine/first": "from servers.mine import first",
		"größe/maß": "from servers.größe import maß",
	}
	if diff := cmp.Diff(want, got); diff != "" || len(listing.Broken) > 0 {
		t.Errorf("published: broken %v, imports (-want +got):\n%s", listing.Broken, diff)
	}
	program := "from servers.mine import g, h; import servers.mine as m; from servers.größe import maß\n" +
		"print(g(), h(), m.g(), maß(), 'g' in dir(m))\n" +
		"try: from servers.mine import gg\nexcept ImportError as e: print(e)"
	cmd := exec.Command(pythontest.Find(t), "-S", "-B", "-c", program)
	cmd.Env = []string{"PYTHONPATH=" + filepath.Join(host, v.ID), "LANG=C.UTF-8"}
	out, err := cmd.CombinedOutput()
	if want := "1 1 1 3 True\nservers.mine has no tool 'gg'; did you mean g?\n"; err != nil || string(out) != want {
		t.Errorf("imports = %s, %v; want %s", out, err, want)
	}
}

func TestHostileArchives(t *testing.T) {
	archive := func(files map[string]string, kind byte) []byte {
		var tarball bytes.Buffer
		tw := tar.NewWriter(&tarball)
		for name, text := range maps.All(files) {
			h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: kind, Linkname: "/etc/passwd"}
			if kind != tar.TypeReg {
				h.Size = 0
			}
			if err := tw.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			if kind == tar.TypeReg {
				if _, err := tw.Write([]byte(text)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := tw.Close(); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		zw := gzip.NewWriter(&out)
		if _, err := zw.Write(tarball.Bytes()); err != nil {
			t.Fatal(err)
		}
		if err := zw.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	good := pack(t, t.TempDir())
	for name, v := range map[string]tools.Version{
		"other content":    {ID: good.ID, Archive: archive(map[string]string{"servers/x.py": "x"}, tar.TypeReg)},
		"not gzip":         {ID: good.ID, Archive: []byte("hello")},
		"half an archive":  {ID: good.ID, Archive: good.Archive[:len(good.Archive)/2]},
		"path upwards":     tools.Rehash(archive(map[string]string{"servers/../../x.py": "x"}, tar.TypeReg)),
		"absolute path":    tools.Rehash(archive(map[string]string{"/tmp/x.py": "x"}, tar.TypeReg)),
		"not in servers/":  tools.Rehash(archive(map[string]string{"client/x.py": "x"}, tar.TypeReg)),
		"a symbolic link":  tools.Rehash(archive(map[string]string{"servers/x.py": "x"}, tar.TypeSymlink)),
		"a directory only": tools.Rehash(archive(map[string]string{"servers/x": ""}, tar.TypeDir)),
	} {
		dir := filepath.Join(t.TempDir(), "d")
		if err := tools.UnpackOnce(v, dir); err == nil {
			t.Errorf("%s: UnpackOnce = nil, want an error", name)
		}
		left, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) || len(left) > 0 {
			t.Errorf("%s: UnpackOnce left %v, want nothing", name, left)
		}
	}
	if err := tools.FetchTo(t.Context(), mem.New(), "../../etc", t.TempDir()); err == nil {
		t.Error("FetchTo of an ID that is a path = nil, want an error")
	}
}
