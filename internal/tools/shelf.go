package tools

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
)

// Shelf keeps the catalogue's versions of one worker below a directory that its boxes see: a task
// runs with the version that it began with, whatever changes meanwhile. It is safe for concurrent use.
type Shelf struct {
	catalogue *Catalogue
	dir       string
	log       *slog.Logger

	mu      sync.Mutex
	snap    *Snapshot
	version string
}

// OpenShelf empties the directory, which nobody else may use, and returns the shelf of the catalogue
// there. No box of an earlier process may still need it.
func OpenShelf(catalogue *Catalogue, dir string, log *slog.Logger) (*Shelf, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("empty the catalogue's versions: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the catalogue's versions: %w", err)
	}
	return &Shelf{catalogue: catalogue, dir: dir, log: log}, nil
}

// Dir is the directory of the versions.
func (s *Shelf) Dir() string { return s.dir }

// Current returns the catalogue as its files are now: the name of a directory below Dir, complete
// and never changed again, and its tools, which are the same Snapshot until a file changes. When the
// files cannot be read any more it goes on with what it had, and says so in the log.
func (s *Shelf) Current(ctx context.Context) (version string, snap *Snapshot, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refresh(ctx); err != nil {
		if s.snap == nil || ctx.Err() != nil {
			return "", nil, err
		}
		s.log.WarnContext(ctx, "catalogue not read, the last one is used", "version", s.version, "error", err)
	}
	return s.version, s.snap, nil
}

func (s *Shelf) refresh(ctx context.Context) error {
	snap, err := s.catalogue.Read(ctx)
	if err != nil || snap == s.snap {
		return err
	}
	v, snap, err := s.catalogue.Pack(ctx)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(s.dir, v.ID)); err != nil {
		if err := Unpack(v, s.dir); err != nil {
			return fmt.Errorf("unpack catalogue %s: %w", v.ID, err)
		}
	}
	for _, b := range snap.Broken {
		s.log.WarnContext(ctx, "file of the catalogue is no tool", "path", b.Path, "line", b.Line, "reason", b.Message)
	}
	s.log.InfoContext(ctx, "catalogue", "version", v.ID, "tools", len(snap.Tools), "broken", len(snap.Broken))
	s.version, s.snap = v.ID, snap
	return nil
}
