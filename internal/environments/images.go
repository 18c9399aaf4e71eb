package environments

import (
	"context"
	"path/filepath"

	"github.com/codefleet/codefleet/internal/image"
)

// imagesDir returns the directory into which all workers with this data directory unpack images.
func (e *Environments) imagesDir() string { return filepath.Join(e.Config.Data, "images") }

// RemoveUnusedImages removes unpacked images that no worker with this data directory has used for
// image.PruneAfter. It logs errors.
func (e *Environments) RemoveUnusedImages(ctx context.Context) {
	removed, err := image.Prune(e.imagesDir(), image.PruneAfter)
	if err != nil {
		e.Log.WarnContext(ctx, "removal of unused images failed", "error", err)
	}
	if len(removed) > 0 {
		e.Log.InfoContext(ctx, "unused images removed", "images", removed)
	}
}

// hold keeps an image from removal until Close.
func (e *Environments) hold(r image.Root) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.images = append(e.images, r)
}

// Close releases the images, which boxes must no longer use.
func (e *Environments) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.images {
		r.Release()
	}
	e.images = nil
}
