package pylayer_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/pylayer"
	"github.com/codefleet/codefleet/internal/state/mem"
)

// A second host needs neither pip nor a package index, and gets the same files.
func TestLayerFromTheBucket(t *testing.T) {
	first := options(t, "greeting==1.2\n")
	bucket := mem.New()
	first.Objects = bucket
	built, err := pylayer.Build(t.Context(), first)
	if err != nil || built.From != "pip" {
		t.Fatalf("Build = %+v, %v, want it from pip", built, err)
	}
	second := first
	second.Dir = filepath.Join(t.TempDir(), "p")
	wheels, err := filepath.Glob(filepath.Join(filepath.Dir(first.Requirements), "*.whl"))
	if err != nil || len(wheels) == 0 {
		t.Fatalf("Glob() = %q, %v, want wheels", wheels, err)
	}
	for _, w := range wheels {
		if err := os.Remove(w); err != nil {
			t.Fatal(err)
		}
	}
	fetched, err := pylayer.Build(t.Context(), second)
	if err != nil || fetched.From != "bucket" {
		t.Fatalf("Build of another host = %+v, %v, want it from the bucket", fetched, err)
	}
	if d := cmp.Diff(files(t, built.Dir), files(t, fetched.Dir)); d != "" {
		t.Errorf("files of the layer on both hosts (-first +second):\n%s", d)
	}
	if again, err := pylayer.Build(t.Context(), second); err != nil || again.From != "host" {
		t.Errorf("Build again = %+v, %v, want it from the host", again, err)
	}
}

func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		info, _ := d.Info()
		found[strings.TrimPrefix(path, dir)] = fmt.Sprint(info.Mode(), string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A layer from the bucket is used only if it is complete and its hashes match; otherwise pip builds it.
func TestDamagedLayerInTheBucket(t *testing.T) {
	for name, c := range map[string]struct {
		manifest bool   // the manifest is damaged, not the parts
		data     []byte // content of the damaged object; nil removes it
	}{
		"other bytes":          {false, []byte("theirs")},
		"part missing":         {false, nil},
		"manifest is not JSON": {true, []byte("[")},
		"no parts":             {true, []byte("{}")},
		"a path":               {true, []byte(`{"parts":["../HEAD"]}`)},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, "greeting==1.2\n")
			bucket := mem.New()
			o.Objects = bucket
			if _, err := pylayer.Build(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			for info, err := range bucket.List(t.Context(), "", "") {
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasSuffix(info.Key, ".json") == c.manifest {
					bucket.Damage(info.Key, func([]byte) []byte { return c.data })
				}
			}
			o.Dir = filepath.Join(t.TempDir(), "p")
			layer, err := pylayer.Build(t.Context(), o)
			if err != nil || layer.From != "pip" || len(layer.Names) != 1 {
				t.Errorf("Build = %+v, %v, want it from pip", layer, err)
			}
			if entries, err := os.ReadDir(o.Dir); err != nil || len(entries) != 1 {
				t.Errorf("directory of layers contains %v, %v, want only the layer", entries, err)
			}
		})
	}
}
