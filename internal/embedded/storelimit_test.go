package embedded

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestStoreLimit(t *testing.T) {
	const gib = 1 << 30
	for _, tt := range []struct{ stored, free, want int64 }{
		{0, 100 * gib, 75 * gib},
		{60 * gib, 40 * gib, 75 * gib}, // after a restart, the streams have more than three quarters of what is free
		{0, gib, 16 * gib},
	} {
		if got := storeLimit(tt.stored, tt.free); got != tt.want {
			t.Errorf("storeLimit(%d, %d) = %d, want %d", tt.stored, tt.free, got, tt.want)
		}
	}

	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "streams"), 0o700); err != nil {
		t.Fatal(err)
	}
	const stored = 1 << 50 // a sparse file
	f, err := os.Create(filepath.Join(dir, "streams", "1.blk"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := int64(stored)
	for f.Truncate(size) != nil { // the file system permits less
		size /= 2
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	total := int64(st.Blocks) * int64(st.Bsize) //nolint:unconvert // the types differ on darwin
	if got, err := storeLimitIn(dir); err != nil || got < size/4*3 || got > max(minStore, (size+total)/4*3) {
		t.Errorf("storeLimitIn = %d, %v, want three quarters of %d and of what is free", got, err, size)
	}
}
