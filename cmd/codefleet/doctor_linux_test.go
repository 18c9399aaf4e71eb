package main

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDoctorOpenFiles checks that the proposed fix for a low limit is one that the user may carry out.
func TestDoctorOpenFiles(t *testing.T) {
	for _, c := range []struct {
		limit               uint64
		root                bool
		status, detail, fix string
	}{
		{unix.RLIM_INFINITY, false, good, "unlimited", ""},
		{8192, false, good, "the limit is 8192", ""},
		{8191, true, warning, "the limit is 8191", "or ulimit -Hn 65536"},
		{8191, false, warning, "the limit is 8191", "or as root, a line \"* hard nofile 65536\""},
	} {
		got := openFiles(c.limit, c.root)
		if got.Status != c.status || got.Detail != c.detail || !strings.Contains(got.Fix, c.fix) ||
			(got.Fix == "") != (c.fix == "") {
			t.Errorf("openFiles(%d, %t) = %+v, want %+v", c.limit, c.root, got, c)
		}
	}
}
