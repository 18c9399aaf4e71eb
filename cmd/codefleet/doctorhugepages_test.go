package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/errcode"
)

// TestDoctorHugePages checks that doctor warns about every kernel setting that denies gVisor huge pages.
func TestDoctorHugePages(t *testing.T) {
	for _, c := range []struct{ sandboxType, state, status, fix string }{
		{"microsandbox", "deny", good, ""},
		{"auto", "", good, ""},
		{"auto", "always", good, ""},
		{"gvisor", "within_size", good, ""},
		{"gvisor", "never", warning, "sudo codefleet doctor --fix"},
		{"gvisor", "deny", warning, "echo never | sudo tee /sys/kernel/mm/transparent_hugepage/shmem_enabled, " +
			"then codefleet doctor"},
	} {
		if got := hugePages(c.sandboxType, c.state); got.Status != c.status || got.Fix != c.fix {
			t.Errorf("hugePages(%q, %q) = %+v, want %s and the fix %q", c.sandboxType, c.state, got, c.status, c.fix)
		}
	}
}

// TestDoctorFixAsks checks that doctor --fix changes a host only as root, if it lacks huge pages, after a clear yes.
func TestDoctorFixAsks(t *testing.T) {
	for _, c := range []struct {
		state, answer string
		root, yes     bool
		enabled, fail bool
	}{
		{state: "never", root: true, answer: "y\n", enabled: true},
		{state: "never", root: true, answer: "Yes\n", enabled: true},
		{state: "advise", root: true, yes: true, enabled: true},
		{state: "never", root: true, answer: "\n", fail: true},
		{state: "never", root: true, answer: "", fail: true},
		{state: "never", root: true, answer: "no\n", fail: true},
		{state: "never", yes: true, fail: true},
		{state: "within_size", root: true, yes: true},
		{state: "deny", root: true, yes: true},
		{state: "", answer: "y\n"},
	} {
		enabled, question := false, new(strings.Builder)
		h := hostFix{
			state: c.state, root: c.root, yes: c.yes, answer: strings.NewReader(c.answer), question: question,
			enable: func() error { enabled = true; return nil },
		}
		err := h.run()
		f, failed := errors.AsType[*failure](err)
		if enabled != c.enabled || failed != c.fail || failed && f.code != errcode.ExitUsage {
			t.Errorf("%+v: enabled = %v, error = %v", c, enabled, err)
		} else if c.fail && explain(err).code != errcode.ExitUsage {
			t.Errorf("%+v: exit code %d, want %d", c, explain(err).code, errcode.ExitUsage)
		}
		if strings.HasSuffix(question.String(), "[y/N] ") && !strings.HasSuffix(c.answer, "\n") {
			t.Errorf("%+v: the question %q does not end its line, although no answer did", c, question)
		}
	}
}
