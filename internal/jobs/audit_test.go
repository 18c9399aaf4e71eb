package jobs

import (
	"strings"
	"testing"

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
