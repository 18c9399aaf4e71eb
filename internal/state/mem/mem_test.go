package mem_test

import (
	"testing"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

func TestObjects(t *testing.T) {
	statetest.TestObjects(t, func(*testing.T) objects.Objects { return mem.New() })
}

func TestStore(t *testing.T) {
	for name, opts := range map[string]state.Options{
		"unencrypted":      {},
		"encrypted":        {Secrets: statetest.Secrets("a secret")},
		"eager compaction": {Compaction: statetest.Eager},
		"carried":          statetest.Carrying,
		"carried, encrypted, eager compaction": {
			Carry: statetest.Carry, Secrets: statetest.Secrets("a secret"), Compaction: statetest.Eager,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bucket := mem.New()
			statetest.TestStoreWith(t, func(*testing.T) objects.Objects { return bucket }, opts)
			if err := bucket.Violations(); err != nil {
				t.Errorf("Violations = %v, want nil", err)
			}
		})
	}
}
