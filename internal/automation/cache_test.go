package automation

import (
	"context"
	"testing"

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
