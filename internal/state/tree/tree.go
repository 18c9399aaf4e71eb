package tree

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/codefleet/codefleet/internal/removal"
	"github.com/codefleet/codefleet/internal/state/content"
	"github.com/codefleet/codefleet/internal/state/format"
)

// Options configures a Dir.
type Options struct {
	Owner    *Owner   // owner of the written files; nil means the user and group of this process
	Reserved []string // top-level names that belong to the fleet and are never part of a version
	// MountPoints lists the names of Reserved at which a box mounts directories. An empty directory there that does
	// not belong to Owner stays; anything else is removed, as at the other names.
	MountPoints []string
	// Layout lists top-level directories that Materialise makes if the version does not have them. Unless a program
	// puts something into them, they are not a change.
	Layout   []string
	Excludes []string // patterns of paths that are never part of a version, in addition to .workspaceignore
	Quota    format.Quota
	Log      *slog.Logger
}

// Owner is the user and group that own materialised files.
type Owner struct{ UID, GID int }

// Dir is a directory that holds a version of a workspace. It keeps the files' stat data in memory, to find changes
// without reading files. It must not be used by two goroutines at once.
type Dir struct {
	ref     format.Ref
	content *content.Store
	opts    Options
	root    *os.Root

	nodes       map[string]*node // paths that the last scan found, without excluded ones and layout
	layout      map[string]*node // empty directories of Options.Layout that the version does not have
	round       uint32           // number of the last scan
	excluded    []string         // paths that the last scan excluded
	unversioned bool             // the last scan found a path with Unversioned set
	retimed     bool             // a file has another time than its entry
	large       []string         // directories that the last scan found above largeDirectory
	lacking     bool             // the last scan did not find all directories of Options.Layout
	known       bool             // nodes describes the directory, apart from changes since the last scan

	watch     func() bool      // see Watch; nil means that only a scan finds changes
	unchanged *format.EntrySet // what the last Diff compared with, if it found no change
}

// node is one path in the directory.
type node struct {
	stat  stat
	entry *format.Entry // what the path holds; nil if that is unknown
	racy  bool          // the content may change although the stat does not

	touched bool   // it was written since the previous scan, perhaps with the same content
	round   uint32 // number of the last scan that found the path
}

// Open opens the directory dir for versions of ref. The directory must exist; its content does not matter. Until Close,
// no other Dir may use it.
func Open(dir string, ref format.Ref, store *content.Store, o Options) (*Dir, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open tree: %w", err)
	}
	return &Dir{
		ref: ref, content: store, opts: o, root: root, nodes: map[string]*node{}, layout: map[string]*node{},
	}, nil
}

// Exact reports whether the Dir knows that the directory held nothing but a version after the last scan: no excluded
// files, hard links or special mode bits, all directories of Options.Layout, and files with the version's times.
func (t *Dir) Exact() bool {
	return t.known && len(t.excluded) == 0 && !t.unversioned && !t.lacking && !t.retimed
}

// Grown reports whether a directory takes more than 1 MiB, and much more than its names need. Many file systems never
// make a directory smaller, so a program can take space from later ones although it has removed all names.
func (t *Dir) Grown() bool {
	const ofName, slack = 12, 8 // bytes beside a name; directories may be a few times as large as their names
	for _, dir := range t.large {
		info, err := t.root.Lstat(dir)
		if err != nil || info.Size() <= largeDirectory {
			continue
		}
		var needed int64
		for p := range t.nodes {
			if path.Dir(p) == dir {
				needed += ofName + int64(len(path.Base(p)))
			}
		}
		if info.Size() > slack*needed {
			return true
		}
	}
	return false
}

// Watch makes Diff skip the scan of a large directory that was not written to. untouched reports whether nothing has
// been written to the directory, or to the file system that it is on, since the last call of untouched; it may return
// false although nothing was written.
func (t *Dir) Watch(untouched func() bool) { t.watch = untouched }

// Close releases the directory without touching its content.
func (t *Dir) Close() error { return t.root.Close() }

// WriteFile writes a file and its missing parent directories, owned by Options.Owner. It replaces what is at path, even
// a directory. path must be relative, clean and neither reserved nor excluded by Options.Excludes; only the permission
// bits of mode count.
func (t *Dir) WriteFile(path string, data []byte, mode os.FileMode) error {
	if err := format.CheckPath(path); err != nil {
		return err
	}
	if t.reserved(path) {
		return fmt.Errorf("write %q: the name %s is reserved", path, format.TopDir(path))
	}
	if ExcludeRules(t.opts.Excludes, nil).MatchBelow(path) {
		return fmt.Errorf("write %q: no version has what these patterns match: %s",
			path, strings.Join(t.opts.Excludes, ", "))
	}
	var dirs []string
	for dir := format.ParentDir(path); dir != ""; dir = format.ParentDir(dir) {
		dirs = append(dirs, dir)
	}
	for _, dir := range slices.Backward(dirs) {
		info, err := t.root.Lstat(dir)
		if err == nil && info.IsDir() {
			continue
		}
		if err == nil {
			return fmt.Errorf("write %q: %q is not a directory", path, dir)
		}
		if err := t.mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := removal.All(t.root, path); err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	e := &format.Entry{
		Path: path, Kind: format.KindFile, Mode: uint32(mode.Perm()), Size: int64(len(data)),
		MTime: time.Now().UnixNano(),
	}
	d := dirHandle{tree: t}
	defer d.close()
	_, err := d.writeFile(e, data)
	return err
}

// ReadFile returns at most limit bytes of a file that a program may have written. It opens regular files only, and
// follows no symbolic link out of the tree.
func (t *Dir) ReadFile(path string, limit int64) ([]byte, error) {
	f, err := t.openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// Size returns a file's size in bytes. It returns false unless path is a regular file.
func (t *Dir) Size(path string) (int64, bool) {
	info, err := t.root.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return 0, false
	}
	return info.Size(), true
}

// openFile opens a regular file for reading. It does not block on pipes.
func (t *Dir) openFile(path string) (*os.File, error) {
	f, err := t.root.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("open %q: not a regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
