package singlewriter_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/heads"
	"github.com/codefleet/codefleet/internal/state/heads/singlewriter"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

func TestSingleWriter(t *testing.T) {
	lock := singlewriter.HostLock(filepath.Join(t.TempDir(), "heads.lock"))
	statetest.TestHeads(t, func() (objects.Objects, *mem.Objects) {
		m := mem.New()
		o := statetest.WithoutIfMatch{Objects: m}
		return heads.With(o, singlewriter.New(o, lock)), m
	})
}

func TestHostLock(t *testing.T) {
	lock := singlewriter.HostLock(filepath.Join(t.TempDir(), "heads.lock"))
	unlock, err := lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lock(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("lock of a locked file = %v, want %v", err, context.Canceled)
	}
	unlock()
	unlock, err = lock(t.Context())
	if err != nil {
		t.Fatalf("lock after unlock = %v, want nil", err)
	}
	unlock()
}
