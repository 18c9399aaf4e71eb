package gvisor

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestMemoryOfAGroup checks that shared memory and the kernel's memory count as the memory of a box, and the page cache
// does not, with both versions of control groups.
func TestMemoryOfAGroup(t *testing.T) {
	for _, c := range []struct {
		v2    bool
		files map[string]string
	}{
		{false, map[string]string{
			"memory.usage_in_bytes": fmt.Sprintln(200 * mib),
			"memory.stat":           fmt.Sprintf("cache 1\ntotal_cache %d\ntotal_shmem %d\n", 150*mib, 50*mib),
		}},
		{true, map[string]string{
			"memory.current": fmt.Sprintln(200 * mib),
			"memory.stat":    fmt.Sprintf("anon 1\nfile %d\nshmem %d\n", 150*mib, 50*mib),
		}},
	} {
		dir := t.TempDir()
		for name, text := range c.files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		g := group{v2: c.v2, dirs: []string{dir}}
		if got := g.stats().MemoryMB; got != 100 {
			t.Errorf("version 2 %v: MemoryMB = %v, want 100", c.v2, got)
		}
		for mb, want := range map[float64]bool{99: true, 100: false, 150: false, 250: false} {
			if got := g.usesMoreThan(mb); got != want {
				t.Errorf("version 2 %v: usesMoreThan(%v) = %v, want %v", c.v2, mb, got, want)
			}
		}
	}
	if (group{}).usesMoreThan(0) {
		t.Error("usesMoreThan(0) without control groups = true, want false")
	}
}
