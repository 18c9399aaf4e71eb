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

// snapshotKeeper takes, keeps and removes the snapshot of an environment: the saved state of a box with preloaded
// modules, taken before its runner forked for any program. Later boxes are restored from it instead of booted. After
// any failure, boxes are booted for a while. The zero value disables snapshots.
type snapshotKeeper struct {
	dir string // directory of the snapshot, which Snapshotter.Snapshot makes; its parent exists
	log *slog.Logger

	mu        sync.Mutex
	state     snapshotState
	notBefore time.Time // when the next attempt may begin, after a failure
}

type snapshotState int

const (
	noSnapshot snapshotState = iota
	takingSnapshot
	hasSnapshot
)

const (
	snapshotDelay    = 10 * time.Minute // from a failure, whose cause may go away, to the next attempt
	snapshotTimeout  = 20 * time.Second // limit for taking a snapshot, or for restoring a box
	maxSnapshotMB    = 1024             // a box that uses more memory is not saved
	maxShareOfFreeMB = 0.25             // the same, as a share of the disk's free space
)

// bootMode says how the runner of a box starts.
type bootMode int

const (
	bootOnly bootMode = iota
	bootAndSnapshot
	restoreSnapshot
)

// bootMode decides how a box starts. Several boxes may start with bootAndSnapshot; take chooses one of them.
func (s *snapshotKeeper) bootMode(box Box, preload []string) bootMode {
	if _, ok := box.(Snapshotter); !ok || len(preload) == 0 || s.dir == "" {
		return bootOnly
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.state == hasSnapshot:
		return restoreSnapshot
	case s.due():
		return bootAndSnapshot
	default:
		return bootOnly
	}
}

// due reports whether a snapshot should be taken; s.mu is held.
func (s *snapshotKeeper) due() bool { return s.state == noSnapshot && !time.Now().Before(s.notBefore) }

// take takes a snapshot of a box, unless one exists or is being taken. After an error the box must be destroyed.
func (s *snapshotKeeper) take(ctx context.Context, box Box) error {
	snapshotter, ok := box.(Snapshotter)
	s.mu.Lock()
	due := ok && s.due()
	if due {
		s.state = takingSnapshot
	}
	s.mu.Unlock()
	if !due {
		return nil
	}
	if err := s.checkSize(ctx, box); err != nil {
		s.fail(err) // the box is unchanged and can be used
		return nil
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	if err := snapshotter.Snapshot(limited, s.dir); err != nil {
		return s.failUnlessCancelled(ctx, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = hasSnapshot
	s.log.InfoContext(ctx, "snapshot taken; later boxes are restored from it", "ms", time.Since(began).Milliseconds())
	return nil
}

// checkSize returns an error if the snapshot of a box would be too large for the disk.
func (s *snapshotKeeper) checkSize(ctx context.Context, box Box) error {
	reporter, ok := box.(StatsReporter)
	if !ok {
		return nil
	}
	stats, err := reporter.Stats(ctx)
	if err != nil {
		return err
	}
	free, err := hostdir.Free(filepath.Dir(s.dir))
	if err != nil {
		return err
	}
	if limit := min(maxSnapshotMB, maxShareOfFreeMB*float64(free>>20)); stats.MemoryMB > limit {
		return fmt.Errorf("the box uses %.0f MB of memory; the limit for a snapshot is %.0f MB", stats.MemoryMB, limit)
	}
	return nil
}

// fail removes the snapshot after a failure. The next attempt is after snapshotDelay.
func (s *snapshotKeeper) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == noSnapshot {
		return
	}
	s.state, s.notBefore = noSnapshot, time.Now().Add(snapshotDelay)
	s.log.Warn("snapshot failed; boxes are booted for a while",
		"delay", snapshotDelay, "error", errors.Join(err, os.RemoveAll(s.dir)))
}

// failUnlessCancelled calls fail with the error of a box's creation, and returns it as a snapshotError. If the creation
// was cancelled, it only returns the error.
func (s *snapshotKeeper) failUnlessCancelled(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	s.fail(err)
	return &snapshotError{err}
}

// snapshotError means that a box could not be created because of its snapshot. The next box is booted.
type snapshotError struct{ error }

func (e *snapshotError) Unwrap() error { return e.error }
