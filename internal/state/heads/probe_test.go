package heads_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/heads"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// careless is a store that ignores conditions.
type careless struct {
	*mem.Objects
	ignoreCreate, ignoreMatch bool
}

func (c careless) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	if old == "" && c.ignoreCreate || old != "" && c.ignoreMatch {
		obj, err := c.Get(ctx, key, objects.GetOptions{})
		if err == nil {
			old = obj.ETag
		} else {
			old = ""
		}
	}
	return c.Objects.CompareAndSwap(ctx, key, old, data)
}

func TestProbe(t *testing.T) {
	bucket := mem.New()
	caps, err := heads.Probe(t.Context(), bucket)
	if err != nil || !caps.Create || !caps.Swap || !caps.Atomic || !caps.Verify || !caps.Fresh || !caps.Ranges {
		t.Errorf("Probe() = %+v, %v, want everything honoured", caps, err)
	}
	for info, err := range bucket.List(t.Context(), "", "") {
		t.Errorf("Probe() left %s, %v, want nothing", info.Key, err)
	}
	for _, c := range []careless{
		{mem.New(), true, false}, {mem.New(), false, true}, {mem.New(), true, true},
	} {
		caps, err := heads.Probe(t.Context(), c)
		if !errors.Is(err, objects.ErrUnsafe) || !strings.Contains(caps.Summary, "overwrite") {
			t.Errorf("Probe() ignoring create %v, match %v = %q, %v, want %v", c.ignoreCreate, c.ignoreMatch,
				caps.Summary, err, objects.ErrUnsafe)
		}
	}
	for _, create := range []bool{true, false} {
		caps, err := heads.Probe(t.Context(), statetest.WithoutIfMatch{Objects: mem.New(), Create: create})
		if !errors.Is(err, objects.ErrUnsafe) || caps.CanCreate() != create || caps.Swap || caps.Atomic ||
			!caps.Ranges {
			t.Errorf("Probe() of a store that rejects If-Match, with create %v = %+v, %v, want %v with range reads",
				create, caps, err, objects.ErrUnsafe)
		}
	}
	down := mem.New()
	down.SetFault(func(mem.Call) mem.Fault { return mem.Broken })
	if _, err := heads.Probe(t.Context(), down); err == nil || errors.Is(err, objects.ErrUnsafe) {
		t.Errorf("Probe() of a store that is down = %v, want an error other than %v", err, objects.ErrUnsafe)
	}
}
