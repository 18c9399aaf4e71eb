package worker_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
	"github.com/codefleet/codefleet/internal/worker"
)

// TestFindAbandonedOfOtherUsers checks that an ordinary user learns nothing about the directories of others, but finds
// its own.
func TestFindAbandonedOfOtherUsers(t *testing.T) {
	if owners := os.Getenv("OWNERS"); owners != "" {
		found, err := worker.FindAbandoned(filepath.SplitList(owners))
		for _, a := range found {
			fmt.Println("found", a.Path())
		}
		fmt.Println("error", err)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("running a process as another user needs root")
	}
	parent := t.TempDir()
	if err := os.Chmod(filepath.Dir(parent), 0o755); err != nil {
		t.Fatal(err)
	}
	var owners []string
	for name, c := range map[string]struct {
		uid  int
		mode os.FileMode
	}{"closed": {0, 0o700}, "open": {0, 0o755}, "own": {65534, 0o700}} {
		dir := filepath.Join(parent, name)
		for _, locked := range []string{dir, filepath.Join(dir, "g", "f")} {
			lock, err := hostdir.Acquire(locked)
			if err != nil {
				t.Fatal(err)
			}
			lock.Release()
		}
		if err := os.Chmod(dir, c.mode); err != nil {
			t.Fatal(err)
		}
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, _ error) error {
			return os.Chown(path, c.uid, c.uid)
		})
		if err != nil {
			t.Fatal(err)
		}
		owners = append(owners, filepath.Join(dir, "g", "f"))
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestFindAbandonedOfOtherUsers$")
	cmd.Dir = "/"
	cmd.Env = []string{"OWNERS=" + strings.Join(owners, ":"), "TMPDIR=" + parent}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if want := "found " + filepath.Join(parent, "own") + "\nerror <nil>\n"; err != nil ||
		!strings.HasPrefix(string(out), want) {
		t.Errorf("FindAbandoned as another user printed %s, %v, want %s", out, err, want)
	}
}
