package executor

import (
	"context"
	"io/fs"
	"os"
	"time"
)

// watchInterval is how far a program can get beyond its limit: what it writes in this
// time, and in the time that it takes to add up the sizes of its files.
const watchInterval = 200 * time.Millisecond

// watchWorkspace returns the size of the directory in bytes once that is over limit,
// or 0 when ctx ends before.
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

// workspaceSize adds up what the files of a directory take, at least a block each, and
// stops when that is over limit. It never leaves the directory, whatever the program
// that is running in it does meanwhile; what vanishes or cannot be read counts nothing.
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
			return nil //nolint:nilerr // what cannot be read counts nothing
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
