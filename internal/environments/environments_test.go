package environments

import (
	"archive/zip"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/executor"
)

// imageDriver is a driver whose boxes use the Python of an image.
type imageDriver struct{ executor.Driver }

func (imageDriver) Interpreter(_ context.Context, image string) (executor.Python, error) {
	if image == "python:none" {
		return executor.Python{}, &executor.HostError{
			Reason: executor.ReasonImageMissing,
			Err:    errors.New("no such image"),
		}
	}
	return executor.Python{Version: "3.12.1", Platforms: []string{"manylinux_2_28_x86_64"}}, nil
}

// If boxes use an image's Python, packages are installed for that Python, and requirements can be combined with an
// image.
func TestPackagesWithAnImage(t *testing.T) {
	dir := t.TempDir()
	for _, tag := range []string{"cp312-cp312-manylinux_2_28_x86_64", "cp39-cp39-manylinux_2_28_x86_64"} {
		wheel(t, dir, tag)
	}
	file := filepath.Join(dir, "requirements.txt")
	if err := os.WriteFile(file, []byte("--no-index\n--find-links .\nfast\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	c.Data = t.TempDir()
	c.Pools = map[string]config.Pool{
		"both":  {Image: "python:other", Requirements: file},
		"one":   {Requirements: file},
		"none":  {Image: "python:none", Requirements: file},
		"image": {Image: "python:other"},
		"file":  {Image: "environments_test.go"},
	}
	root := map[string]executor.Root{}
	for _, e := range New(Options{
		Config: c, Driver: imageDriver{}, Info: executor.Info{Driver: "microsandbox"},
		Log: slog.New(slog.DiscardHandler),
	}).List() {
		got, err := e.Prepare(t.Context())
		if e.Name == "none" {
			if executor.ReasonOf(err) != executor.ReasonImageMissing ||
				!strings.HasPrefix(err.Error(), "pools.none.image: ") {
				t.Errorf("Prepare(none) = %v; want image_missing for pools.none.image", err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("Prepare(%s) = %v, want nil", e.Name, err)
		}
		root[e.Name] = got
	}
	both := root["both"]
	if both.Image != "python:other" || both.Description != "image python:other" || len(both.Mounts) != 1 ||
		both.Mounts[0].Target != executor.PackagesDir || !both.Mounts[0].ReadOnly {
		t.Fatalf("Prepare(both) = %+v; want python:other with a read-only package layer", both)
	}
	if diff := cmp.Diff([]string{"fast 1.0"}, both.Packages); diff != "" {
		t.Errorf("Packages (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(both.Mounts[0].Source, "fast-cp312-cp312-manylinux_2_28_x86_64")); err != nil {
		t.Errorf("stat of the wheel for the image's Python = %v, want nil", err)
	}
	if one := root["one"]; one.Image != "" || len(one.Mounts) != 1 || one.Mounts[0].Source != both.Mounts[0].Source {
		t.Errorf("Prepare(one) = %+v, want the layer of %+v", one, both)
	}
	if file := root["file"]; !filepath.IsAbs(file.Image) || file.Description != "image environments_test.go" {
		t.Errorf("Prepare(file) = %+v; want the path of this file", file)
	}
	if image := root["image"]; image.Image != "python:other" || len(image.Mounts) != 0 {
		t.Errorf("Prepare(image) = %+v; want python:other without a package layer", image)
	}
}

// If boxes use the host's Python, requirements cannot be combined with an image or execution.rootfs.
func TestUnusableRequirements(t *testing.T) {
	c := config.Default()
	c.Data = t.TempDir()
	c.Execution.Rootfs, c.Execution.Requirements = "/", "r.txt"
	c.Pools = map[string]config.Pool{"both": {Image: "/", Requirements: "r.txt"}, "one": {Requirements: "r.txt"}}
	list := New(Options{Config: c, Info: executor.Info{Driver: "gvisor"}, Log: slog.New(slog.DiscardHandler)}).List()
	if len(list) != 3 {
		t.Errorf("List() = %+v, want the shared environment and two more", list)
	}
	for _, e := range list {
		if _, err := e.Prepare(t.Context()); executor.ReasonOf(err) != executor.ReasonRequirements ||
			!strings.Contains(err.Error(), "requirements") {
			t.Errorf("Prepare(%s) = %v; want requirements_failed", e.Name, err)
		}
	}
}

// TestReadyBoxes checks that a task pool's own number of ready boxes applies unless pooling is disabled.
func TestReadyBoxes(t *testing.T) {
	for _, c := range []struct {
		pooling     bool
		size, ready int
		want        int
	}{{true, 0, 2, 2}, {true, 3, 2, 2}, {true, 3, 0, -1}, {false, 3, 2, -1}} {
		settings := config.Default()
		settings.Optimizations.SandboxPooling, settings.Optimizations.SandboxPoolSize = c.pooling, c.size
		settings.Pools = map[string]config.Pool{"science": {Ready: &c.ready}}
		list := New(Options{Config: settings}).List()
		i := slices.IndexFunc(list, func(e executor.Environment) bool { return e.Name == "science" })
		if i < 0 || list[i].MinReady != c.want {
			t.Errorf("%+v: List() = %+v, want MinReady %d of science", c, list, c.want)
		}
	}
}

// wheel writes a wheel that contains one file, which is named after the wheel's tag.
func wheel(t *testing.T, dir, tag string) {
	t.Helper()
	out, err := os.Create(filepath.Join(dir, "fast-1.0-"+tag+".whl"))
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(out)
	for path, text := range map[string]string{
		"fast-" + tag:                 "",
		"fast-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: fast\nVersion: 1.0\n",
		"fast-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: " + tag +
			"\n",
		"fast-1.0.dist-info/RECORD": "fast-" + tag + ",,\n",
	} {
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
