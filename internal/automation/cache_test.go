package automation

import (
	"context"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/jobs"
)

// TestSkippedChange checks that awaitRevision waits for the newest change of a document whose earlier change was
// replaced before this process learned of it. The document may be the alarm of a run that waits for the event to be
// matched.
func TestSkippedChange(t *testing.T) {
	c := newCache()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	known := func(rev uint64) bool { return c.awaitRevision(ended, rev) == nil }
	learn := func(rev, pending uint64) {
		c.learn(jobs.Automation{Kind: "other", Tenant: "acme", Name: "x", Revision: rev, Pending: pending})
	}
	if known(0) {
		t.Error("known(0) = true before the first document, want false")
	}
	learn(3, 1)
	c.learn(jobs.Automation{Revision: 4, Pending: 1})
	if known(3) {
		t.Error("known(3) = true while a document is pending whose earlier change was replaced, want false")
	}
	learn(5, 0)
	if !known(5) || known(6) {
		t.Errorf("known(5) = %v, known(6) = %v, want true and false", known(5), known(6))
	}
	learn(6, 7)
	if !known(6) {
		t.Error("known(6) = false after revisions without a gap, want true")
	}
	learn(8, 2) // 7 was replaced by 9 or 10
	learn(9, 1)
	if known(7) {
		t.Error("known(7) = true although the change that replaced it is pending, want false")
	}
	learn(10, 0)
	if !known(7) {
		t.Error("known(7) = false after the change that replaced it, want true")
	}
}

// TestForgottenSchedule checks that nothing is kept of a schedule that was removed, also if this process learns of the
// removal while it fires the schedule. A schedule that was added again is kept.
func TestForgottenSchedule(t *testing.T) {
	c := newCache()
	k := key{kindSchedule, "acme", "s"}
	doc := []byte(`{"name":"s","cron":"* * * * *","task":{}}`)
	learn := func(rev uint64, data []byte) {
		c.learn(jobs.Automation{Kind: k.kind, Tenant: k.tenant, Name: k.name, Revision: rev, Data: data})
	}
	now := time.Now()
	for _, step := range []struct {
		what string
		do   func()
		rev  uint64 // 0 if nothing is known
	}{
		{"added", func() { learn(1, doc) }, 1},
		{"fired", func() { c.setNext(k, now, 2) }, 2},
		{"removed", func() { learn(3, nil) }, 0},
		{"fired before it was removed", func() { c.setNext(k, now, 2) }, 0},
		{"added again", func() { learn(6, doc) }, 6},
		{"an earlier removal", func() { learn(5, nil) }, 6},
	} {
		step.do()
		_, due := c.due[k]
		if c.rev[k] != step.rev || len(c.rev) != min(1, int(step.rev)) || due != (step.rev > 0) {
			t.Errorf("%s: revisions %v, due %v, want revision %d, and both only of a schedule that exists", step.what,
				c.rev, c.due, step.rev)
		}
	}
}
