package jobs

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/schemas"
)

func TestAudit(t *testing.T) {
	f := newFleet(t)
	for _, e := range []schemas.AuditRecord{
		{Tenant: "acme", TaskID: "a", Tool: "1"},
		{Tenant: "other", TaskID: "a", Tool: "2"},
		{Tenant: "acme", TaskID: "b", Tool: "3"},
		{Tenant: "acme", TaskID: "a", Tool: "4"},
		{Tenant: "acme", TaskID: "a", Tool: "4"},
	} {
		if err := f.AppendAudit(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		opts AuditOptions
		want []string // tools, the latest first
	}{
		{AuditOptions{}, []string{"4", "4", "3", "1"}},
		{AuditOptions{Task: "a"}, []string{"4", "4", "1"}},
		{AuditOptions{Limit: 3}, []string{"4", "4", "3"}},
		{AuditOptions{Task: "b", Limit: 1}, []string{"3"}},
		{AuditOptions{Task: "c"}, nil},
	} {
		trail, err := f.AuditTrail(t.Context(), "acme", test.opts)
		var got []string
		for _, e := range trail {
			got = append(got, e.Tool)
		}
		if d := cmp.Diff(test.want, got); d != "" || err != nil {
			t.Errorf("AuditTrail(acme, %+v), %v (-want +got):\n%s", test.opts, err, d)
		}
	}
	if _, err := f.AuditTrail(t.Context(), "acme.>", AuditOptions{}); err == nil ||
		!strings.Contains(err.Error(), "tenant") {
		t.Errorf("AuditTrail with an invalid tenant = %v, want an error", err)
	}
}

// The audit trail of a task reads the calls that were made while the task ran, and not all calls of its tenant.
func TestAuditOfTaskIsBounded(t *testing.T) {
	f := newFleet(t)
	for range 3000 {
		if _, err := f.js.PublishAsync(auditPrefix+"acme", []byte(`{"tenant": "acme", "task_id": "b"}`)); err != nil {
			t.Fatal(err)
		}
	}
	<-f.js.PublishAsyncComplete()
	began := time.Now().Add(2 * auditMargin) // as if the calls above were that old
	id := TaskID("acme", "/test", "1")
	for i, ended := range []time.Duration{0, -4 * auditMargin, time.Hour} {
		r := storedRecord{Record: schemas.Record{
			TaskID: TaskID("acme", "/test", strconv.Itoa(i)), Tenant: "acme", Status: schemas.Running,
			SubmittedAt: began,
		}}
		if ended != 0 {
			r.Status, r.EndedAt = schemas.Succeeded, began.Add(ended)
		}
		if ended < 0 { // it ended before the calls
			r.SubmittedAt = r.EndedAt.Add(-time.Minute)
		}
		if err := f.swap(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
		before := f.nc.Stats().InMsgs
		trail, err := f.AuditTrail(t.Context(), "acme", AuditOptions{Task: r.TaskID})
		if n := f.nc.Stats().InMsgs - before; n > readBatch+10 || err != nil || len(trail) > 0 {
			t.Errorf("the trail of task %d read %d messages: %v, %v; want none and few messages", i, n, trail, err)
		}
	}
	// A call of the task itself is found, whatever other tasks do.
	if err := f.AppendAudit(t.Context(), schemas.AuditRecord{Tenant: "acme", TaskID: id, Tool: "1"}); err != nil {
		t.Fatal(err)
	}
	r := storedRecord{Record: schemas.Record{
		TaskID: id, Tenant: "acme", Status: schemas.Running, SubmittedAt: time.Now(),
	}}
	stored, err := f.loadLeader(t.Context(), "acme", id)
	if r.rev = stored.rev; err == nil {
		err = f.swap(t.Context(), &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	trail, err := f.AuditTrail(t.Context(), "acme", AuditOptions{Task: id})
	if err != nil || len(trail) != 1 || trail[0].Tool != "1" {
		t.Errorf("the trail of the task = %v, %v, want its call", trail, err)
	}
}
