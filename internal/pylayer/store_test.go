package pylayer

import (
	"path/filepath"
	"testing"

	"github.com/codefleet/codefleet/internal/state/mem"
)

// TestFailedArchive checks that the upload of a directory that is missing stores nothing.
func TestFailedArchive(t *testing.T) {
	bucket := mem.New()
	if err := store(t.Context(), bucket, "hash", filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("store of a directory that is missing = nil, want an error")
	}
	for info := range bucket.List(t.Context(), "", "") {
		t.Errorf("the bucket has %s of %d bytes, want nothing", info.Key, info.Size)
	}
}
