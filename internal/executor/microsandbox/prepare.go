package microsandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/codefleet/codefleet/internal/executor"
)

// pythons are where images have their interpreter: one that was put there first.
var pythons = []string{"/usr/local/bin/python3", "/usr/bin/python3"}

// oomEvents counts what a machine's kernel has killed for want of memory, once prepareBox has had it
// count: in the control group in which msb puts all that it starts. (Its /proc/vmstat has no such count.)
const oomEvents = "/sys/fs/cgroup/microsandbox-workload/memory.events"

// prepareBox is run in each new machine, as root: it says which Python this is, takes down the
// network device, which msb's machines have even where nothing answers behind it but a resolver, has
// memory counted, and closes what the image lets its programs write to: what one task leaves there
// would be the next one's, and msb's machines have no root that is read-only. That is looked for in
// the first machine of an image, which says it, and told to the others.
const prepareBox = `
import fcntl, json, os, socket, stat, struct, sys
USER = 65534  # of programs
def may_write(s):
    return s.st_mode & 0o002 or s.st_uid == USER or s.st_gid == USER and s.st_mode & 0o020
def look(path, device, found):
    with os.scandir(path) as entries:
        for e in entries:
            s = e.stat(follow_symlinks=False)
            if stat.S_ISLNK(s.st_mode) or stat.S_ISDIR(s.st_mode) and s.st_dev != device:
                continue  # other file systems have rules of their own
            if may_write(s):
                found.append(e.path)
            if stat.S_ISDIR(s.st_mode):
                look(e.path, device, found)
    return found
found = look("/", os.stat("/").st_dev, []) if sys.argv[1] == "look" else json.loads(sys.argv[1])
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

const maxClosed = 64 << 10 // bytes of JSON, which go into a command line

// prepare runs prepareBox in a box, with the interpreter of the image or, in the first one, with the
// first that is there.
func (i *image) prepare(ctx context.Context, b *box) error {
	i.mu.Lock()
	known, closed := i.python, i.closed
	if known != "" {
		i.mu.Unlock() // boxes are made beside one another
		_, err := b.output(ctx, known, "-I", "-S", "-c", prepareBox, closed)
		return err
	}
	defer i.mu.Unlock()
	for _, path := range pythons {
		out, err := b.output(ctx, path, "-I", "-S", "-c", prepareBox, "look")
		if failed := (*startError)(nil); errors.As(err, &failed) {
			continue // it is not there
		}
		if err != nil {
			return fmt.Errorf("prepare the first box of the image %s: %w", i.ref, err)
		}
		if i.closed, err = i.prepared(path, out); err != nil {
			return err
		}
		i.python = path
		return nil
	}
	return imageError(executor.ReasonImageNoPython, "the image %s has no Python at %s", i.ref, strings.Join(pythons, " or "))
}

// prepared reads what prepareBox says in the first box: what it has closed.
func (i *image) prepared(path, out string) (closed string, err error) {
	var said struct {
		Python []int           `json:"python"`
		Closed json.RawMessage `json:"closed"`
	}
	err = json.Unmarshal([]byte(out), &said)
	switch {
	case err != nil || len(said.Python) != 3:
		return "", imageError(executor.ReasonImageNoPython, "%s in the image %s says %.80q for its version", path, i.ref, out)
	case said.Python[0] != 3 || said.Python[1] < 9:
		return "", imageError(executor.ReasonImageNoPython, "the image %s has Python %d.%d.%d", i.ref, said.Python[0], said.Python[1], said.Python[2])
	case len(said.Closed) > maxClosed:
		return "", imageError(executor.ReasonImageBroken, "the image %s has more files that everybody may write to than can be closed", i.ref)
	}
	return string(said.Closed), nil
}
