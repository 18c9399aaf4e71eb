package state

import (
	"context"
	"log/slog"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/ignore"
	"github.com/codefleet/codefleet/internal/state/repo"
	"github.com/codefleet/codefleet/internal/state/tree"
)

// Options configures a Store; the zero value has no disk cache and the default quota.
type Options struct {
	CacheDir   string // worker-local cache of packs and manifests; empty: memory only
	CacheBytes int64  // limit of CacheDir in bytes, 0: 2 GiB
	Quota      Quota  // of each workspace
	Owner      *Owner // of what is written into trees; nil: this process
	// Reserved are top-level names that belong to the fleet: no version has them, and what a program makes there is
	// removed. Nil means servers, client and lost+found.
	Reserved   []string
	Excludes   []string            // patterns never committed, beside .workspaceignore; nil: ignore.Defaults
	Retry      objects.RetryPolicy // of requests to the object store
	Compaction Compaction
	// Secrets of a tenant encrypt what it stores; nil, or a tenant without a secret: unencrypted. What was stored
	// unencrypted or with another key can be read, and garbage collection writes it anew. Called once per tenant.
	Secrets func(tenant string) Secrets
	Log     *slog.Logger
}

// Version identifies the version that a tree holds. Generation 0 is a workspace without commits.
type Version struct {
	Generation int64
	Commit     string // random id of the commit
	Time       time.Time
	Files      int
	Bytes      int64
}

// Store is the workspaces of one object store as one worker sees them.
// Its methods may be called at the same time, but not with the same Tree.
type Store struct {
	repo *repo.Repo
	dirs tree.Options
}

// New returns a Store on bucket. It makes no request; call heads.Probe before relying on
// an object store for the first time.
func New(bucket objects.Objects, opts Options) *Store {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Reserved == nil {
		opts.Reserved = []string{"servers", "client", "lost+found"}
	}
	if opts.Excludes == nil {
		opts.Excludes = ignore.Defaults
	}
	r := repo.New(bucket, repo.Options{
		CacheDir: opts.CacheDir, CacheBytes: opts.CacheBytes, Quota: opts.Quota, Reserved: opts.Reserved,
		Retry: opts.Retry, Compaction: opts.Compaction, Secrets: opts.Secrets, Log: opts.Log,
	})
	return &Store{repo: r, dirs: tree.Options{
		Owner: opts.Owner, Reserved: opts.Reserved, Excludes: opts.Excludes, Quota: r.Options.Quota, Log: opts.Log,
	}}
}

// Repo is what s commits to, for the packages history, maintenance and mirror.
func (s *Store) Repo() *repo.Repo { return s.repo }

// Applied returns the commit of a task, or nil if the task has not committed
// since the given time. A zero time searches the whole history.
func (s *Store) Applied(ctx context.Context, ref Ref, taskID string, since time.Time) (*Commit, error) {
	return s.repo.Applied(ctx, ref, taskID, since)
}

// Fence returns the commit of a task, as Applied does. If there is none, the task can no longer commit when Fence
// returns: a run of it that is still alive somewhere gets ErrFenced. It may be repeated; after an error the task may be
// fenced or not. The fence lasts for an hour, unless 16 other tasks are fenced in the workspace before.
func (s *Store) Fence(ctx context.Context, ref Ref, taskID string, since time.Time) (*Commit, error) {
	return s.repo.Fence(ctx, ref, taskID, since)
}

// List returns the paths of a version (0: the newest) below the directory dir, or all paths if dir is empty.
func (s *Store) List(ctx context.Context, ref Ref, generation int64, dir string) ([]FileInfo, error) {
	return s.repo.List(ctx, ref, generation, dir)
}

// Retain keeps a version from garbage collection until a time. Deleting the workspace ends that. It may be repeated.
func (s *Store) Retain(ctx context.Context, ref Ref, generation int64, until time.Time) error {
	return s.repo.Retain(ctx, ref, generation, until)
}

// FreeDisk empties the cache, and stops caching for a minute.
// Checkout and Commit call it when a write finds the disk full.
func (s *Store) FreeDisk(ctx context.Context) { s.repo.EmptyCache(ctx) }
