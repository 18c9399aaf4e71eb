//go:build !linux

package microsandbox

// supportsUserAttributes returns false, because other systems have no tmpfs.
func supportsUserAttributes(string) bool { return false }
