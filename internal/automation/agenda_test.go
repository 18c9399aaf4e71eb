package automation

import (
	"context"
	"testing"

	"github.com/codefleet/codefleet/internal/jobs"
)

// TestSkippedChange checks that an event is not matched while a change is unknown that was replaced before this process
// learned it: the alarm of a run that waits for the event may be the one.
func TestSkippedChange(t *testing.T) {
	a := newAgenda()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	known := func(rev uint64) bool { return a.awaitRevision(ended, rev) == nil }
	trigger := func(rev, pending uint64) {
		a.learn(jobs.Automation{Kind: "other", Tenant: "acme", Name: "x", Revision: rev, Pending: pending})
	}
	if known(0) {
		t.Error("all is known before the first document")
	}
	trigger(3, 1)
	a.learn(jobs.Automation{Revision: 4, Pending: 1})
	if known(3) {
		t.Error("all is known although a document is pending that replaced one of the existing ones")
	}
	trigger(5, 0)
	if !known(5) || known(6) {
		t.Errorf("known(5) = %v, known(6) = %v, want true and false", known(5), known(6))
	}
	trigger(6, 7)
	if !known(6) {
		t.Error("a change without a gap is not known")
	}
	trigger(8, 2) // 7 was replaced by 9 or 10
	trigger(9, 1)
	if known(7) {
		t.Error("a change is known that was replaced by one that is not")
	}
	trigger(10, 0)
	if !known(7) {
		t.Error("a change is not known although the one that replaced it is")
	}
}
