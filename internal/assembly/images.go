package assembly

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/image"
)

// imagesDir is where all workers with these settings' data directory unpack images.
func imagesDir(c *config.Config) string { return filepath.Join(c.Data, "images") }

// collectImages removes images that were unpacked long ago and that no worker of this host uses. What
// cannot be removed is no reason not to start.
func collectImages(ctx context.Context, c *config.Config, log *slog.Logger) {
	removed, err := image.Collect(imagesDir(c), image.Unused)
	if err != nil {
		log.WarnContext(ctx, "unused images stay", "error", err)
	}
	if len(removed) > 0 {
		log.InfoContext(ctx, "unused images removed", "images", removed)
	}
}

// held are unpacked images that boxes are made of.
type held struct {
	mu    sync.Mutex
	roots []image.Root
}

func (h *held) add(r image.Root) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.roots = append(h.roots, r)
}

func (h *held) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.roots {
		r.Release()
	}
}
