package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// A checkpoint is what boxes with modules imported ahead are restored from instead of booted: the state
// of the first such box of an environment, saved once its runner has imported them, before it has
// forked for any program. Whatever goes wrong with it, boxes are booted again. The zero value is one
// that is never to be had.
type snapshot struct {
	dir string // where its files are to be; its parent is there
	log *slog.Logger

	mu    sync.Mutex
	state snapshotState
	until time.Time // none is taken before, after a failure
}

type snapshotState int

const (
	noSnapshot snapshotState = iota
	beingSaved
	isSaved
)

const (
	snapshotPause  = 10 * time.Minute // after a failure: what it was may have been mended
	snapshotWait   = 20 * time.Second // for a box to be saved, and for one to be restored
	maxSnapshotMB  = 1024             // that a saved box holds
	snapshotOfFree = 0.25             // of what is free on the disk, at most
)

// origin is where the state of a box comes from.
type origin int

const (
	booted origin = iota
	saved         // booted, and a checkpoint is taken on the way, unless another box is first
	restored
)

// origin says how a box is to start.
func (c *snapshot) origin(box Box, preload []string) origin {
	if _, ok := box.(Snapshotter); !ok || len(preload) == 0 || c.dir == "" {
		return booted
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state == isSaved:
		return restored
	case c.due():
		return saved
	default:
		return booted
	}
}

// due tells whether one is to be taken; c.mu is held.
func (c *snapshot) due() bool { return c.state == noSnapshot && !time.Now().Before(c.until) }

// save takes the checkpoint of a box, unless another box was first. The error means that the box is in
// doubt.
func (c *snapshot) save(ctx context.Context, box Box) error {
	saver, ok := box.(Snapshotter)
	c.mu.Lock()
	due := ok && c.due()
	if due {
		c.state = beingSaved
	}
	c.mu.Unlock()
	if !due {
		return nil
	}
	if err := c.fits(ctx, box); err != nil {
		c.failed(err) // the box is as it was
		return nil
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, snapshotWait)
	defer cancel()
	if err := saver.Snapshot(limited, c.dir); err != nil {
		return c.blame(ctx, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = isSaved
	c.log.InfoContext(ctx, "a box with its modules imported is saved; later boxes are restored from it", "ms", time.Since(began).Milliseconds())
	return nil
}

// fits tells whether the disk has room for the state of a box, and to spare.
func (c *snapshot) fits(ctx context.Context, box Box) error {
	stater, ok := box.(StatsReporter)
	if !ok {
		return nil
	}
	stats, err := stater.Stats(ctx)
	if err != nil {
		return err
	}
	free, err := hostdir.Free(filepath.Dir(c.dir))
	if err != nil {
		return err
	}
	if room := min(maxSnapshotMB, snapshotOfFree*float64(free>>20)); stats.MemoryMB > room {
		return fmt.Errorf("a box holds %.0f MB, and there is room for %.0f", stats.MemoryMB, room)
	}
	return nil
}

// failed gives the checkpoint up for a while, and says why.
func (c *snapshot) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == noSnapshot {
		return
	}
	c.state, c.until = noSnapshot, time.Now().Add(snapshotPause)
	c.log.Warn("boxes are booted for a while, not restored", "pause", snapshotPause, "error", errors.Join(err, os.RemoveAll(c.dir)))
}

// blame gives the checkpoint up for the error of a box, unless the making of that box was cancelled.
func (c *snapshot) blame(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	c.failed(err)
	return &snapshotError{err}
}

// snapshotError is why a box could not be made that was to be saved or restored.
type snapshotError struct{ error }

func (e *snapshotError) Unwrap() error { return e.error }
