package gvisor_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/gvisor"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// TestConfiguredRootfs checks that a configured root file system gets the missing mount points, and nothing else.
func TestConfiguredRootfs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	root := shortDir(t)
	t.Cleanup(func() {
		if err := hostdir.UnmountBelow(root); err != nil {
			t.Errorf("UnmountBelow = %v, want nil", err)
		}
	})
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	usr := filepath.Join(root, "usr")
	if err := os.Mkdir(usr, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("/usr", usr, "", syscall.MS_BIND|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	link, dir := filepath.Join(shortDir(t), "link"), filepath.Join(shortDir(t), "dir")
	for link, target := range map[string]string{link: root, dir: shortDir(t)} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	d, err := gvisor.New(gvisor.Options{Runsc: engine(t), Dir: dir, Rootfs: link})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	info, err := d.Probe(t.Context())
	if err != nil || info.Environment != root || !info.MultiTenant {
		t.Fatalf("Probe = %+v, %v; want this root file system, for several tenants", info, err)
	}
	catalogue := executor.Mount{Source: shortDir(t), Target: "/opt/codefleet", ReadOnly: true}
	box := newBox(t, d, executor.Spec{Mounts: []executor.Mount{catalogue}})
	stdout, stderr, exit := python(t, box,
		"import os; os.setgid(65534); os.setuid(65534); print(sorted(os.listdir('/')), os.listdir('/workspace'), "+
			"os.path.exists('/usr/local'))")
	want := "['bin', 'dev', 'lib', 'lib64', 'opt', 'proc', 'sys', 'tmp', 'usr', 'workspace'] [] True"
	if stdout != want || exit != 0 {
		t.Errorf("program in the box = %d, %q, %q; want %q", exit, stdout, stderr, want)
	}
	linked := newBox(t, d, executor.Spec{Name: "linked", Image: link})
	if stdout, stderr, exit := python(t, linked, "print(6*7)"); stdout != "42" || exit != 0 {
		t.Errorf("program in a box whose image is a link = %d, %q, %q; want 42", exit, stdout, stderr)
	}
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != 10 {
		t.Errorf("root file system afterwards = %v, %v; want four entries and six directories of mount points",
			entries, err)
	}
}
