//go:build !linux

package microsandbox

// supportsUserAttributes returns false, because other systems run no sandboxes.
func supportsUserAttributes(string) bool { return false }

// removeAttribute does nothing, because other systems run no sandboxes.
func removeAttribute(string, string) error { return nil }
