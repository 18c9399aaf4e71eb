// Package dirsync keeps a directory that people work in equal to a workspace: it applies changes of each side to the
// other. A path that both sides changed is a conflict, which is reported and of which nothing is lost. The key type is
// [Folder].
//
// A Folder records for each path what both sides had after the last synchronisation (the base). What differs from that
// was changed since. It never writes into an existing file, which an editor may have open: new content replaces it
// atomically, and only if it is still the file that was scanned; otherwise that file keeps its name, and the path is a
// conflict.
//
// The directory is reached through [os.Root] only, symbolic links are not followed, and content is verified before it
// replaces a file. The package does not know where workspaces are: a [Remote] does.
package dirsync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Kinds of paths.
const (
	File = "file"
	Dir  = "dir"
	Link = "link"
)

// Entry is one path of the workspace. Its JSON is that of the HTTP interface.
type Entry struct {
	Path   string    `json:"path"`
	Kind   string    `json:"kind"`
	Mode   uint32    `json:"mode"` // permission bits
	Bytes  int64     `json:"bytes"`
	Time   time.Time `json:"time,omitzero"`
	Target string    `json:"target,omitempty"` // of a symbolic link
	// SHA-256 of the content, or of the SHA-256 of its parts, one after the other
	ETag  string `json:"etag,omitempty"`
	Parts []Part `json:"parts,omitempty"` // of a large file
}

// Part is a piece of a large file.
type Part struct {
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

// same reports whether two entries have the same content and permissions.
func (e *Entry) same(o *Entry) bool {
	if e == nil || o == nil {
		return e == o
	}
	return e.Kind == o.Kind && e.ETag == o.ETag && e.Target == o.Target && e.Bytes == o.Bytes &&
		(e.Kind == Link || e.Mode == o.Mode)
}

// Edit is one change to the workspace.
type Edit struct {
	Entry
	Remove bool                          // remove the path with all below it
	Open   func() (io.ReadCloser, error) // the content of a file
}

// Remote is a workspace.
type Remote interface {
	// Newest returns the generation of the newest version, with a small request.
	Newest(ctx context.Context) (int64, error)
	// Files returns the paths of a version.
	Files(ctx context.Context, generation int64) ([]Entry, error)
	// Read calls fn with the content of files of a version, in any order.
	Read(ctx context.Context, generation int64, paths []string, fn func(path string, content io.Reader) error) error
	// Write commits edits of the version base, and returns the new generation. If others changed a path since base, it
	// returns a *ConflictError, and nothing was written.
	Write(ctx context.Context, base int64, message string, edits []Edit) (int64, error)
}

// ConflictError is returned when both sides changed the same paths. Nothing was changed.
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
	Refuse   Policy = iota // fail with a *ConflictError, before any change
	KeepBoth               // keep ours, and write theirs as NAME.conflict-gN
	Theirs                 // replace ours by theirs
	Ours                   // replace theirs by ours
)

// Report is what a Pull or Push did, in the order of paths.
type Report struct {
	Generation int64    `json:"generation"` // that the directory was synchronised with
	Written    []string `json:"written"`    // paths written, by Pull in the directory, by Push in the workspace
	Removed    []string `json:"removed"`
	Conflicts  []string `json:"conflicts"` // paths that both sides changed; with KeepBoth the copies are in Written
	Skipped    []string `json:"skipped"`   // paths that the other side cannot have
}

// Options configure a Folder.
type Options struct {
	// Memory is the file with the base; default MemoryFile in the directory.
	Memory string
	// Workspace names the workspace: Open fails for a directory of another one.
	Workspace string
	// Owner of what is written; nil: this process.
	Owner *Owner
}

// Owner is a user and group.
type Owner struct{ UID, GID int }

// MemoryFile is the default name of the file with the base. It is never pushed.
const MemoryFile = ".codefleet-workspace.json"

// tempPrefix begins the names of files that are being written. They are never pushed.
const tempPrefix = ".codefleet-tmp-"

// ErrOther is returned for a directory that belongs to another workspace.
var ErrOther = errors.New("the directory belongs to another workspace")

// Folder is one directory. It must not be used by two goroutines or two processes at once.
type Folder struct {
	root   *os.Root
	remote Remote
	o      Options
	base   base
}

// base is what both sides had after the last synchronisation.
type base struct {
	Format    int                  `json:"format"`
	Workspace string               `json:"workspace"`
	Paths     map[string]*basePath `json:"paths"`
}

// basePath is a path of the base.
type basePath struct {
	Entry
	Stat stat `json:"stat,omitzero"` // in the directory, so that an unchanged file need not be read; zero: read it
}

// Open opens a directory, which must exist.
func Open(dir string, remote Remote, o Options) (*Folder, error) {
	if o.Memory == "" {
		o.Memory = filepath.Join(dir, MemoryFile)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f := &Folder{
		root: root, remote: remote, o: o,
		base: base{Format: 1, Workspace: o.Workspace, Paths: map[string]*basePath{}},
	}
	if err := f.load(); err != nil {
		root.Close()
		return nil, err
	}
	return f, nil
}

// Close releases the directory.
func (f *Folder) Close() error { return f.root.Close() }

// load reads the base. If it cannot be decoded, all content is compared.
func (f *Folder) load() error {
	data, err := os.ReadFile(f.o.Memory)
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
		return fmt.Errorf("%w: %s says %q, not %q", ErrOther, f.o.Memory, b.Workspace, f.o.Workspace)
	}
	for path, k := range b.Paths {
		if k == nil || path != k.Path || !fs.ValidPath(path) {
			delete(b.Paths, path)
		}
	}
	f.base = b
	return nil
}

// save writes the base atomically.
func (f *Folder) save() error {
	data, err := json.Marshal(f.base)
	if err != nil {
		return err
	}
	temp := f.o.Memory + ".tmp"
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, f.o.Memory)
}
