// Package pythontest finds Python on this host, for tests of generated and of built-in modules.
package pythontest

import (
	"os"
	"os/exec"
	"testing"
)

// Find returns the path of an interpreter. Without one, it skips the test, or fails it if CODEFLEET_TEST_NO_SKIP is
// set.
func Find(tb testing.TB) string {
	tb.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CODEFLEET_TEST_NO_SKIP") != "" {
		tb.Fatal("no python3 on this host")
	}
	tb.Skip("no python3 on this host")
	return ""
}
