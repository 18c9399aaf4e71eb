package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"
)

// Ref names a workspace. Both parts are slugs: ^[a-z0-9][a-z0-9-]{0,62}$.
type Ref struct{ Tenant, Workspace string }

// String returns tenant/workspace.
func (r Ref) String() string { return r.Tenant + "/" + r.Workspace }

var slug = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func (r Ref) check() error {
	if !slug.MatchString(r.Tenant) {
		return fmt.Errorf("tenant name %q is not a slug", r.Tenant)
	}
	if !slug.MatchString(r.Workspace) {
		return fmt.Errorf("workspace name %q is not a slug", r.Workspace)
	}
	return nil
}

// Options configures a Store; the zero value has no disk cache and the default quota.
type Options struct {
	CacheDir   string   // worker-local cache of packs and manifests; empty: memory only
	CacheBytes int64    // bound of CacheDir in bytes, 0: 2 GiB
	Quota      Quota    // of each workspace
	Owner      *Owner   // of what is written into trees; nil: this process
	Reserved   []string // top-level names that are mount points: neither read nor touched; nil: servers, client, lost+found
	Excludes   []string // patterns never committed, beside .workspaceignore; nil: DefaultExcludes
	Log        *slog.Logger
}

// Quota bounds one version of a workspace; zero fields take the defaults of DefaultQuota.
type Quota struct {
	Bytes   int64 // sum of file sizes
	Files   int   // files, directories and links
	Largest int64 // bytes of one file
	Depth   int   // components of a path
}

// DefaultQuota is 5 GiB in 200,000 entries, one of them at most 2 GiB, 64 levels deep.
var DefaultQuota = Quota{Bytes: 5 << 30, Files: 200_000, Largest: 2 << 30, Depth: 64}

// Owner is the user and group that materialised files belong to.
type Owner struct{ UID, GID int }

// Version identifies what a tree holds. Generation 0 is the empty workspace
// that was never committed to.
type Version struct {
	Generation int64
	Commit     string // random id of the commit
	Time       time.Time
	Files      int
	Bytes      int64
}

// Change says who commits and what goes with the files.
type Change struct {
	TaskID   string          // at most 64 bytes; the same for every attempt. Empty: not a task, nothing is deduplicated
	Attempt  int             // from 1
	Result   json.RawMessage // kept with the commit, returned to later attempts
	Message  string          // for the log
	Since    time.Time       // when the task was first claimed: commits since then are searched for TaskID
	KeepBoth bool            // a path changed by both is kept as name and name.conflict-<task> instead of failing
}

// Commit is one committed version, or the finding that none was needed.
type Commit struct {
	Generation int64
	ID         string // random id of the commit
	TaskID     string
	Attempt    int
	Time       time.Time
	Message    string
	Changed    []string        // paths this task wrote or removed, sorted
	Conflicts  []string        // paths that both sides changed and KeepBoth kept twice
	NoChange   bool            // the tree equals what was checked out; nothing was written
	Already    bool            // another attempt of the task has committed; nothing was written
	Result     json.RawMessage // Change.Result of the commit that counts
}

// ConflictError is returned by Commit when another task has changed the same
// paths since the checkout. It wraps ErrConflict. Nothing was committed; check
// out again and run again.
type ConflictError struct {
	Ref   Ref
	Paths []string // sorted
}

func (e *ConflictError) Error() string {
	const shown = 5
	list := strings.Join(e.Paths[:min(shown, len(e.Paths))], ", ")
	if more := len(e.Paths) - shown; more > 0 {
		list = fmt.Sprintf("%s and %d more", list, more)
	}
	return fmt.Sprintf("workspace %s: changed by another task meanwhile: %s", e.Ref, list)
}

func (e *ConflictError) Unwrap() error { return ErrConflict }

// Store is the workspaces of one object store as one worker sees them.
// Its methods may be called at the same time, but not with the same Tree.
type Store struct {
	objects Objects
	opts    Options
}

// New returns a Store on objects. It does no I/O; call Probe before relying on
// a store for the first time.
func New(objects Objects, opts Options) *Store {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Store{objects: objects, opts: opts}
}

// Tree returns the directory dir as a tree that will hold ref. What dir contains
// does not matter: the first Checkout makes it exactly the workspace. The
// directory must exist and belong to this tree alone until Close.
func (s *Store) Tree(dir string, ref Ref) (*Tree, error) { return nil, errTODO }

// Checkout brings the tree to the newest version by difference. When nothing
// changed since the last Checkout or Commit that is one conditional GET.
// After an error the tree is in an unknown state, which the next Checkout repairs.
func (s *Store) Checkout(ctx context.Context, t *Tree) (Version, error) { return Version{}, errTODO }

// Commit makes the tree's content the newest version, merged with what others
// committed since Checkout. It is atomic, and happens at most once per task id:
// if another attempt has committed, its result is returned with Already set.
//
// A path that both sides changed is a *ConflictError, unless it is state.json or
// a JSON file below state/ and the changes are to different top-level keys.
// ErrQuota, ErrDeleted: nothing was written. After any other error the commit
// may have happened; ask Applied, or call Commit again.
// Every Commit needs a Checkout before it.
func (s *Store) Commit(ctx context.Context, t *Tree, c Change) (Commit, error) {
	return Commit{}, errTODO
}

// Revert makes the tree what it was at Checkout.
func (s *Store) Revert(ctx context.Context, t *Tree) error { return errTODO }

// Applied returns the commit of a task, or nil if the task has not committed
// since the given time. A zero time searches all of the history that is kept.
func (s *Store) Applied(ctx context.Context, ref Ref, taskID string, since time.Time) (*Commit, error) {
	return nil, errTODO
}

// Probe finds out by trying, with about 20 small requests below _probe/, what
// the object store honours. It returns ErrUnsafe with the capabilities when conditional
// writes are ignored: such a store loses commits.
func (s *Store) Probe(ctx context.Context) (Capabilities, error) { return Capabilities{}, errTODO }

// Capabilities is the outcome of Probe.
type Capabilities struct {
	Create  bool          // If-None-Match: * refuses to overwrite
	Swap    bool          // If-Match refuses a stale ETag
	Atomic  bool          // one winner when several race
	Verify  bool          // a body that does not match its SHA-256 is refused
	Fresh   bool          // reads and listings see writes at once
	Ranges  bool          // partial reads
	Latency time.Duration // median of one small request
	Verdict string        // one sentence for people
}

// Tree is a directory of this host that holds a version of a workspace.
// It remembers the files' stat data in memory to find changes without reading.
// A Tree must not be used by two goroutines at once.
type Tree struct{}

// Close releases the directory without touching its content.
func (t *Tree) Close() error { return nil }

var errTODO = errors.New("not implemented yet")
