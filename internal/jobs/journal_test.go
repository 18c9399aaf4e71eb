package jobs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJournal(t *testing.T) {
	f := newFleet(t)
	large := strings.Repeat("x", inlineMax+1)
	for _, n := range []struct{ tenant, task, key, data string }{
		{"acme", "t1", "a", "intended"},
		{"acme", "t1", "b", large},
		{"acme", "t2", "a", "of another task"},
		{"other", "t1", "a", "of another tenant"},
		{"acme", "t1", "a", "answered"},
		{"acme", "t1", "a", "answered"},
	} {
		if err := f.PutJournal(t.Context(), n.tenant, n.task, n.key, []byte(n.data)); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := f.Journal(t.Context(), "acme", "t1")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range entries {
		got = append(got, string(n))
	}
	if d := cmp.Diff([]string{large, "answered"}, got); d != "" {
		t.Errorf("Journal (-want +got):\n%s", d)
	}
	if none, err := f.Journal(t.Context(), "acme", "t3"); err != nil || len(none) != 0 {
		t.Errorf("Journal of a task without calls = %q, %v", none, err)
	}
}
