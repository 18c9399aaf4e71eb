// Package dirsync keeps a directory that people work in, in step with a workspace: changes here go
// there, changes there come here, and what both changed is a conflict that is named and of which
// nothing is lost. The key type is [Folder].
//
// A Folder remembers for each path what was the same on both sides when they last met. Whatever
// differs from that was changed since, on one side or on both. It never writes through a file that
// somebody may have open: new content takes the name in one step, and only if the file that had the
// name is the one that was looked at; otherwise that one gets its name back, and the path is a
// conflict.
//
// The directory is reached through [os.Root] only, no link is followed, and content is verified
// before it takes its name. The package does not know where workspaces are: a [Remote] does.
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
	Target string    `json:"target,omitempty"` // of a link
	ETag   string    `json:"etag,omitempty"`   // SHA-256 of the content, or of the parts' one after the other
	Parts  []Part    `json:"parts,omitempty"`  // of a large file
}

// Part is a piece of a large file.
type Part struct {
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

// same reports whether two entries are the same content with the same permissions.
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
	Remove bool                          // the path with all below it
	Open   func() (io.ReadCloser, error) // the content of a file
}

// Remote is a workspace.
type Remote interface {
	// Newest returns the generation of the newest version: a small request.
	Newest(ctx context.Context) (int64, error)
	// Files returns the paths of a version.
	Files(ctx context.Context, generation int64) ([]Entry, error)
	// Read calls fn with the content of files of a version, in any order.
	Read(ctx context.Context, generation int64, paths []string, fn func(path string, content io.Reader) error) error
	// Write makes edits of the version base one commit and returns the generation that has them. A
	// path that others have changed since base is a *ConflictError, and nothing was written.
	Write(ctx context.Context, base int64, message string, edits []Edit) (int64, error)
}

// ConflictError is returned when both sides changed the same paths. Nothing was changed.
type ConflictError struct{ Paths []string }

func (e *ConflictError) Error() string {
	const shown = 5
	text := strings.Join(e.Paths[:min(shown, len(e.Paths))], ", ")
	if more := len(e.Paths) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "changed both here and in the workspace: " + text
}

// Policy says what becomes of paths that both sides changed.
type Policy int

// Policies.
const (
	Refuse   Policy = iota // a *ConflictError, before anything is changed
	KeepBoth               // ours keeps the name, theirs is beside it as NAME.conflict-gN
	Theirs                 // theirs replaces ours
	Ours                   // ours replaces theirs
)

// Report is what a Pull or Push did, in the order of paths.
type Report struct {
	Generation int64    `json:"generation"` // that the directory has met
	Written    []string `json:"written"`    // paths written: here by Pull, there by Push
	Removed    []string `json:"removed"`
	Conflicts  []string `json:"conflicts"` // both sides changed; KeepBoth: the copies' names are in Written
	Skipped    []string `json:"skipped"`   // cannot be on the other side: see the package's documentation
}

// Options configure a Folder.
type Options struct {
	// Memory is the file that holds what was the same on both sides; default MemoryFile in the directory.
	Memory string
	// Workspace names the other side: a folder that has met another one is refused.
	Workspace string
	// Owner of what is written; nil: this process.
	Owner *Owner
}

// Owner is a user and group.
type Owner struct{ UID, GID int }

// MemoryFile is how a pulled directory remembers what it has met. It is never pushed.
const MemoryFile = ".codefleet-workspace.json"

// tempPrefix begins the names of files that are being written. They are never pushed.
const tempPrefix = ".codefleet-tmp-"

// ErrOther is returned for a directory that belongs to another workspace.
var ErrOther = errors.New("the directory belongs to another workspace")

// Folder is one directory. It must not be used by two goroutines, or two processes, at once.
type Folder struct {
	root   *os.Root
	remote Remote
	o      Options
	met    memory
}

// memory is what both sides had when they last met.
type memory struct {
	Format    int               `json:"format"`
	Workspace string            `json:"workspace"`
	Paths     map[string]*known `json:"paths"`
}

// known is a path that was the same on both sides.
type known struct {
	Entry
	Stat stat `json:"stat,omitzero"` // here, so that it need not be read again; zero: it must be
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
		met: memory{Format: 1, Workspace: o.Workspace, Paths: map[string]*known{}},
	}
	if err := f.remember(); err != nil {
		root.Close()
		return nil, err
	}
	return f, nil
}

// Close releases the directory.
func (f *Folder) Close() error { return f.root.Close() }

// remember reads the memory. One that cannot be read is as none: then everything is compared.
func (f *Folder) remember() error {
	data, err := os.ReadFile(f.o.Memory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var met memory
	if broken := json.Unmarshal(data, &met); broken != nil || met.Format != f.met.Format || met.Paths == nil {
		return nil //nolint:nilerr // as none
	}
	if met.Workspace != f.o.Workspace {
		return fmt.Errorf("%w: %s says %q, not %q", ErrOther, f.o.Memory, met.Workspace, f.o.Workspace)
	}
	for path, k := range met.Paths {
		if k == nil || path != k.Path || !fs.ValidPath(path) {
			delete(met.Paths, path)
		}
	}
	f.met = met
	return nil
}

// save writes the memory in one step.
func (f *Folder) save() error {
	data, err := json.Marshal(f.met)
	if err != nil {
		return err
	}
	temp := f.o.Memory + ".tmp"
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, f.o.Memory)
}
