package statetest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/heads"
	"github.com/codefleet/codefleet/internal/state/heads/createonly"
	"github.com/codefleet/codefleet/internal/state/heads/singlewriter"
	"github.com/codefleet/codefleet/internal/state/mem"
)

// WithoutIfMatch is a store that rejects PUT with If-Match and, unless Create is set, with If-None-Match.
type WithoutIfMatch struct {
	*mem.Objects
	Create bool // honour If-None-Match: *
}

// CompareAndSwap implements objects.Objects.
func (l WithoutIfMatch) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	if old == "" && l.Create {
		return l.Objects.CompareAndSwap(ctx, key, old, data)
	}
	return "", fmt.Errorf("swap %s: 501 Not Implemented: %w", key, objects.ErrUnsafe)
}

// Put may replace a HEAD, which the store in memory would report as a violation.
func (l WithoutIfMatch) Put(ctx context.Context, key string, data []byte, sum objects.Digest) error {
	if !strings.HasSuffix(key, "/HEAD") {
		return l.Objects.Put(ctx, key, data, sum)
	}
	for {
		obj, err := l.Get(ctx, key, objects.GetOptions{})
		if err != nil && !errors.Is(err, objects.ErrNotFound) {
			return err
		}
		if _, err = l.Objects.CompareAndSwap(ctx, key, obj.ETag, data); !errors.Is(err, objects.ErrConflict) {
			return err
		}
	}
}

// MemHeads stores HEADs in memory.
type MemHeads struct{ Objects *mem.Objects }

// Get implements heads.Store.
func (h MemHeads) Get(ctx context.Context, key, version string) (objects.Object, error) {
	return h.Objects.Get(ctx, key, objects.GetOptions{IfNoneMatch: version})
}

// CompareAndSwap implements heads.Store.
func (h MemHeads) CompareAndSwap(ctx context.Context, key, version string, data []byte) (string, error) {
	return h.Objects.CompareAndSwap(ctx, key, version, data)
}

// List implements heads.Store.
func (h MemHeads) List(ctx context.Context, prefix string) (out []objects.ObjectInfo, err error) {
	for info, err := range h.Objects.List(ctx, prefix, "") {
		if err != nil {
			return nil, err
		}
		out = append(out, info)
	}
	return out, nil
}

// Delete implements heads.Store.
func (h MemHeads) Delete(ctx context.Context, key string) error { return h.Objects.Delete(ctx, key) }

// HeadModes returns the head modes by name, each with a function that opens a new object store. A store in memory
// stands for NATS, which cannot run in a synctest bubble.
func HeadModes(t *testing.T) map[string]func() objects.Objects {
	t.Helper()
	lock := singlewriter.HostLock(filepath.Join(t.TempDir(), "heads.lock"))
	return map[string]func() objects.Objects{
		"compare and swap": func() objects.Objects { return mem.New() },
		"create only": func() objects.Objects {
			o := WithoutIfMatch{mem.New(), true}
			return heads.With(o, createonly.New(o))
		},
		"single writer": func() objects.Objects {
			o := WithoutIfMatch{mem.New(), false}
			return heads.With(o, singlewriter.New(o, lock))
		},
		"another store": func() objects.Objects {
			return heads.With(WithoutIfMatch{mem.New(), false}, MemHeads{mem.New()})
		},
	}
}

// TestHeads checks a head mode. open returns a new object store with that mode, and the store in memory below it.
func TestHeads(t *testing.T, open func() (objects.Objects, *mem.Objects)) {
	t.Helper()
	t.Run("objects", func(t *testing.T) {
		TestObjects(t, func(*testing.T) objects.Objects { o, _ := open(); return o })
	})
	t.Run("store", func(t *testing.T) {
		o, m := open()
		TestStore(t, func(*testing.T) objects.Objects { return o })
		if err := m.Violations(); err != nil {
			t.Error(err)
		}
	})
	t.Run("probe", func(t *testing.T) {
		o, m := open()
		if caps, err := heads.Probe(t.Context(), o); err != nil {
			t.Errorf("Probe() = %+v, %v, want nil", caps, err)
		}
		for info, err := range m.List(t.Context(), "", "") {
			t.Errorf("Probe() left %s, %v, want nothing", info.Key, err)
		}
	})
}
