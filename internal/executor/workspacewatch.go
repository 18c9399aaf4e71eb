package executor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// watchInterval is the time between two checks. A program may exceed the limit by what it writes between the checks and
// during one.
const watchInterval = 200 * time.Millisecond

// maxWorkspaceDepth is how deep the directories of a workspace may be nested while a program runs. A check keeps a file
// open for each level.
const maxWorkspaceDepth = 256

// watchWorkspace waits until the directory uses more than limitMB or cannot be measured, and says so. It returns an
// empty string when ctx ends.
func watchWorkspace(ctx context.Context, dir string, limitMB int64) string {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ""
		case <-tick.C:
			used, err := workspaceSize(ctx, dir, limitMB<<20)
			switch {
			case err != nil:
				return fmt.Sprintf("the size of the workspace cannot be measured, and its limit is %d MiB: %v",
					limitMB, err)
			case used > limitMB<<20:
				return fmt.Sprintf("the workspace grew to %d MiB; the limit is %d MiB", used>>20, limitMB)
			}
		}
	}
}

// workspaceSize adds up the disk use of the files below a directory, plus a block for each, until it exceeds
// limit. It never leaves the directory, even if a program changes the tree at the same time. It skips files
// that vanish. The error is not nil if a program has hidden a part of the tree from it.
func workspaceSize(ctx context.Context, dir string, limit int64) (int64, error) {
	root, err := os.OpenRoot(dir)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return 0, errors.New("a program has closed the workspace")
	case err != nil:
		return 0, nil //nolint:nilerr // the workspace is gone
	}
	w := measure{limit: limit}
	err = w.add(ctx, root, 1)
	return w.used, err
}

// A measure is the state of workspaceSize.
type measure struct{ used, limit int64 }

// fileBlock is what a file uses at least, in bytes.
const fileBlock = 4096

// add adds a directory and what is below it, and closes the directory. It uses descriptors and not paths, because names
// may be any bytes, and paths may be too long.
func (m *measure) add(ctx context.Context, dir *os.Root, depth int) error {
	defer dir.Close()
	m.used += fileBlock
	below, err := m.addFiles(ctx, dir)
	if err != nil {
		return err
	}
	for _, name := range below {
		if m.used > m.limit || ctx.Err() != nil {
			return nil
		}
		sub, err := dir.OpenRoot(name)
		switch {
		case errors.Is(err, fs.ErrPermission):
			return fmt.Errorf("a program has closed the directory %q", name)
		case err != nil: // it has vanished
			continue
		case depth == maxWorkspaceDepth:
			sub.Close()
			return fmt.Errorf("directories are nested more than %d deep", maxWorkspaceDepth)
		}
		if err := m.add(ctx, sub, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// addFiles adds the files in a directory, and returns the names of the directories in it.
func (m *measure) addFiles(ctx context.Context, dir *os.Root) (below []string, err error) {
	list, err := dir.Open(".") // needs the permission to search it, unlike OpenRoot
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("a program has closed the directory %q", filepath.Base(dir.Name()))
	case err != nil: // it has vanished
		return nil, nil
	}
	defer list.Close()
	for err == nil && m.used <= m.limit && ctx.Err() == nil {
		var entries []fs.DirEntry
		entries, err = list.ReadDir(256)
		for _, entry := range entries {
			if entry.IsDir() {
				below = append(below, entry.Name())
				continue
			}
			m.used += fileBlock
			info, statErr := dir.Lstat(entry.Name())
			switch {
			case errors.Is(statErr, fs.ErrPermission):
				return nil, fmt.Errorf("a program has closed the directory of the file %q", entry.Name())
			case statErr == nil && info.Mode().IsRegular():
				m.used += diskUse(info)
			}
		}
	}
	return below, nil
}
