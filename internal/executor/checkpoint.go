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
type checkpoint struct {
	dir string // where its files are to be; its parent is there
	log *slog.Logger

	mu    sync.Mutex
	state checkpointState
	until time.Time // none is taken before, after a failure
}

type checkpointState int

const (
	noCheckpoint checkpointState = iota
	beingSaved
	isSaved
)

const (
	checkpointPause  = 10 * time.Minute // after a failure: what it was may have been mended
	checkpointWait   = 20 * time.Second // for a box to be saved, and for one to be restored
	maxCheckpointMB  = 1024             // that a saved box holds
	checkpointOfFree = 0.25             // of what is free on the disk, at most
)

// origin is where the state of a box comes from.
type origin int

const (
	booted origin = iota
	saved         // booted, and a checkpoint is taken on the way, unless another box is first
	restored
)

// origin says how a box is to start.
func (c *checkpoint) origin(box Box, preload []string) origin {
	if _, ok := box.(Checkpointer); !ok || len(preload) == 0 || c.dir == "" {
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
func (c *checkpoint) due() bool { return c.state == noCheckpoint && !time.Now().Before(c.until) }

// save takes the checkpoint of a box, unless another box was first. The error means that the box is in
// doubt.
func (c *checkpoint) save(ctx context.Context, box Box) error {
	saver, ok := box.(Checkpointer)
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
	limited, cancel := context.WithTimeout(ctx, checkpointWait)
	defer cancel()
	if err := saver.Checkpoint(limited, c.dir); err != nil {
		return c.blame(ctx, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = isSaved
	c.log.InfoContext(ctx, "a box with its modules imported is saved; later boxes are restored from it", "ms", time.Since(began).Milliseconds())
	return nil
}

// fits tells whether the disk has room for the state of a box, and to spare.
func (c *checkpoint) fits(ctx context.Context, box Box) error {
	stater, ok := box.(Stater)
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
	if room := min(maxCheckpointMB, checkpointOfFree*float64(free>>20)); stats.MemoryMB > room {
		return fmt.Errorf("a box holds %.0f MB, and there is room for %.0f", stats.MemoryMB, room)
	}
	return nil
}

// failed gives the checkpoint up for a while, and says why.
func (c *checkpoint) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == noCheckpoint {
		return
	}
	c.state, c.until = noCheckpoint, time.Now().Add(checkpointPause)
	c.log.Warn("boxes are booted for a while, not restored", "pause", checkpointPause, "error", errors.Join(err, os.RemoveAll(c.dir)))
}

// blame gives the checkpoint up for the error of a box, unless the making of that box was cancelled.
func (c *checkpoint) blame(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	c.failed(err)
	return &checkpointError{err}
}

// checkpointError is why a box could not be made that was to be saved or restored.
type checkpointError struct{ error }

func (e *checkpointError) Unwrap() error { return e.error }
