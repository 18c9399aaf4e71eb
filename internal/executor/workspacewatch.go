package executor

import (
	"context"
	"io/fs"
	"os"
	"time"
)

// watchInterval is the time between two checks. A program may exceed the limit by what it writes between the checks and
// during one.
const watchInterval = 200 * time.Millisecond

// watchWorkspace waits until the directory uses more than limit bytes, and returns how many it uses. It
// returns 0 when ctx ends.
func watchWorkspace(ctx context.Context, dir string, limit int64) int64 {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return 0
		case <-tick.C:
			if used := workspaceSize(ctx, dir, limit); used > limit {
				return used
			}
		}
	}
}

// workspaceSize adds up the disk use of the files below a directory, plus a block for each, until it exceeds
// limit. It never leaves the directory, even if a program changes the tree at the same time. It skips files
// that vanish or cannot be read.
func workspaceSize(ctx context.Context, dir string, limit int64) int64 {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0
	}
	defer root.Close()
	const block = 4096
	var used int64
	_ = fs.WalkDir(root.FS(), ".", func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // skip the file
		}
		used += block
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			used += diskUse(info)
		}
		if used > limit || ctx.Err() != nil {
			return fs.SkipAll
		}
		return nil
	})
	return used
}
