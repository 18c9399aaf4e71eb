package microsandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/codefleet/codefleet/internal/executor"
)

// pythons are the paths of the interpreter in an image, in order of preference.
var pythons = []string{"/usr/local/bin/python3", "/usr/bin/python3"}

// oomEvents counts the processes that a machine's kernel killed for lack of memory, once prepareBox has enabled
// the controller: it belongs to the cgroup in which msb starts processes. (/proc/vmstat there has no such count.)
const oomEvents = "/sys/fs/cgroup/microsandbox-workload/memory.events"

// prepareBox runs in each new machine, as root. It prints the version of Python, takes down the network device,
// which msb's machines have even without network access, enables the memory controller, and removes the write
// permission of programs on files of the image: msb's machines have no read-only root, and one task must not
// leave files there for the next. The first machine of an image searches for these files and prints them; the
// others get the list.
const prepareBox = `
import fcntl, json, os, socket, stat, struct, sys
USER = 65534  # of programs
def writable(s):
    return s.st_mode & 0o002 or s.st_uid == USER or s.st_gid == USER and s.st_mode & 0o020
def search(path, device, found):
    with os.scandir(path) as entries:
        for e in entries:
            s = e.stat(follow_symlinks=False)
            if stat.S_ISLNK(s.st_mode) or stat.S_ISDIR(s.st_mode) and s.st_dev != device:
                continue  # other file systems have their own rules
            if writable(s):
                found.append(e.path)
            if stat.S_ISDIR(s.st_mode):
                search(e.path, device, found)
    return found
found = search("/", os.stat("/").st_dev, []) if sys.argv[1] == "search" else json.loads(sys.argv[1])
for path in found:
    os.chown(path, 0, 0)
    os.chmod(path, os.stat(path).st_mode & 0o755)
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for name in os.listdir("/sys/class/net"):
    if name != "lo":
        fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", name.encode(), 0))  # SIOCSIFFLAGS
with open("/sys/fs/cgroup/cgroup.subtree_control", "w") as control:
    control.write("+memory")
open("` + oomEvents + `").close()
print(json.dumps({"python": sys.version_info[:3], "closed": found}))
`

const maxClosed = 64 << 10 // bytes of JSON, because it becomes an argument

// prepare runs prepareBox in a box. In the first box of an image it also finds the interpreter.
func (i *image) prepare(ctx context.Context, b *box) error {
	i.mu.Lock()
	known, closed := i.python, i.closed
	if known != "" {
		i.mu.Unlock() // boxes are created concurrently
		_, err := b.output(ctx, known, "-I", "-S", "-c", prepareBox, closed)
		return err
	}
	defer i.mu.Unlock()
	for _, path := range pythons {
		out, err := b.output(ctx, path, "-I", "-S", "-c", prepareBox, "search")
		if failed := (*startError)(nil); errors.As(err, &failed) {
			continue // no such file
		}
		if err != nil {
			return fmt.Errorf("prepare the first box of the image %s: %w", i.ref, err)
		}
		if i.closed, err = i.parsePrepared(path, out); err != nil {
			return err
		}
		i.python = path
		return nil
	}
	return imageError(executor.ReasonImageNoPython, "the image %s has no Python at %s", i.ref,
		strings.Join(pythons, " or "))
}

// parsePrepared reads the output of prepareBox in the first box, and returns the list of files.
func (i *image) parsePrepared(path, out string) (closed string, err error) {
	var printed struct {
		Python []int           `json:"python"`
		Closed json.RawMessage `json:"closed"`
	}
	err = json.Unmarshal([]byte(out), &printed)
	switch {
	case err != nil || len(printed.Python) != 3:
		return "", imageError(executor.ReasonImageNoPython, "%s in the image %s prints %.80q as its version",
			path, i.ref, out)
	case !executor.SupportedPython(printed.Python[0], printed.Python[1]):
		return "", imageError(executor.ReasonImageNoPython, "the image %s has Python %d.%d.%d",
			i.ref, printed.Python[0], printed.Python[1], printed.Python[2])
	case len(printed.Closed) > maxClosed:
		return "", imageError(executor.ReasonImageBroken, "the image %s has too many world-writable files", i.ref)
	}
	return string(printed.Closed), nil
}
