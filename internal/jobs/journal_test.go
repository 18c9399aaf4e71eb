package jobs

import (
	"bytes"
	"strconv"
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
		if err := f.PutJournal(t.Context(), n.tenant, n.task, n.key, []byte(n.data), []byte("short")); err != nil {
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
		t.Errorf("Journal of a task without calls = %q, %v, want none", none, err)
	}
}

// Of a tenant's large journal entries, the oldest are removed above the limit. Their short forms stay.
func TestLargeJournalEntriesAreBounded(t *testing.T) {
	f := newFleet(t, func(o *Options) { o.Storage.PayloadBytes = 2 << 20 })
	const size, entries = 500 << 10, 10
	for i := range entries {
		if err := f.PutJournal(t.Context(), "acme", "t1", strconv.Itoa(i), bytes.Repeat([]byte{byte(i)}, size),
			[]byte("short")); err != nil {
			t.Fatal(err)
		}
	}
	huge := make([]byte, 3<<20)
	if err := f.PutJournal(t.Context(), "acme", "t1", "huge", huge, []byte("short")); err != nil {
		t.Fatal(err)
	}
	all, err := f.Journal(t.Context(), "acme", "t1")
	if err != nil || len(all) != entries+1 || string(all[entries]) != "short" {
		t.Fatalf("Journal = %d entries, %v, want %d, the last of them short", len(all), err, entries+1)
	}
	whole := 0
	for i, entry := range all[:entries] {
		switch {
		case len(entry) == size && entry[0] == byte(i):
			whole++
		case string(entry) != "short" || whole > 0:
			t.Errorf("entry %d is %d bytes after %d whole ones, want the short ones first", i, len(entry), whole)
		}
	}
	if whole < 3 || whole > 4 {
		t.Errorf("%d entries are whole, want 3 or 4", whole)
	}
}
