package hostdir

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTar(t *testing.T) {
	dir := t.TempDir()
	err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "b", "empty"), 0o755),
		os.WriteFile(filepath.Join(dir, "b", "file"), []byte("12"), 0o640),
		os.Mkdir(filepath.Join(dir, "c\xff"), 0o755),
		os.WriteFile(filepath.Join(dir, "c\xff", "d\xff"), nil, 0o640),
		os.Symlink("b/file", filepath.Join(dir, "a")),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err = errors.Join(Tar(w, dir, func(h *tar.Header) { h.ModTime = time.Unix(7, 0) }), w.Close())
	if err != nil {
		t.Fatal(err)
	}
	type entry struct {
		Name, Link, Content string
		Mode                int64
		Time                int64
	}
	var got []entry
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, entry{h.Name, h.Linkname, string(content), h.Mode, h.ModTime.Unix()})
	}
	want := []entry{
		{"a", "b/file", "", 0o777, 7},
		{"b/", "", "", 0o755, 7},
		{"b/empty/", "", "", 0o755, 7},
		{"b/file", "", "12", 0o640, 7},
		{"c\xff/", "", "", 0o755, 7},
		{"c\xff/d\xff", "", "", 0o640, 7},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("Tar (-want +got):\n%s", d)
	}
}
