package heads_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/heads"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

func TestWith(t *testing.T) {
	statetest.TestHeads(t, func() (objects.Objects, *mem.Objects) {
		m := mem.New()
		return heads.With(statetest.WithoutIfMatch{Objects: m}, statetest.MemHeads{Objects: mem.New()}), m
	})
}

func TestRequireMode(t *testing.T) {
	m := mem.New()
	for range 2 {
		if err := heads.RequireMode(t.Context(), m, "s3-create"); err != nil {
			t.Fatal(err)
		}
	}
	err := heads.RequireMode(t.Context(), m, "s3-cas")
	if !errors.Is(err, objects.ErrConflict) ||
		!strings.Contains(err.Error(), "mode s3-create (object _heads/s3-create), want s3-cas") {
		t.Errorf("RequireMode() of another mode = %v, want %v that names both", err, objects.ErrConflict)
	}
	if err := heads.RequireMode(t.Context(), m, "s3-create"); err != nil {
		t.Errorf("RequireMode() after a failed one = %v, want nil", err)
	}
	if err := heads.RequireMode(t.Context(), stale{mem.New()}, "nats"); err != nil {
		t.Errorf("RequireMode() of a store with stale listings = %v, want nil", err)
	}
}

// stale is a store whose listings do not have new objects yet.
type stale struct{ objects.Objects }

func (stale) List(context.Context, string, string) iter.Seq2[objects.ObjectInfo, error] {
	return func(func(objects.ObjectInfo, error) bool) {}
}
