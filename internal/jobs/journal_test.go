package jobs

import (
	"bytes"
	"errors"
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
		got = append(got, string(n.Data))
	}
	if d := cmp.Diff([]string{large, "answered"}, got); d != "" {
		t.Errorf("Journal (-want +got):\n%s", d)
	}
	if none, err := f.Journal(t.Context(), "acme", "t3"); err != nil || len(none) != 0 {
		t.Errorf("Journal of a task without calls = %v, %v, want none", none, err)
	}
}

// TestReplaceJournal checks that of several runs that replace the same entry one succeeds, and that a write may be
// repeated.
func TestReplaceJournal(t *testing.T) {
	f := newFleet(t)
	replace := func(data string, version uint64) (uint64, error) {
		return f.ReplaceJournal(t.Context(), "acme", "t1", "a", []byte(data), version)
	}
	first, err := replace("run 1", 0)
	if err != nil || first == 0 {
		t.Fatalf("ReplaceJournal of no entry = %d, %v, want a version", first, err)
	}
	if again, err := replace("run 1", 0); err != nil || again != first {
		t.Errorf("ReplaceJournal again = %d, %v, want %d, nil", again, err, first)
	}
	if _, err := replace("run 2", 0); !errors.Is(err, ErrJournalChanged) {
		t.Errorf("ReplaceJournal of no entry by another run = %v, want %v", err, ErrJournalChanged)
	}
	all, err := f.Journal(t.Context(), "acme", "t1")
	if err != nil || len(all) != 1 || all[0].Version != first || string(all[0].Data) != "run 1" {
		t.Fatalf("Journal = %+v, %v, want one entry with version %d", all, err, first)
	}
	if second, err := replace("run 2", first); err != nil || second <= first {
		t.Errorf("ReplaceJournal of version %d = %d, %v, want a later version", first, second, err)
	}
	if _, err := replace("run 1, late", first); !errors.Is(err, ErrJournalChanged) {
		t.Errorf("ReplaceJournal of an old version = %v, want %v", err, ErrJournalChanged)
	}
}

// TestJournalOfCluster checks that a journal has all entries that were written before it is read, whichever replica
// responds.
func TestJournalOfCluster(t *testing.T) {
	servers, opts := startCluster(t, 3)
	var clients []*Client
	for _, s := range servers {
		o := opts
		o.Server.URL = s.ClientURL()
		c, err := Connect(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		clients = append(clients, c)
	}
	eventually(t, "streams", func() error { return clients[0].Provision(t.Context()) })
	for i := range 60 { // a follower applies a write some time after the leader has acknowledged it
		writer, reader := clients[i%3], clients[(i+1)%3]
		if err := writer.PutJournal(t.Context(), "acme", "t1", strconv.Itoa(i), []byte{byte(i)}, nil); err != nil {
			t.Fatal(err)
		}
		all, err := reader.Journal(t.Context(), "acme", "t1")
		if err != nil || len(all) != i+1 || all[i].Data[0] != byte(i) {
			t.Fatalf("Journal after %d entries = %d, %v, want all", i+1, len(all), err)
		}
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
	if err != nil || len(all) != entries+1 || string(all[entries].Data) != "short" {
		t.Fatalf("Journal = %d entries, %v, want %d, the last of them short", len(all), err, entries+1)
	}
	whole := 0
	for i, e := range all[:entries] {
		entry := e.Data
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
