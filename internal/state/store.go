package state

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
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
	CacheDir   string              // worker-local cache of packs and manifests; empty: memory only
	CacheBytes int64               // bound of CacheDir in bytes, 0: 2 GiB
	Quota      Quota               // of each workspace
	Owner      *Owner              // of what is written into trees; nil: this process
	Reserved   []string            // top-level names that are mount points: neither read nor touched; nil: servers, client, lost+found
	Excludes   []string            // patterns never committed, beside .workspaceignore; nil: DefaultExcludes
	Retry      objects.RetryPolicy // of requests to the object store
	Compaction Compaction
	// Secrets of each tenant encrypt what it stores; nil, or none of a tenant: it is in the clear. What
	// was in the clear, or has another key, can be read, and collections write it anew. Called once for each tenant.
	Secrets func(tenant string) Secrets
	Mirror  Mirror
	Log     *slog.Logger
}

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
	objects  objects.Objects
	opts     Options
	codec    codec
	cache    *cache
	versions versionCache
	rings    sync.Map  // tenant to *keyring
	mirrors  *mirrors  // nil: none
	buffers  sync.Pool // of *[]byte
}

// New returns a Store on bucket. It makes no request; call Probe before relying on
// an object store for the first time.
func New(bucket objects.Objects, opts Options) *Store {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Reserved == nil {
		opts.Reserved = []string{"servers", "client", "lost+found"}
	}
	if opts.Excludes == nil {
		opts.Excludes = DefaultExcludes
	}
	opts.Quota, opts.Retry, opts.Compaction = opts.Quota.withDefaults(), opts.Retry.WithDefaults(), opts.Compaction.orDefaults()
	s := &Store{
		objects: objects.WithRetry(bucket, opts.Retry), opts: opts, codec: newCodec(),
		cache: openCache(opts.CacheDir, opts.CacheBytes),
	}
	if opts.Mirror.Target != nil {
		s.mirrors = newMirrors(s)
	}
	return s
}

// Objects is the object store below s.
func (s *Store) Objects() objects.Objects { return s.objects }
