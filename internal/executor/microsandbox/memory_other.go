//go:build !linux

package microsandbox

// supportsUserAttributes is for a tmpfs, which other systems do not have.
func supportsUserAttributes(string) bool { return false }
