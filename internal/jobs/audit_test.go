package jobs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAudit(t *testing.T) {
	f := newFleet(t)
	for _, l := range []struct{ tenant, line string }{{"acme", "1"}, {"other", "2"}, {"acme", "3"}, {"acme", "3"}} {
		if err := f.Audit(t.Context(), l.tenant, []byte(l.line)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	err := f.AuditTrail(t.Context(), "acme", func(line []byte) error {
		got = append(got, string(line))
		return nil
	})
	if d := cmp.Diff([]string{"1", "3", "3"}, got); d != "" || err != nil {
		t.Errorf("the trail of acme, %v (-want +got):\n%s", err, d)
	}
}
