package mem_test

import (
	"testing"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

func TestObjects(t *testing.T) {
	statetest.TestObjects(t, func(*testing.T) state.Objects { return mem.New() })
}

func TestStore(t *testing.T) {
	objects := mem.New()
	statetest.TestStore(t, func(*testing.T) state.Objects { return objects })
	if err := objects.Violations(); err != nil {
		t.Error(err)
	}
}
