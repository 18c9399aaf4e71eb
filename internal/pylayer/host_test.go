package pylayer_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/pylayer"
)

// fakePython is an interpreter with a version, whose pip installs greeting 1.2.
func fakePython(t *testing.T, version string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python")
	script := fmt.Sprintf(`#!/bin/sh
case "$*" in
*sys.implementation*) echo %s linux ;;
*)
	while [ "$1" != --target ]; do shift; done
	mkdir "$2/greeting-1.2.dist-info"
esac
`, version)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestVersionOfTheHost checks that the layer for a target depends on the host's interpreter, whose version pip
// compares with markers. The layers are in a directory whose name is a pattern.
func TestVersionOfTheHost(t *testing.T) {
	o := options(t, "greeting\n") // a marker may be in the metadata of a wheel
	o.Dir = filepath.Join(t.TempDir(), "[p")
	o.Target = &pylayer.Target{Version: "3.12.1", Platforms: []string{"manylinux_2_28_x86_64"}}
	hashes := map[string]bool{}
	for _, version := range []string{"cpython-311", "cpython-312", "cpython-311"} {
		o.Python = fakePython(t, version)
		l, err := pylayer.Build(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		hashes[l.Hash] = true
		if diff := cmp.Diff([]string{"greeting 1.2"}, l.Names); diff != "" {
			t.Errorf("Names in %s (-want +got):\n%s", o.Dir, diff)
		}
	}
	if len(hashes) != 2 {
		t.Errorf("%d layers for two versions of the host's interpreter, want 2", len(hashes))
	}
	o.Python = filepath.Join(t.TempDir(), "none")
	if _, err := pylayer.Build(t.Context(), o); !errors.Is(err, os.ErrNotExist) ||
		!strings.Contains(err.Error(), "get the version") {
		t.Errorf("Build without an interpreter = %v, want an error about its version", err)
	}
}
