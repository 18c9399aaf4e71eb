package microsandbox

import (
	"os"

	"golang.org/x/sys/unix"
)

// supportsUserAttributes reports whether files in a directory can have extended user attributes, which msb needs
// for its sandboxes. On a tmpfs that requires Linux 6.6 or newer.
func supportsUserAttributes(dir string) bool {
	file, err := os.CreateTemp(dir, "codefleet-")
	if err != nil {
		return false
	}
	defer os.Remove(file.Name())
	defer file.Close()
	return unix.Fsetxattr(int(file.Fd()), "user.codefleet", []byte("1"), 0) == nil
}
