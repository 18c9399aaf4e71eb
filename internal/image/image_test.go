package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/image"
)

type entry struct {
	name, text, link string
	kind             byte // default tar.TypeReg
	mode             int64
}

func archiveOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		if e.mode == 0 {
			e.mode = 0o644
		}
		err := w.WriteHeader(&tar.Header{
			Name: e.name, Typeflag: e.kind, Linkname: e.link, Mode: e.mode,
			Size: int64(len(e.text)), Format: tar.FormatPAX,
		})
		if err == nil && e.text != "" {
			_, err = w.Write([]byte(e.text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func compress(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(data)
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func config(t *testing.T, layers ...[]byte) string {
	t.Helper()
	ids := []string{}
	for _, l := range layers {
		ids = append(ids, "sha256:"+digest(l))
	}
	return marshal(t, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"rootfs": map[string]any{"type": "layers", "diff_ids": ids},
	})
}

// docker writes an image in the format of docker save. It writes a layer's second copy as a symbolic link, and further
// copies as hard links.
func docker(t *testing.T, layers ...[]byte) string {
	t.Helper()
	parts := []entry{{name: "c.json", text: config(t, layers...)}}
	var names []string
	for i, l := range layers {
		name := string(rune('a'+i)) + "/layer.tar"
		names = append(names, name)
		first := slices.IndexFunc(layers, func(other []byte) bool { return bytes.Equal(other, l) })
		switch first {
		case i:
			parts = append(parts, entry{name: name, text: string(l)})
		case i - 1:
			parts = append(parts, entry{name: name, kind: tar.TypeSymlink, link: "../" + names[first]})
		default:
			parts = append(parts, entry{name: name, kind: tar.TypeLink, link: names[first]})
		}
	}
	parts = append(parts, entry{
		name: "manifest.json",
		text: marshal(t, []any{map[string]any{"Config": "c.json", "Layers": names}}),
	})
	return write(t, archiveOf(t, parts...))
}

func write(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// layout returns the files of an image in OCI's layout, with compressed layers.
func layout(t *testing.T, layers ...[]byte) map[string]string {
	t.Helper()
	files := map[string]string{"oci-layout": `{"imageLayoutVersion":"1.0.0"}`}
	add := func(text, kind string) map[string]any {
		files["blobs/sha256/"+digest([]byte(text))] = text
		return map[string]any{"mediaType": kind, "digest": "sha256:" + digest([]byte(text)), "size": len(text)}
	}
	var list []any
	for _, l := range layers {
		list = append(list, add(string(compress(t, l)), "application/vnd.oci.image.layer.v1.tar+gzip"))
	}
	manifest := marshal(t, map[string]any{
		"schemaVersion": 2,
		"config":        add(config(t, layers...), "application/vnd.oci.image.config.v1+json"), "layers": list,
	})
	other := map[string]any{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:" +
		strings.Repeat("0", 64), "size": 1, "platform": map[string]any{"os": "linux", "architecture": "pdp11"}}
	mine := add(manifest, "application/vnd.oci.image.manifest.v1+json")
	mine["platform"] = map[string]any{"os": "linux", "architecture": runtime.GOARCH}
	index := add(marshal(t, map[string]any{"schemaVersion": 2, "manifests": []any{other, mine}}),
		"application/vnd.oci.image.index.v1+json")
	files["index.json"] = marshal(t, map[string]any{"schemaVersion": 2, "manifests": []any{index}})
	return files
}

// tree lists the files below a directory with their text, and symbolic links with their target.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		switch {
		case err != nil:
			return err
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			found[name] = "-> " + target
			return err
		case d.IsDir():
			return nil
		}
		text, err := os.ReadFile(path)
		found[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func unpack(t *testing.T, path string) (image.Root, error) {
	t.Helper()
	return image.Unpack(t.Context(), image.Options{Path: path, Dir: filepath.Join(t.TempDir(), "images"), MaxMB: 4})
}

var (
	lower = []entry{
		{name: "./", kind: tar.TypeDir, mode: 0o755},
		{name: "usr/bin/", kind: tar.TypeDir, mode: 0o555},
		{name: "usr/bin/python3", text: "elf", mode: 0o4755},
		{name: "usr/bin/python", kind: tar.TypeLink, link: "usr/bin/python3"},
		{name: "bin", kind: tar.TypeSymlink, link: "/usr/bin"},
		{name: "etc/old/a", text: "a"},
		{name: "etc/old/b", text: "b"},
		{name: "etc/gone", text: "x"},
		{name: "srv/a/old", text: "x"},
		{name: "srv/b/old", text: "x"},
		{name: "srv/c/old", text: "x"},
		{name: "dev/null", kind: tar.TypeChar},
		{name: "pipe", kind: tar.TypeFifo},
	}
	upper = []entry{
		{name: "bin/tool", text: "through a link"},
		{name: "etc/.wh.gone"},
		{name: "etc/old/c", text: "c"},
		{name: "etc/old/.wh..wh..opq"},
		// A whiteout after the files of its own layer keeps these.
		{name: "srv/a/new", text: "a"},
		{name: "srv/b/", kind: tar.TypeDir, mode: 0o755},
		{name: "srv/b/new", text: "b"},
		{name: "srv/.wh..wh..opq"},
		{name: "var/d/new", text: "d"},
		{name: "var/.wh.d"},
		{name: "usr/bin/python", kind: tar.TypeSymlink, link: "../../../../etc/passwd"},
	}
	merged = map[string]string{
		"usr/bin/python3": "elf", "usr/bin/python": "-> ../../../../etc/passwd", "bin": "-> /usr/bin",
		"usr/bin/tool": "through a link", "etc/old/c": "c",
		"srv/a/new": "a", "srv/b/new": "b", "var/d/new": "d",
	}
)

func TestUnpack(t *testing.T) {
	a, b := archiveOf(t, lower...), archiveOf(t, upper...)
	files := layout(t, a, b)
	dir := t.TempDir()
	var parts []entry
	for name, text := range files {
		parts = append(parts, entry{name: name, text: text})
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700),
			os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var digests []string
	for name, path := range map[string]string{
		"docker":      docker(t, a, b),
		"oci archive": write(t, archiveOf(t, parts...)), "oci layout": dir,
	} {
		root, err := unpack(t, path)
		if err != nil {
			t.Errorf("%s: Unpack = %v, want nil", name, err)
			continue
		}
		if d := cmp.Diff(merged, tree(t, root.Dir)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if info, err := os.Stat(filepath.Join(root.Dir, "usr/bin/python3")); err != nil || info.Mode() != 0o755 {
			t.Errorf("%s: a set-user-ID file has mode %v, %v, want 0755", name, info.Mode(), err)
		}
		digests = append(digests, root.Digest)
	}
	if len(slices.Compact(digests)) != 1 {
		t.Errorf("digests of one image in three formats = %q, want equal ones", digests)
	}
	root, err := unpack(t, docker(t, a, a, a, b))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(merged, tree(t, root.Dir)); d != "" {
		t.Errorf("docker, with a layer that is there three times (-want +got):\n%s", d)
	}
}

// TestUntar checks that an archive that is not a layer has no whiteouts.
func TestUntar(t *testing.T) {
	dir := t.TempDir()
	archive := archiveOf(t, entry{name: "x", text: "x"}, entry{name: ".wh.x", text: "not a whiteout"})
	if err := image.Untar(t.Context(), dir, bytes.NewReader(archive), 1); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"x": "x", ".wh.x": "not a whiteout"}, tree(t, dir)); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
}

// TestUnpackOnce checks that an image is unpacked once, and a directory that is not an image is itself the root.
func TestUnpackOnce(t *testing.T) {
	path := docker(t, archiveOf(t, entry{name: "a", text: "a"}))
	o := image.Options{Path: path, Dir: t.TempDir()}
	first, err := image.Unpack(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(first.Dir, "mark"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := image.Unpack(t.Context(), o)
	if err != nil || again.Dir != first.Dir || again.Digest != first.Digest || len(tree(t, again.Dir)) != 2 {
		t.Errorf("Unpack again = %+v, %v, want %+v with the files of the first Unpack", again, err, first)
	}
	plain, err := image.Unpack(t.Context(), image.Options{Path: first.Dir, Dir: o.Dir})
	if err != nil || plain != (image.Root{Dir: first.Dir}) {
		t.Errorf("Unpack of a directory = %+v, %v; want the directory itself", plain, err)
	}
}

// TestHostileImages checks that hostile images are refused, and write nothing outside of their directory.
func TestHostileImages(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	outsideDir := filepath.Dir(outside)
	big := strings.Repeat("x", 3<<20)
	bomb := compress(t, []byte(strings.Repeat("\x00", 64<<20)))
	oneLayer := entry{name: "manifest.json", text: `[{"Config":"c.json","Layers":["l"]}]`}
	oneLayerOf := func(files ...entry) string { return docker(t, archiveOf(t, files...)) }
	raw := func(parts ...entry) string { return write(t, archiveOf(t, parts...)) }
	for name, c := range map[string]struct {
		path string
		want error
	}{
		"traversal":           {oneLayerOf(entry{name: "../../outside", text: "theirs"}), image.ErrBroken},
		"traversal in a name": {oneLayerOf(entry{name: "a/../../outside", text: "theirs"}), image.ErrBroken},
		"link to a host file": {
			oneLayerOf(entry{name: "x", kind: tar.TypeLink, link: "../../outside"}),
			image.ErrBroken,
		},
		"link to a directory": {oneLayerOf(entry{name: "d/", kind: tar.TypeDir},
			entry{name: "x", kind: tar.TypeLink, link: "d"}), image.ErrBroken},
		"link to nothing": {oneLayerOf(entry{name: "x", kind: tar.TypeLink, link: "y"}), image.ErrBroken},
		"loop of links": {oneLayerOf(entry{name: "a", kind: tar.TypeSymlink, link: "b"},
			entry{name: "b", kind: tar.TypeSymlink, link: "a"}, entry{name: "a/x", text: "x"}), image.ErrBroken},
		"whiteout of the root": {oneLayerOf(entry{name: ".wh..."}), image.ErrBroken},
		"large file": {
			oneLayerOf(entry{name: "a", text: big}, entry{name: "b", text: big}),
			image.ErrTooLarge,
		},
		"large and replaced": {
			docker(t, archiveOf(t, entry{name: "a", text: big}), archiveOf(t, entry{name: "a", text: big})),
			image.ErrTooLarge,
		},
		"bomb": {raw(entry{name: "c.json", text: config(t, []byte("x"))},
			entry{name: "l", text: string(bomb)}, oneLayer), image.ErrTooLarge},
		"another layer": {raw(entry{name: "c.json", text: config(t, []byte("x"))},
			entry{name: "l", text: string(archiveOf(t))}, oneLayer), image.ErrBroken},
		"large manifest": {raw(entry{name: "manifest.json", text: "[" + strings.Repeat(" ", 3<<20+2<<20) +
			"]"}), image.ErrTooLarge},
		"two images":          {raw(entry{name: "manifest.json", text: `[{},{}]`}), image.ErrBroken},
		"layers without hash": {raw(entry{name: "c.json", text: config(t)}, oneLayer), image.ErrBroken},
		"digest as a path": {raw(entry{
			name: "index.json",
			text: `{"manifests":[{"digest":"sha256:../../../../etc/passwd00000000000000000000"}]}`,
		}), image.ErrBroken},
		"missing index": {raw(entry{
			name: "index.json",
			text: `{"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"sha256:` +
				strings.Repeat("a", 64) + `"}]}`,
		}), image.ErrBroken},
		"manifest is a link": {
			raw(entry{name: "manifest.json", kind: tar.TypeSymlink, link: "manifest.json"}),
			image.ErrBroken,
		},
		"two manifests, of which the first is broken": {raw(entry{name: "manifest.json", text: "["},
			entry{name: "./manifest.json", text: "[]"}), image.ErrBroken},
		"not an archive": {write(t, []byte("not a tar")), image.ErrBroken},
		"truncated":      {write(t, archiveOf(t, entry{name: "manifest.json", text: big})[:700]), image.ErrBroken},
		"a device":       {"/dev/null", image.ErrBroken},
		"missing":        {filepath.Join(t.TempDir(), "none.tar"), image.ErrMissing},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "images")
			_, err := image.Unpack(t.Context(), image.Options{Path: c.path, Dir: dir, MaxMB: 4})
			if !errors.Is(err, c.want) {
				t.Errorf("Unpack = %v, want %v", err, c.want)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left behind: %v, want nothing", left)
			}
		})
	}
	// A layer that writes through its own symbolic links stays inside.
	root, err := unpack(t, docker(t, archiveOf(t, entry{name: "out", kind: tar.TypeSymlink, link: outsideDir},
		entry{name: "up", kind: tar.TypeSymlink, link: "../../.."}, entry{name: "out/outside", text: "theirs"},
		entry{name: "up/b", text: "b"})))
	if err != nil {
		t.Fatal(err)
	}
	if got := tree(t, root.Dir); got[strings.TrimPrefix(outside, "/")] != "theirs" || got["b"] != "b" {
		t.Errorf("files written through links = %v; want them inside the root", got)
	}
	if text, err := os.ReadFile(outside); string(text) != "mine" {
		t.Errorf("the host's file = %q, %v; want it unchanged", text, err)
	}
}

// TestDeepImages checks that long and deep names are refused: a small archive could have the worker make directories
// for hours.
func TestDeepImages(t *testing.T) {
	deep := strings.Repeat("d/", 128)
	link := func(target string) entry { return entry{name: "a", kind: tar.TypeSymlink, link: target} }
	for name, c := range map[string]struct {
		files []entry
		want  string // part of the error; empty for none
	}{
		"deepest":        {[]entry{{name: deep + deep[2:] + "file", text: "x"}}, ""},
		"deep":           {[]entry{{name: deep + deep + "file"}}, "the name has 257 components; the limit is 256"},
		"whiteout":       {[]entry{{name: deep + deep + ".wh.x"}}, "the name has 257 components"},
		"long":           {[]entry{{name: strings.Repeat("./", 2048) + "x"}}, "4097 bytes long; the limit is 4096"},
		"through a link": {[]entry{link(deep), {name: "a/" + deep + "d"}}, "more than 256 components"},
		"long link":      {[]entry{link(strings.Repeat("d/../", 200)), {name: "a/d"}}, "more than 256 components"},
		"hard link":      {[]entry{{name: "x", kind: tar.TypeLink, link: deep + deep + "d"}}, "has 257 components"},
		"from a link": {
			[]entry{link(deep), {name: "x", kind: tar.TypeLink, link: "a/" + deep + "d"}}, "more than 256 components",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "images")
			path := docker(t, archiveOf(t, c.files...))
			_, err := image.Unpack(t.Context(), image.Options{Path: path, Dir: dir, MaxMB: 4})
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, image.ErrBroken) ||
				!strings.Contains(err.Error(), c.want)) {
				t.Errorf("Unpack = %v, want %q", err, c.want)
			}
			if left, _ := os.ReadDir(dir); c.want != "" && len(left) > 0 {
				t.Errorf("left behind: %v, want nothing", left)
			}
		})
	}
}

// TestHostileLayouts checks that files that are read into memory are bounded, and that no symbolic link that points
// outside the layout is followed.
func TestHostileLayouts(t *testing.T) {
	large := strings.Repeat(" ", 5<<20)
	outside := write(t, []byte(`{"manifests":[]}`))
	for name, damage := range map[string]func(dir, manifest, config string) error{
		"large index":      func(dir, _, _ string) error { return appendTo(filepath.Join(dir, "index.json"), large) },
		"large manifest":   func(_, manifest, _ string) error { return appendTo(manifest, large) },
		"large config":     func(_, _, config string) error { return appendTo(config, large) },
		"index outside":    func(dir, _, _ string) error { return relink(filepath.Join(dir, "index.json"), outside) },
		"manifest outside": func(_, manifest, _ string) error { return relink(manifest, outside) },
		"device":           func(_, manifest, _ string) error { return relink(manifest, "/dev/zero") },
		"blobs outside": func(dir, _, _ string) error {
			return relink(filepath.Join(dir, "blobs"), filepath.Dir(outside))
		},
		"no manifest": func(_, manifest, _ string) error { return os.Remove(manifest) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, a := t.TempDir(), archiveOf(t, lower...)
			var manifest string
			for name, text := range layout(t, a) {
				file := filepath.Join(dir, name)
				err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600))
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(text, `"layers":[{`) {
					manifest = file
				}
			}
			config := filepath.Join(dir, "blobs/sha256", digest([]byte(config(t, a))))
			if _, err := unpack(t, dir); err != nil {
				t.Fatalf("Unpack before the damage = %v, want nil", err)
			}
			if err := damage(dir, manifest, config); err != nil {
				t.Fatal(err)
			}
			if _, err := unpack(t, dir); !errors.Is(err, image.ErrBroken) {
				t.Errorf("Unpack = %v, want %v", err, image.ErrBroken)
			}
		})
	}
}

func appendTo(file, text string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// relink replaces a file or directory with a symbolic link.
func relink(file, target string) error {
	return errors.Join(os.RemoveAll(file), os.Symlink(target, file))
}

func TestUnpackCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if _, err := image.Unpack(ctx, image.Options{Path: docker(t, archiveOf(t, lower...)), Dir: dir}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("Unpack = %v; want the context's error", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v, want nothing", left)
	}
}

// FuzzUntar checks that Untar writes nothing outside of its directory, whatever the archive contains: neither next to
// it nor where the links of the seeds lead.
func FuzzUntar(f *testing.F) {
	t := &testing.T{}
	f.Add(archiveOf(t, lower...))
	f.Add(archiveOf(t, upper...))
	outside := f.TempDir()
	for _, link := range []string{outside, ".."} {
		f.Add(archiveOf(t, entry{name: "a", kind: tar.TypeSymlink, link: link}, entry{name: "a/b", text: "x"}))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		home := t.TempDir()
		dir := filepath.Join(home, "dir")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		_ = image.Untar(t.Context(), dir, bytes.NewReader(data), 1)
		if entries, err := os.ReadDir(home); err != nil || len(entries) != 1 {
			t.Errorf("the parent directory contains %v, %v, want only dir", entries, err)
		}
		if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
			t.Errorf("the directory of the link contains %v, %v, want nothing", entries, err)
		}
	})
}
