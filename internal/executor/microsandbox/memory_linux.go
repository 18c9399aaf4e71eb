package microsandbox

import (
	"os"

	"golang.org/x/sys/unix"
)

// takesAttributes reports whether files of a directory may have attributes of users' own, which msb
// needs where it keeps a sandbox; those in memory have them from Linux 6.6 on.
func takesAttributes(dir string) bool {
	file, err := os.CreateTemp(dir, "codefleet-")
	if err != nil {
		return false
	}
	defer os.Remove(file.Name())
	defer file.Close()
	return unix.Fsetxattr(int(file.Fd()), "user.codefleet", []byte("1"), 0) == nil
}
