package tree

import (
	"errors"
	"io"
	"maps"
	"os"
	"syscall"

	"github.com/codefleet/codefleet/internal/state/format"
)

const layoutMode = 0o755

// setLayoutAside removes from nodes the directories of Options.Layout that are empty, as makeLayout made them, and that
// version does not have: they are not a change.
func (t *Dir) setLayoutAside(version *format.EntrySet) {
	maps.Copy(t.nodes, t.layout) // the last call may have been for another version
	clear(t.layout)
	for _, path := range t.opts.Layout {
		n := t.nodes[path]
		if n == nil || n.stat.Kind != format.KindDir || n.stat.Mode != layoutMode || n.stat.Unversioned ||
			!t.owns(n.stat) || version.Find(path) != nil || !t.isEmpty(path) {
			continue
		}
		n.entry = nil
		t.layout[path] = n
		delete(t.nodes, path)
	}
}

// isEmpty reports whether a path is an empty directory.
func (t *Dir) isEmpty(path string) bool {
	f, err := t.root.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	return errors.Is(err, io.EOF)
}

// makeLayout makes the directories of Options.Layout that the directory lacks.
func (t *Dir) makeLayout() error {
	for _, path := range t.opts.Layout {
		if t.nodes[path] != nil || t.layout[path] != nil {
			continue
		}
		if err := t.mkdir(path, layoutMode); err != nil {
			return err
		}
		if err := t.root.Chmod(path, layoutMode); err != nil { // despite the umask
			return err
		}
		info, err := t.root.Lstat(path)
		if err != nil {
			return err
		}
		n := &node{stat: stat{Kind: format.KindDir, Mode: uint32(info.Mode() & os.ModePerm)}}
		if t.opts.Owner != nil {
			n.stat.UID = uint32(t.opts.Owner.UID)
		}
		t.layout[path] = n
	}
	t.lacking = false
	return nil
}

// lacksLayout reports whether the last scan did not find all directories of Options.Layout.
func (t *Dir) lacksLayout() bool {
	for _, path := range t.opts.Layout {
		if t.nodes[path] == nil {
			return true
		}
	}
	return false
}
