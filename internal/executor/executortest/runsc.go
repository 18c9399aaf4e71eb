package executortest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// FindRunsc returns the absolute path of the gVisor engine: CODEFLEET_RUNSC, else bin/runsc in this checkout, else
// runsc on PATH. If none of them exists, it returns an empty string or, if CODEFLEET_REQUIRE_GVISOR is 1, fails the
// test.
func FindRunsc(tb testing.TB) string {
	tb.Helper()
	for _, path := range []string{os.Getenv("CODEFLEET_RUNSC"), filepath.Join(checkout(tb), "bin", "runsc"), "runsc"} {
		if found, err := exec.LookPath(path); err == nil {
			if found, err = filepath.Abs(found); err == nil {
				return found
			}
		}
	}
	if os.Getenv("CODEFLEET_REQUIRE_GVISOR") == "1" {
		tb.Fatal("runsc not found; run: make bin/runsc")
	}
	return ""
}

// Runsc is like FindRunsc, but skips the test if the engine does not exist.
func Runsc(tb testing.TB) string {
	tb.Helper()
	path := FindRunsc(tb)
	if path == "" {
		tb.Skip("runsc not found; run: make bin/runsc")
	}
	return path
}

// checkout returns the nearest parent directory with a go.mod, or "/".
func checkout(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for dir != "/" {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}
