package runner

import (
	"os/exec"
	"strings"
	"testing"
)

// python runs code in this host's Python, isolated as in a box, and returns its output.
func python(t *testing.T, code, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command("/usr/bin/python3", append([]string{"-I", "-S", "-c", code}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("Python: %v: %s", err, out)
	}
	return string(out)
}
