package createonly_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/heads"
	"github.com/codefleet/codefleet/internal/state/heads/createonly"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

func TestCreateOnly(t *testing.T) {
	statetest.TestHeads(t, func() (objects.Objects, *mem.Objects) {
		m := mem.New()
		o := statetest.WithoutIfMatch{Objects: m, Create: true}
		return heads.With(o, createonly.New(o)), m
	})
}

// TestPrune checks that old versions of a HEAD are removed, and that a writer with a stale version cannot create a
// number that is free again.
func TestPrune(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mem.New()
		heads := createonly.New(statetest.WithoutIfMatch{Objects: m, Create: true})
		swap := func(version string) string {
			t.Helper()
			version, err := heads.CompareAndSwap(t.Context(), "w/HEAD", version,
				[]byte("after "+strings.SplitN(version, "-", 2)[0]))
			if err != nil {
				t.Fatal(err)
			}
			return version
		}
		version := ""
		for range 20 {
			version = swap(version)
		}
		stale := version
		time.Sleep(48 * time.Hour) //nolint:forbidigo // virtual time, of synctest
		for range 20 {
			version = swap(version)
		}
		if left := count(t, m); left != 40-20+1 { // version 20 was replaced less than a day ago
			t.Errorf("%d versions are left, want 21", left)
		}
		time.Sleep(48 * time.Hour) //nolint:forbidigo // virtual time, of synctest
		for range 30 {
			version = swap(version)
		}
		if _, err := m.Get(t.Context(), "w/HEAD/000000000021", objects.GetOptions{}); !errors.Is(err,
			objects.ErrNotFound) {
			t.Fatalf("Get() of version 21 = %v, want it pruned", err)
		}
		for _, old := range []string{stale, "", "1", "69-0", "70-0123456789abcdef", "71-0", "-3", "x"} {
			if _, err := heads.CompareAndSwap(t.Context(), "w/HEAD", old, []byte("stale")); !errors.Is(err,
				objects.ErrConflict) {
				t.Errorf("swap of version %q = %v, want %v", old, err, objects.ErrConflict)
			}
		}
		obj, err := heads.Get(t.Context(), "w/HEAD", stale)
		if err != nil || obj.ETag != version || !strings.HasPrefix(version, "70-") || string(obj.Data) != "after 69" {
			t.Errorf("Get() = %q as %q, %v, want version 70", obj.Data, obj.ETag, err)
		}
	})
}

func count(t *testing.T, m *mem.Objects) (n int) {
	t.Helper()
	for _, err := range m.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}
