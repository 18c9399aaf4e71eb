package jobs

import (
	"fmt"
	"strconv"
	"testing"
	"time"
)

func TestHistoryIsBoundedAndByTenant(t *testing.T) {
	f := newFleet(t)
	for i := range historyPerTenant + 3 {
		if err := f.AppendHistory("acme", fmt.Appendf(nil, "%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.AppendHistory("other", []byte("secret")); err != nil {
		t.Fatal(err)
	}
	if err := f.AppendHistory("acme", make([]byte, MaxHistoryItem+1)); err == nil {
		t.Error("AppendHistory of an item over the limit = nil, want an error")
	}
	all := awaitHistory(t, f, "acme", func(all []HistoryItem) bool {
		return len(all) == historyPerTenant && string(all[0].Data) == "3"
	})
	last := all[len(all)-1]
	rest, err := f.History(t.Context(), "acme", last.Seq)
	if err != nil || len(rest) != 1 || string(rest[0].Data) != strconv.Itoa(historyPerTenant+2) {
		t.Errorf("History(from %d) = %v, %v, want only the last item", last.Seq, rest, err)
	}
	awaitHistory(t, f, "other", func(all []HistoryItem) bool {
		return len(all) == 1 &&
			string(all[0].Data) == "secret"
	})
}

// awaitHistory reads a tenant's tool history until good is true, because items are stored in the background.
func awaitHistory(t *testing.T, f *fleet, tenant string, good func([]HistoryItem) bool) []HistoryItem {
	t.Helper()
	for deadline := time.Now().Add(hangTime); ; {
		all, err := f.History(t.Context(), tenant, 1)
		if err != nil {
			t.Fatal(err)
		}
		if good(all) {
			return all
		}
		if time.Now().After(deadline) {
			t.Fatalf("history of %s = %d items, which do not meet the condition", tenant, len(all))
		}
	}
}

func TestSpendAddsUp(t *testing.T) {
	f := newFleet(t)
	day := time.Date(2026, 3, 1, 23, 0, 0, 0, time.UTC)
	for i, want := range []int{450, 900} {
		if got, err := f.Spend(t.Context(), "acme", day, 450); err != nil || got != want {
			t.Errorf("spend %d = %d, %v, want %d", i, got, err, want)
		}
	}
	for _, c := range []struct {
		tenant string
		day    time.Time
		want   int
	}{{"acme", day, 900}, {"acme", day.Add(2 * time.Hour), 0}, {"other", day, 0}} {
		if got, err := f.Spent(t.Context(), c.tenant, c.day); err != nil || got != c.want {
			t.Errorf("Spent(%s, %s) = %d, %v, want %d", c.tenant, c.day, got, err, c.want)
		}
	}
}
