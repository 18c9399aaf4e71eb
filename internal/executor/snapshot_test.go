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

// savedBox counts how often it is saved.
type savedBox struct {
	Box
	memoryMB float64
	err      error
	saved    int
}

func (b *savedBox) Snapshot(_ context.Context, dir string) error {
	b.saved++
	return errors.Join(os.Mkdir(dir, 0o700), b.err)
}

func (b *savedBox) Restore(context.Context, string, []string) (Session, error) {
	return nil, errors.ErrUnsupported
}

func (b *savedBox) Stats(context.Context) (Stats, error) { return Stats{MemoryMB: b.memoryMB}, nil }

func TestSnapshot(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		box     *savedBox
		cancel  bool
		wantErr error
		then    origin // of the next box
		saved   int
	}{
		"saved":            {box: &savedBox{memoryMB: 1}, then: restored, saved: 1},
		"too large":        {box: &savedBox{memoryMB: 1e9}, then: booted},
		"fails":            {box: &savedBox{err: broken}, wantErr: broken, then: booted, saved: 1},
		"the pool is over": {box: &savedBox{err: broken}, cancel: true, wantErr: broken, then: booted, saved: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "saved")
				cp := &snapshot{dir: dir, log: slog.New(slog.DiscardHandler)}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel {
					cancel()
				}
				preload := []string{"x"}
				if got := cp.origin(c.box, preload); got != saved {
					t.Errorf("origin of the first box = %v, want %v", got, saved)
				}
				err := cp.save(ctx, c.box)
				if !errors.Is(err, c.wantErr) {
					t.Errorf("save = %v, want %v", err, c.wantErr)
				}
				if _, blamed := errors.AsType[*snapshotError](err); blamed != (err != nil && !c.cancel) {
					t.Errorf("save = %#v, want it marked unless the pool is over", err)
				}
				if got := cp.origin(c.box, preload); got != c.then || c.box.saved != c.saved {
					t.Errorf("origin of the next box = %v after %d times saved, want %v after %d", got, c.box.saved, c.then, c.saved)
				}
				if err := cp.save(ctx, &savedBox{err: broken}); err != nil {
					t.Errorf("save of a box that was not first = %v", err)
				}
				if c.then == restored {
					cp.failed(broken)
				}
				if _, err := os.Stat(dir); !c.cancel && !os.IsNotExist(err) {
					t.Errorf("files after a failure: %v, want none", err)
				}
				<-time.After(snapshotPause)
				if got := cp.origin(c.box, preload); !c.cancel && got != saved {
					t.Errorf("origin of a box after the pause = %v, want %v", got, saved)
				}
			})
		})
	}
}

func TestNoCheckpoint(t *testing.T) {
	with := func(dir string, box Box, preload ...string) origin {
		return (&snapshot{dir: dir}).origin(box, preload)
	}
	if got := with("d", &savedBox{}, "x"); got != saved {
		t.Errorf("origin = %v, want %v", got, saved)
	}
	for name, got := range map[string]origin{
		"nothing imported ahead": with("d", &savedBox{}),
		"no place":               with("", &savedBox{}, "x"),
		"a driver that cannot":   with("d", &fakeBox{}, "x"),
	} {
		if got != booted {
			t.Errorf("%s: origin = %v, want %v", name, got, booted)
		}
	}
}
