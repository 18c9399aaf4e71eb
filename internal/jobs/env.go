package jobs

import (
	"maps"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/errcode"
)

// maxEnv is the size limit, in bytes, of the names and values of a task's environment variables. They are sent to the
// box in the header of one frame of the runner protocol.
const maxEnv = 16 << 10

// checkEnv returns a *RefusedError for environment variables that a task cannot have. The error contains no value.
func checkEnv(env map[string]string) error {
	total := 0
	for _, name := range slices.Sorted(maps.Keys(env)) {
		total += len(name) + len(env[name])
		switch {
		case reservedEnv(name):
			r := refuse(errcode.BadData, "/env/"+name, "the fleet, Python or the dynamic linker uses this variable")
			r.Hint = "use another name, or set it in the program with os.environ"
			return r
		case strings.ContainsRune(env[name], 0):
			return refuse(errcode.BadData, "/env/"+name, "the value contains a NUL byte")
		}
	}
	if total > maxEnv {
		return refuse(errcode.BadData, "/env", "the variables are %d bytes; the limit is %d", total, maxEnv)
	}
	return nil
}

// reservedEnv reports whether the fleet sets a variable for programs, or the dynamic linker or Python acts on it.
func reservedEnv(name string) bool {
	upper := strings.ToUpper(name)
	return slices.Contains([]string{"PATH", "HOME", "TMPDIR"}, upper) || strings.HasPrefix(upper, "LD_") ||
		strings.HasPrefix(upper, "PYTHON") || strings.HasSuffix(upper, "_PROXY")
}
