//go:build !linux

package microsandbox

// takesAttributes is for a directory in memory, which other systems do not have.
func takesAttributes(string) bool { return false }
