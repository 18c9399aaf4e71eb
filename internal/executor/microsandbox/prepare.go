package microsandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/codefleet/codefleet/internal/executor"
)

// pythons are the possible paths of the interpreter in an image, in order of preference.
var pythons = []string{"/usr/local/bin/python3", "/usr/bin/python3"}

// oomEvents is the file that counts the processes that a machine's kernel killed for lack of memory, once prepareBox
// has enabled the memory controller. It belongs to the cgroup in which msb starts processes. (/proc/vmstat has no
// such count in these machines.)
const oomEvents = "/sys/fs/cgroup/microsandbox-workload/memory.events"

// prepareBox runs in each new machine, as root. It prints the version of Python. It takes down the network device,
// which msb's machines have even without network access. It lets the kernel release the ports of closed connections at
// once. It enables the memory controller. It also removes the permission of programs to write to files of the image:
// the root file system of msb's machines is not read-only, and a task must not leave files there for the next one. The
// first machine of an image searches for these files and prints them; later machines get the list.
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
                continue  # a link has no mode of its own; another file system has its own rules
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
try: # ports of closed connections are free at once, not after a minute
    with open("/proc/sys/net/ipv4/tcp_max_tw_buckets", "w") as buckets:
        buckets.write("0")
except OSError:
    pass
with open("/sys/fs/cgroup/cgroup.subtree_control", "w") as control:
    control.write("+memory")
open("` + oomEvents + `").close()
print(json.dumps({"python": sys.version_info[:3], "protected": found}))
`

// maxProtected bounds the list of protected files, in bytes of JSON, because it becomes an argument.
const maxProtected = 64 << 10

// prepare runs prepareBox in a box. In the first box of an image it also finds the interpreter.
func (i *image) prepare(ctx context.Context, b *box) error {
	i.mu.Lock()
	python, protected := i.python, i.protected
	if python != "" {
		i.mu.Unlock() // boxes are created concurrently
		_, err := b.output(ctx, python, "-I", "-S", "-c", prepareBox, protected)
		return err
	}
	defer i.mu.Unlock()
	for _, path := range pythons {
		out, err := b.output(ctx, path, "-I", "-S", "-c", prepareBox, "search")
		if failed := (*startError)(nil); errors.As(err, &failed) {
			continue // no such file
		}
		if err != nil {
			return fmt.Errorf("prepare the first box of image %s: %w", i.ref, err)
		}
		if i.protected, err = i.parsePrepared(path, out); err != nil {
			return err
		}
		i.python = path
		return nil
	}
	return imageError(executor.ReasonImageNoPython, "image %s has no Python at %s", i.ref,
		strings.Join(pythons, " or "))
}

// parsePrepared parses the output of prepareBox in the first box, and returns the list of protected files.
func (i *image) parsePrepared(path, out string) (protected string, err error) {
	var printed struct {
		Python    []int           `json:"python"`
		Protected json.RawMessage `json:"protected"`
	}
	err = json.Unmarshal([]byte(out), &printed)
	switch {
	case err != nil || len(printed.Python) != 3:
		return "", imageError(executor.ReasonImageNoPython, "%s in image %s printed %.80q instead of its version",
			path, i.ref, out)
	case !executor.SupportedPython(printed.Python[0], printed.Python[1]):
		return "", imageError(executor.ReasonImageNoPython, "image %s has Python %d.%d.%d; want at least 3.9",
			i.ref, printed.Python[0], printed.Python[1], printed.Python[2])
	case len(printed.Protected) > maxProtected:
		return "", imageError(executor.ReasonImageBroken, "image %s has too many files that programs may write", i.ref)
	}
	return string(printed.Protected), nil
}
