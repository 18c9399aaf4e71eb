// Package dirsync keeps a directory that people work in equal to a workspace: it applies the changes of each side to
// the other. A path that both sides changed is a conflict: it is reported, and neither version is lost. The key type
// is [Folder].
//
// A Folder records what both sides had at each path after the last synchronisation (the base). A path that differs
// from the base has changed since. A Folder never writes into an existing file, which an editor may have open: new
// content replaces the file atomically, and only if the file has not changed since the scan. Otherwise the file keeps
// its name, and the path is a conflict.
//
// The directory is reached through [os.Root], symbolic links are not followed, and content is verified before it
// replaces a file. A link of the workspace may point to files that are never synchronised, so every write is to a new
// file with a temporary name, in a directory with no link above it. A [Remote] gives access to the workspace.
package dirsync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Kinds of paths.
const (
	File    = "file"
	Dir     = "dir"
	Symlink = "link"
)

// FileInfo describes one path of the workspace. The HTTP interface uses the same JSON.
type FileInfo struct {
	Path   string    `json:"path"`
	Kind   string    `json:"kind"` // File, Dir or Symlink
	Mode   uint32    `json:"mode"` // permission bits
	Bytes  int64     `json:"bytes"`
	Time   time.Time `json:"time,omitzero"`    // modification time
	Target string    `json:"target,omitempty"` // symbolic links only
	// ETag is the SHA-256 of the content. For a file with Parts, it is the SHA-256 of their concatenated digests.
	ETag  string `json:"etag,omitempty"`
	Parts []Part `json:"parts,omitempty"` // large files only, in order
}

// Part is a piece of a large file.
type Part struct {
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

// same reports whether e and o have the same content and permissions. Both may be nil.
func (e *FileInfo) same(o *FileInfo) bool {
	if e == nil || o == nil {
		return e == o
	}
	return e.Kind == o.Kind && e.ETag == o.ETag && e.Target == o.Target && e.Bytes == o.Bytes &&
		(e.Kind == Symlink || e.Mode == o.Mode)
}

// Edit is one change to the workspace.
type Edit struct {
	FileInfo
	Remove bool                          // remove the path and everything below it
	Open   func() (io.ReadCloser, error) // opens the content of a file
}

// Version identifies a version of a workspace.
type Version struct {
	Generation int64 // 0 if the workspace has no commits
	// Commit is a random id, by which versions of two workspaces with the same generation differ. Empty if unknown.
	Commit string
}

// Remote is a workspace.
type Remote interface {
	// Newest returns the newest version. It sends one small request.
	Newest(ctx context.Context) (Version, error)
	// Log returns up to limit of the kept versions, the newest first.
	Log(ctx context.Context, limit int) ([]Version, error)
	// Files returns a version's paths.
	Files(ctx context.Context, generation int64) ([]FileInfo, error)
	// Read calls fn with the content of each of the files at paths, in any order.
	Read(ctx context.Context, generation int64, paths []string, fn func(path string, content io.Reader) error) error
	// Write commits edits that were made to the version base, and returns the new version. If another commit has
	// changed one of their paths since base, it writes nothing and returns a *ConflictError, unless it can merge the
	// two versions of a file: then the new version has the merged file.
	Write(ctx context.Context, base int64, message string, edits []Edit) (Version, error)
}

// ConflictError is returned when both sides changed the same paths. Neither side was modified.
type ConflictError struct{ Paths []string }

// Error implements error.
func (e *ConflictError) Error() string {
	const limit = 5
	text := strings.Join(e.Paths[:min(limit, len(e.Paths))], ", ")
	if more := len(e.Paths) - limit; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "changed both here and in the workspace: " + text
}

// Policy says what happens to paths that both sides changed.
type Policy int

// Policies.
const (
	Refuse   Policy = iota // return a *ConflictError and change nothing
	KeepBoth               // keep ours, and write theirs as NAME.conflict-gN; but a directory of theirs keeps its name
	Theirs                 // replace ours with theirs
	Ours                   // replace theirs with ours
)

// Report lists what a Pull or Push did.
type Report struct {
	Generation int64    `json:"generation"` // the version that the directory was synchronised with
	Written    []string `json:"written"`    // paths written by Pull in the directory, or by Push in the workspace
	Removed    []string `json:"removed"`
	Conflicts  []string `json:"conflicts"` // paths that both sides changed; with KeepBoth, Written lists the copies
	Skipped    []string `json:"skipped"`   // paths that the other side cannot have
	Different  []string `json:"different"` // paths at which the two sides still differ, except Skipped
}

// Options configures a Folder.
type Options struct {
	// BaseFile is the path of the file that stores the base. The default is BaseFileName in the directory.
	BaseFile string
	// Workspace names the workspace. Open fails if the directory belongs to another one.
	Workspace string
	// Owner owns the paths that are written. Nil means the user and group of this process.
	Owner *Owner
	// Progress is called during a transfer, with the number of bytes transferred and the total. It may be nil.
	Progress func(done, total int64)
}

// Owner is a user and group.
type Owner struct{ UID, GID int }

// BaseFileName is the default name of the file that stores the base. It is never pushed.
const BaseFileName = ".codefleet-workspace.json"

// tempPrefix begins the names of files that are being written. They are never pushed.
const tempPrefix = ".codefleet-tmp-"

// ErrOlder is returned by Pull, Push and Sync if the workspace's newest version is older than the one that the
// directory was synchronised with: the workspace's data was lost, or is that of another fleet. Nothing was changed.
var ErrOlder = errors.New("the workspace's newest version is older than the directory's")

// ErrOtherWorkspace is returned by Open for a directory that belongs to another workspace, and by Pull, Push and Sync
// if the workspace has another version with the generation that the directory was synchronised with, as a workspace of
// the same name in another fleet has. Nothing was changed.
var ErrOtherWorkspace = errors.New("the directory belongs to another workspace")

// DataDirMarker is the name of a file that each process of a fleet writes into its data directory. It is never
// synchronised, so programs cannot make one.
const DataDirMarker = ".codefleet-data"

// MarkDataDir makes DataDirMarker in a directory.
func MarkDataDir(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, DataDirMarker), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// ErrDataDir is returned by Open for the data directory of a fleet, which contains its credentials. Such a directory
// below the opened one is skipped.
var ErrDataDir = errors.New("it is the data directory of a fleet: it has " + DataDirMarker +
	", or credentials.json and lock")

// Folder is one directory. It must not be used by two goroutines or two processes at once.
type Folder struct {
	root      *os.Root
	remote    Remote
	o         Options
	base      base
	umask     fs.FileMode // set by readUmask
	umaskRead bool
	meter     meter // of the current transfer

	made   map[string]bool      // directories that the current apply has made or checked
	pushed map[string]hash.Hash // SHA-256 of the files that the current push has read, by path
	behind bool                 // whether the version that the last push made has changes that the directory lacks

	foldsCase func(*os.Root) (bool, error) // the function of the same name, except in tests
}

// meter counts the bytes that are written to it, and reports their number.
type meter struct {
	done, total int64
	report      func(done, total int64)
}

// Write implements io.Writer.
func (m *meter) Write(b []byte) (int, error) {
	m.done += int64(len(b))
	if m.report != nil {
		m.report(m.done, m.total)
	}
	return len(b), nil
}

// base is what both sides had after the last synchronisation. It is stored in Options.BaseFile.
type base struct {
	Format    int    `json:"format"`
	Workspace string `json:"workspace"`
	// Generation is the version that the directory was synchronised with; 0 if it is unknown.
	Generation int64                `json:"generation,omitempty"`
	Commit     string               `json:"commit,omitempty"` // of that version; older programs did not record it
	Paths      map[string]*basePath `json:"paths"`
}

// basePath is one path of the base.
type basePath struct {
	FileInfo
	// Stat is the stat of the file in the directory: a file with the same stat need not be read. If it is zero, the
	// file must be read.
	Stat stat `json:"stat,omitzero"`
	// LocalMode is the mode that Pull gave the path in the directory if it differs from Mode; see modeHere. A path that
	// still has it counts as having Mode.
	LocalMode uint32 `json:"local_mode,omitempty"`
}

// Open opens a directory, which must exist.
func Open(dir string, remote Remote, o Options) (*Folder, error) {
	if o.BaseFile == "" {
		o.BaseFile = filepath.Join(dir, BaseFileName)
	}
	root, err := os.OpenRoot(dir + string(filepath.Separator)) // with the separator, it does not wait on a pipe
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		e.Path = dir
	}
	if err != nil {
		return nil, err
	}
	f := &Folder{
		root: root, remote: remote, o: o, foldsCase: foldsCase,
		base: base{Format: 1, Workspace: o.Workspace, Paths: map[string]*basePath{}},
	}
	err = f.load()
	if err == nil && (f.isDataDir(".") || isInDataDir(dir)) {
		err = fmt.Errorf("%s: %w", dir, ErrDataDir)
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return f, nil
}

// isInDataDir reports whether a directory above dir is marked as the data directory of a fleet.
func isInDataDir(dir string) bool {
	full, err := filepath.EvalSymlinks(dir)
	if err == nil {
		full, err = filepath.Abs(full)
	}
	if err != nil {
		return false
	}
	for parent := filepath.Dir(full); parent != full; full, parent = parent, filepath.Dir(parent) {
		if _, err := os.Lstat(filepath.Join(parent, DataDirMarker)); err == nil {
			return true
		}
	}
	return false
}

// Close releases the directory.
func (f *Folder) Close() error { return f.root.Close() }

// load reads the base. A base that cannot be decoded counts as missing: all content is compared.
func (f *Folder) load() error {
	data, err := os.ReadFile(f.o.BaseFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var b base
	if decodeErr := json.Unmarshal(data, &b); decodeErr != nil || b.Format != f.base.Format || b.Paths == nil {
		return nil //nolint:nilerr // as if it did not exist
	}
	if b.Workspace != f.o.Workspace {
		return fmt.Errorf("%w: %s names %q, want %q", ErrOtherWorkspace, f.o.BaseFile, b.Workspace, f.o.Workspace)
	}
	for path, k := range b.Paths {
		if k == nil || path != k.Path || !fs.ValidPath(path) {
			delete(b.Paths, path)
		}
	}
	f.base = b
	return nil
}

// save writes the base atomically. BaseFile may be in the directory, where a known name for the new file could be a
// link of the workspace.
func (f *Folder) save() error {
	data, err := json.Marshal(f.base)
	if err != nil {
		return err
	}
	temp := tempName(f.o.BaseFile)
	file, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(temp) // it no longer exists once it has its name
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(temp, f.o.BaseFile)
}
