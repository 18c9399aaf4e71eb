package main

import "testing"

// TestDoctorHugePages checks that doctor warns about every kernel setting that denies gVisor huge pages.
func TestDoctorHugePages(t *testing.T) {
	for _, c := range []struct{ sandboxType, state, status, fix string }{
		{"microsandbox", "deny", good, ""},
		{"auto", "", good, ""},
		{"auto", "always", good, ""},
		{"gvisor", "within_size", good, ""},
		{"gvisor", "never", warning, "echo within_size | sudo tee " +
			"/sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled  " +
			"(to persist: a w line in /etc/tmpfiles.d)"},
		{"gvisor", "deny", warning, "echo never | sudo tee /sys/kernel/mm/transparent_hugepage/shmem_enabled, " +
			"then codefleet doctor"},
	} {
		if got := hugePages(c.sandboxType, c.state); got.Status != c.status || got.Fix != c.fix {
			t.Errorf("hugePages(%q, %q) = %+v, want %s and the fix %q", c.sandboxType, c.state, got, c.status, c.fix)
		}
	}
}
