package pylayer

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/codefleet/codefleet/internal/state/mem"
)

// TestFailedArchive checks that the upload of a directory that cannot be read to its end stores no last part.
func TestFailedArchive(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	bucket := mem.New()
	if err := store(t.Context(), bucket, "hash", filepath.Join(dir, "none")); err == nil {
		t.Error("store of a directory that is missing = nil, want an error")
	}
	for info := range bucket.List(t.Context(), "", "") {
		t.Errorf("the bucket has %s of %d bytes, want nothing", info.Key, info.Size)
	}
}
