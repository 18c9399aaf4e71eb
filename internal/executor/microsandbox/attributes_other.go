//go:build !linux

package microsandbox

// supportsUserAttributes returns false, because msb runs only on Linux.
func supportsUserAttributes(string) bool { return false }

// removeAttribute does nothing, because msb runs only on Linux.
func removeAttribute(string, string) error { return nil }
