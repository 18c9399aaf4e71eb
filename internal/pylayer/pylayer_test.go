package pylayer_test

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/pylayer"
)

// wheel writes the wheel of a package whose module contains the version.
func wheel(t *testing.T, dir, name, version string, more map[string]string) {
	t.Helper()
	wheelFor(t, dir, name, version, "py3-none-any", more)
}

func wheelFor(t *testing.T, dir, name, version, tag string, more map[string]string) {
	t.Helper()
	info := name + "-" + version + ".dist-info/"
	files := map[string]string{
		name + "/__init__.py": "VERSION = '" + version + "'\n",
		info + "METADATA":     "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n",
		info + "WHEEL":        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: " + tag + "\n",
	}
	maps.Copy(files, more)
	record := slices.Sorted(maps.Keys(files))
	files[info+"RECORD"] = strings.Join(append(record, info+"RECORD", ""), ",,\n")
	out, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%s-%s.whl", name, version, tag)))
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(out)
	for path, text := range files {
		w, err := z.Create(path)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(z.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
}

// source writes the source distribution of a package, whose setup.py makes the file "built" in dir when it is run.
func source(t *testing.T, dir, name string) {
	t.Helper()
	out, err := os.Create(filepath.Join(dir, name+"-1.0.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	compressed := gzip.NewWriter(out)
	archive := tar.NewWriter(compressed)
	for path, text := range map[string]string{
		"PKG-INFO": "Metadata-Version: 1.0\nName: " + name + "\nVersion: 1.0\n",
		"setup.py": fmt.Sprintf("open(%q, 'w').close()\nfrom setuptools import setup\nsetup(name=%q, version='1.0')\n",
			filepath.Join(dir, "built"), name),
	} {
		header := tar.Header{Name: name + "-1.0/" + path, Mode: 0o644, Size: int64(len(text))}
		err = errors.Join(err, archive.WriteHeader(&header))
		_, writeErr := archive.Write([]byte(text))
		err = errors.Join(err, writeErr)
	}
	if err := errors.Join(err, archive.Close(), compressed.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
}

func requirements(t *testing.T, dir, text string) string {
	t.Helper()
	path := filepath.Join(dir, "requirements.txt")
	if err := os.WriteFile(path, []byte("--no-index\n--find-links .\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func options(t *testing.T, text string) pylayer.Options {
	t.Helper()
	dir := t.TempDir()
	wheel(t, dir, "greeting", "1.2", nil)
	wheel(t, dir, "escaping", "1.0", map[string]string{"../../outside.py": "x = 1\n"})
	source(t, dir, "sourced")
	return pylayer.Options{
		Python: "/usr/bin/python3", Requirements: requirements(t, dir, text),
		Dir: filepath.Join(t.TempDir(), "p"),
	}
}

func TestBuild(t *testing.T) {
	o := options(t, "greeting==1.2\n")
	var built [2]pylayer.Layer
	var all sync.WaitGroup
	for i := range built { // several workers on a host may build at once
		all.Go(func() {
			var err error
			if built[i], err = pylayer.Build(t.Context(), o); err != nil {
				t.Errorf("Build = %v, want nil", err)
			}
		})
	}
	all.Wait()
	if d := cmp.Diff(built[0], built[1]); d != "" {
		t.Errorf("layers of the same requirements (-first +second):\n%s", d)
	}
	if d := cmp.Diff([]string{"greeting 1.2"}, built[0].Names); d != "" {
		t.Errorf("Names (-want +got):\n%s", d)
	}
	text, err := os.ReadFile(filepath.Join(built[0].Dir, "greeting", "__init__.py"))
	if err != nil || string(text) != "VERSION = '1.2'\n" {
		t.Errorf("the module = %q, %v; want version 1.2", text, err)
	}
	info, err := os.Stat(filepath.Join(built[0].Dir, "greeting", "__init__.py"))
	if err != nil || info.Mode().Perm() != 0o444 {
		t.Errorf("mode = %v, %v, want 0444", info.Mode(), err)
	}
	entries, err := os.ReadDir(o.Dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("directory of layers contains %v, %v, want only the layer", entries, err)
	}
	requirements(t, filepath.Dir(o.Requirements), "greeting\n# changed\n")
	other, err := pylayer.Build(t.Context(), o)
	if err != nil || other.Hash == built[0].Hash {
		t.Errorf("Build after a change of the requirements = %+v, %v, want a hash other than %s",
			other, err, built[0].Hash)
	}
}

// Wheels are selected by the version, processor and C library of the target, not the host's.
func TestBuildForATarget(t *testing.T) {
	o := options(t, "fast\ngreeting\n")
	for _, tag := range []string{
		"cp312-cp312-manylinux_2_28_x86_64", "cp311-cp311-manylinux_2_28_x86_64",
		"cp312-cp312-manylinux_2_28_aarch64", "cp312-cp312-manylinux_2_40_x86_64",
	} {
		wheelFor(t, filepath.Dir(o.Requirements), "fast", "1.0", tag, map[string]string{"fast/tag.txt": tag})
	}
	old := pylayer.Target{Version: "3.12.1", Platforms: []string{"manylinux_2_28_x86_64", "manylinux_2_17_x86_64"}}
	hashes := map[string]bool{}
	for want, target := range map[string]pylayer.Target{
		"cp312-cp312-manylinux_2_28_x86_64":  old,
		"cp311-cp311-manylinux_2_28_x86_64":  {Version: "3.11.9", Platforms: old.Platforms},
		"cp312-cp312-manylinux_2_28_aarch64": {Version: "3.12.1", Platforms: []string{"manylinux_2_28_aarch64"}},
	} {
		o.Target = &target
		layer, err := pylayer.Build(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(layer.Dir, "fast", "tag.txt"))
		if string(got) != want || err != nil {
			t.Errorf("wheel for %+v = %s, %v, want %s", target, got, err, want)
		}
		if d := cmp.Diff([]string{"fast 1.0", "greeting 1.2"}, layer.Names); d != "" {
			t.Errorf("Names (-want +got):\n%s", d)
		}
		hashes[layer.Hash] = true
	}
	if len(hashes) != 3 {
		t.Errorf("%d layers for three targets, want 3", len(hashes))
	}
	o.Target = &pylayer.Target{Version: "3.9.2", Platforms: old.Platforms}
	if _, err := pylayer.Build(t.Context(), o); err == nil || !strings.Contains(err.Error(), "fast") {
		t.Errorf("Build for a version without a wheel = %v, want an error about fast", err)
	}
}

func TestBuildRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"missing==9\n": "missing==9",
		"escaping\n":   "outside",
		"sourced\n":    "No matching distribution found for sourced", // its code would run on the host
		"./sourced\n":  `line 3, "./sourced": only wheels`,
	} {
		o := options(t, text)
		_, err := pylayer.Build(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "requirements.txt") {
			t.Errorf("Build of %q = %v, want an error about %q in requirements.txt", text, err, want)
		}
		if entries, _ := os.ReadDir(o.Dir); len(entries) > 0 {
			t.Errorf("Build of %q left %v behind, want nothing", text, entries)
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(o.Dir), "outside.py")); err == nil {
			t.Errorf("Build of %q wrote a file outside the layer, want none", text)
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(o.Requirements), "built")); err == nil {
			t.Errorf("Build of %q ran the code of a package, want no code to run", text)
		}
	}
	_, err := pylayer.Build(t.Context(), pylayer.Options{
		Python: "/usr/bin/python3", Requirements: "none.txt",
		Dir: t.TempDir(),
	})
	if err == nil || !strings.Contains(err.Error(), "none.txt") {
		t.Errorf("Build without a requirements file = %v, want an error about none.txt", err)
	}
}
