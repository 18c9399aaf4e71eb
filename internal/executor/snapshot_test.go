package executor

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// snapshotBox is a fake Snapshotter that counts its snapshots.
type snapshotBox struct {
	Box
	memoryMB float64
	err      error
	taken    int
}

func (b *snapshotBox) Snapshot(_ context.Context, dir string) error {
	b.taken++
	return errors.Join(os.Mkdir(dir, 0o700), b.err)
}

func (b *snapshotBox) Restore(context.Context, string, []string) (Session, error) {
	return nil, errors.ErrUnsupported
}

func (b *snapshotBox) Stats(context.Context) (Stats, error) { return Stats{MemoryMB: b.memoryMB}, nil }

func TestSnapshot(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		box     *snapshotBox
		cancel  bool
		wantErr error
		then    bootMode // boot mode of the next box
		taken   int      // number of snapshots
	}{
		"taken":          {box: &snapshotBox{memoryMB: 1}, then: restoreSnapshot, taken: 1},
		"too large":      {box: &snapshotBox{memoryMB: 1e9}, then: bootOnly},
		"fails":          {box: &snapshotBox{err: broken}, wantErr: broken, then: bootOnly, taken: 1},
		"the pool stops": {box: &snapshotBox{err: broken}, cancel: true, wantErr: broken, then: bootOnly, taken: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "snapshot")
				snap := &snapshotKeeper{dir: dir, log: slog.New(slog.DiscardHandler)}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel {
					cancel()
				}
				preload := []string{"x"}
				if got := snap.bootMode(c.box, preload); got != bootAndSnapshot {
					t.Errorf("boot mode of the first box = %v, want %v", got, bootAndSnapshot)
				}
				err := snap.take(ctx, c.box)
				if !errors.Is(err, c.wantErr) {
					t.Errorf("take = %v, want %v", err, c.wantErr)
				}
				if _, marked := errors.AsType[*snapshotError](err); marked != (err != nil && !c.cancel) {
					t.Errorf("take = %#v, want a *snapshotError unless the pool stops", err)
				}
				if got := snap.bootMode(c.box, preload); got != c.then || c.box.taken != c.taken {
					t.Errorf("boot mode of the next box = %v after %d snapshots, want %v after %d",
						got, c.box.taken, c.then, c.taken)
				}
				if err := snap.take(ctx, &snapshotBox{err: broken}); err != nil {
					t.Errorf("take of another box = %v, want nil without a snapshot", err)
				}
				if c.then == restoreSnapshot {
					snap.fail(broken)
				}
				if _, err := os.Stat(dir); !c.cancel && !os.IsNotExist(err) {
					t.Errorf("stat of the snapshot after a failure = %v, want that it does not exist", err)
				}
				<-time.After(snapshotDelay)
				if got := snap.bootMode(c.box, preload); !c.cancel && got != bootAndSnapshot {
					t.Errorf("boot mode of a box after the delay = %v, want %v", got, bootAndSnapshot)
				}
			})
		})
	}
}

func TestNoSnapshot(t *testing.T) {
	mode := func(dir string, box Box, preload ...string) bootMode {
		return (&snapshotKeeper{dir: dir}).bootMode(box, preload)
	}
	if got := mode("d", &snapshotBox{}, "x"); got != bootAndSnapshot {
		t.Errorf("bootMode = %v, want %v", got, bootAndSnapshot)
	}
	for name, got := range map[string]bootMode{
		"no preload":     mode("d", &snapshotBox{}),
		"no directory":   mode("", &snapshotBox{}, "x"),
		"no Snapshotter": mode("d", &fakeBox{}, "x"),
	} {
		if got != bootOnly {
			t.Errorf("%s: bootMode = %v, want %v", name, got, bootOnly)
		}
	}
}
