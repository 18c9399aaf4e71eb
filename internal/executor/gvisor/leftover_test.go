package gvisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/codefleet/codefleet/internal/executor"
)

// TestCreateAfterAFailure checks that a name can be used again after its box could neither be created nor removed.
func TestCreateAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the removal of a control group is tried for a long time
		d, err := New(Options{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		hierarchy := t.TempDir()
		d.cgroups = cgroups{roots: []string{hierarchy}}
		group := filepath.Join(hierarchy, ownerGroup(filepath.Join(d.opts.Dir, "o")), "w0")
		write := func(name string) {
			t.Helper()
			if err := os.MkdirAll(group, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(group, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("busy") // so that the group cannot be removed
		spec, image := executor.Spec{Name: "w0", Owner: "o"}, &imageRoot{dir: "/", python: "/usr/bin/python3"}
		if _, err := d.create(t.Context(), spec, image); err == nil || !strings.Contains(err.Error(), "limit box") ||
			!strings.Contains(err.Error(), "remove cgroup") {
			t.Errorf("create = %v, want errors of the limits and of the removal", err)
		}
		write("memory.limit_in_bytes")
		b, err := d.create(t.Context(), spec, image)
		if err != nil {
			t.Fatalf("create with the name of the box that failed = %v, want nil", err)
		}
		if err := os.RemoveAll(group); err != nil {
			t.Fatal(err)
		}
		if err := b.Destroy(t.Context()); err != nil {
			t.Errorf("Destroy = %v, want nil", err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}
	})
}
