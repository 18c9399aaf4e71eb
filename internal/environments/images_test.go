package environments

import (
	"archive/tar"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/image"
)

// The image of a task pool is kept while its worker runs, and can be removed afterwards.
func TestImagesAreHeld(t *testing.T) {
	c := config.Default()
	c.Data = t.TempDir()
	c.Pools = map[string]config.Pool{"analysis": {Image: emptyImage(t)}}
	c.Worker.Pools = []string{"analysis"}
	all := New(Options{Config: c, Info: executor.Info{Driver: "gvisor"}, Log: slog.New(slog.DiscardHandler)})
	for _, e := range all.List() {
		if _, err := e.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if removed, err := image.Prune(all.imagesDir(), 0); len(removed) != 0 || err != nil {
		t.Errorf("Prune() while the worker runs = %q, %v, want nothing", removed, err)
	}
	all.Close()
	all.RemoveUnusedImages(t.Context()) // keeps the image, which was used recently
	if removed, err := image.Prune(all.imagesDir(), 0); len(removed) != 1 || err != nil {
		t.Errorf("Prune() after Close() = %q, %v, want the image", removed, err)
	}
}

// emptyImage writes an image of one empty layer, in the format of docker save.
func emptyImage(t *testing.T) string {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "image.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	layer := make([]byte, 1024) // the end of an archive
	w := tar.NewWriter(out)
	for _, part := range []struct{ name, text string }{
		{"layer.tar", string(layer)},
		{"c.json", fmt.Sprintf(
			`{"architecture": %q, "os": "linux", "rootfs": {"type": "layers", "diff_ids": ["sha256:%x"]}}`,
			runtime.GOARCH, sha256.Sum256(layer))},
		{"manifest.json", `[{"Config": "c.json", "Layers": ["layer.tar"]}]`},
	} {
		err := w.WriteHeader(&tar.Header{Name: part.name, Mode: 0o644, Size: int64(len(part.text))})
		if err == nil {
			_, err = w.Write([]byte(part.text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Name()
}
