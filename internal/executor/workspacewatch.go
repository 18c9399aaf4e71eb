package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// watchInterval is the time between two checks. A program may exceed the limit by what it writes between the checks and
// during one.
const watchInterval = 200 * time.Millisecond

// maxWorkspaceDepth is how deep the directories of a workspace may be nested while a program runs. A check keeps a file
// open for each level.
const maxWorkspaceDepth = 256

const (
	// maxListings is how often at most a check lists a directory in which directories vanish before it measures them.
	maxListings = 8
	// maxIncomplete is how many checks in a row may be unable to measure a directory.
	maxIncomplete = 20
)

// watchWorkspace waits until the directory uses more than limitMB or cannot be measured, and returns a description of
// that. It returns an empty string when ctx ends.
func watchWorkspace(ctx context.Context, dir string, limitMB int64) string {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	incomplete := 0 // checks in a row
	for {
		select {
		case <-ctx.Done():
			return ""
		case <-tick.C:
			used, complete, err := workspaceSize(ctx, dir, limitMB<<20)
			if incomplete++; complete && err == nil {
				incomplete = 0
			}
			_, byProgram := errors.AsType[hiddenError](err)
			if err != nil && !byProgram && incomplete < maxIncomplete && used <= limitMB<<20 {
				continue // the host may have been short of descriptors
			}
			if err == nil && incomplete == maxIncomplete {
				err = errors.New("a program keeps renaming directories")
			}
			switch {
			case used > limitMB<<20:
				return fmt.Sprintf("the workspace grew to %d MiB; the limit is %d MiB", used>>20, limitMB)
			case err != nil:
				return fmt.Sprintf("the size of the workspace cannot be measured, and its limit is %d MiB: %v",
					limitMB, err)
			}
		}
	}
}

// workspaceSize adds up the disk use of the files below a directory, plus a block for each, until it exceeds
// limit. It never leaves the directory, even if a program changes the tree at the same time. It skips files
// that vanish; complete is false if directories kept vanishing. The error is not nil if a program has hidden a part of
// the tree, or if the tree cannot be read.
func workspaceSize(ctx context.Context, dir string, limit int64) (used int64, complete bool, err error) {
	root, err := os.OpenRoot(dir)
	switch {
	case hasVanished(err):
		return 0, true, nil
	case errors.Is(err, fs.ErrPermission):
		return 0, false, hiddenError("a program has made the workspace unreadable")
	case err != nil:
		return 0, false, fmt.Errorf("open the workspace: %w", err)
	}
	m := measure{limit: limit}
	err = m.add(ctx, root, 1)
	return m.used, !m.incomplete, err
}

// A measure is the state of workspaceSize.
type measure struct {
	used, limit int64
	incomplete  bool
}

// hiddenError says how a program has hidden a part of the workspace. Other errors are due to the host, and may
// go away.
type hiddenError string

func (e hiddenError) Error() string { return string(e) }

// fileBlock is what a file uses at least, in bytes.
const fileBlock = 4096

// hasVanished reports whether err, from accessing a listed path, means that a program has removed, renamed or
// replaced it since.
func hasVanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}

// add adds a directory and what is below it, and closes the directory. It uses descriptors and not paths, because names
// may be any bytes, and paths may be too long. While directories vanish before it has opened them, it lists the
// directory again, and adds those with new names.
func (m *measure) add(ctx context.Context, dir *os.Root, depth int) error {
	defer dir.Close()
	m.used += fileBlock
	names, inodes := map[string]bool{}, map[uint64]bool{} // of the directories that were added
	for listing := range maxListings {
		below, err := m.list(ctx, dir, listing == 0)
		if err != nil {
			return err
		}
		complete := true
		for _, name := range below {
			if names[name] {
				continue
			}
			if m.used > m.limit || ctx.Err() != nil {
				return nil
			}
			sub, inode, err := openBelow(dir, name)
			if err != nil {
				return err
			}
			if sub == nil {
				complete = false
				continue
			}
			names[name] = true
			if inodes[inode] { // renamed since it was added
				sub.Close()
				continue
			}
			inodes[inode] = true
			if depth == maxWorkspaceDepth {
				sub.Close()
				return hiddenError(fmt.Sprintf("directories are nested more than %d deep", maxWorkspaceDepth))
			}
			if err := m.add(ctx, sub, depth+1); err != nil {
				return err
			}
		}
		if complete {
			return nil
		}
	}
	m.incomplete = true
	return nil
}

// openBelow opens a directory in dir and returns its inode. It returns nil if the directory has vanished.
func openBelow(dir *os.Root, name string) (sub *os.Root, inode uint64, err error) {
	sub, err = dir.OpenRoot(name)
	if err == nil {
		var info fs.FileInfo
		if info, err = sub.Stat("."); err == nil {
			return sub, inodeOf(info), nil
		}
		sub.Close()
	}
	if hasVanished(err) {
		return nil, 0, nil
	}
	if info, failed := dir.Lstat(name); hasVanished(failed) || failed == nil && !info.IsDir() { // such as a link now
		return nil, 0, nil
	}
	return nil, 0, measureError(err, name)
}

// measureError explains the error of an access to a directory.
func measureError(err error, name string) error {
	if errors.Is(err, fs.ErrPermission) {
		return hiddenError(fmt.Sprintf("a program has made the directory %q unreadable", name))
	}
	return fmt.Errorf("read the directory %.100q: %w", name, err)
}

// list returns the names of the directories in a directory. With files, it adds the files in it.
func (m *measure) list(ctx context.Context, dir *os.Root, files bool) (below []string, err error) {
	list, err := dir.Open(".") // needs the permission to search it, unlike OpenRoot
	switch {
	case hasVanished(err):
		return nil, nil
	case err != nil:
		return nil, measureError(err, filepath.Base(dir.Name()))
	}
	defer list.Close()
	for m.used <= m.limit && ctx.Err() == nil {
		entries, err := list.ReadDir(256)
		for _, entry := range entries {
			if entry.IsDir() {
				below = append(below, entry.Name())
			} else if files {
				if err := m.addFile(dir, entry.Name()); err != nil {
					return nil, err
				}
			}
		}
		switch {
		case errors.Is(err, io.EOF), hasVanished(err):
			return below, nil
		case err != nil:
			return nil, measureError(err, filepath.Base(dir.Name()))
		}
	}
	return below, nil
}

// addFile adds a file.
func (m *measure) addFile(dir *os.Root, name string) error {
	m.used += fileBlock
	info, err := dir.Lstat(name)
	switch {
	case hasVanished(err):
	case errors.Is(err, fs.ErrPermission):
		return hiddenError(fmt.Sprintf("a program has made the directory of the file %q inaccessible", name))
	case err != nil:
		return fmt.Errorf("measure the file %.100q: %w", name, err)
	case info.Mode().IsRegular():
		m.used += diskUse(info)
	}
	return nil
}
