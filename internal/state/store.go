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

// Options configures a Store.
type Options struct {
	CacheDir   string // directory for cached packs and manifests; empty means no disk cache
	CacheBytes int64  // limit of CacheDir; the default is 2 GiB
	Quota      Quota  // quota of each workspace
	Owner      *Owner // owner of the files in trees; nil means the user and group of this process
	// Layout lists top-level directories that each tree has, such as state/: Checkout makes them if the version does
	// not have them. While they are empty, they are not a change, and Commit does not store them.
	Layout     []string
	Retry      objects.RetryPolicy // for requests to the object store
	Compaction Compaction
	StateFile  string // the default state document; its changes, like those below state/, are merged by top-level keys
	// Secrets returns the secrets that encrypt what a tenant stores, the same at each call. If it is nil, or the
	// tenant has no current secret, nothing is encrypted. Objects that are unencrypted or encrypted with an old key
	// stay readable, and garbage collection rewrites them.
	Secrets func(tenant string) Secrets
	// Carry reports whether HEAD may carry small commits. It must return false unless all processes that use the object
	// store can read such HEADs. Nil means never. See also repo.Repo.StartFolding.
	Carry func() bool
	Log   *slog.Logger // nil means no log
}

// Version identifies the version that a tree holds. Generation 0 is a workspace without commits.
type Version struct {
	Generation int64
	Commit     string // random id of the commit
	Time       time.Time
	Files      int // files, directories and symbolic links
	Bytes      int64
}

// Store gives access to the workspaces in one object store. Its methods are safe for concurrent use, but two calls
// must not use the same Tree at once.
type Store struct {
	repo *repo.Repo
	dirs tree.Options
}

// New returns a Store on bucket. It sends no request; call heads.Probe before you rely on an object store for the
// first time.
func New(bucket objects.Objects, opts Options) *Store {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	// Top-level names that belong to the fleet, or to the tree's file system (lost+found): no version has them, and
	// Checkout removes what a program made there.
	reserved := []string{"servers", "client", "lost+found"}
	r := repo.New(bucket, repo.Options{
		CacheDir: opts.CacheDir, CacheBytes: opts.CacheBytes, Quota: opts.Quota, Reserved: reserved,
		StateFile: opts.StateFile, Retry: opts.Retry, Compaction: opts.Compaction, Secrets: opts.Secrets,
		Carry: opts.Carry, Log: opts.Log,
	})
	return &Store{repo: r, dirs: tree.Options{
		Owner: opts.Owner, Reserved: reserved, MountPoints: []string{"servers", "client"}, Layout: opts.Layout,
		Excludes: ignore.Defaults, Quota: r.Options.Quota, Log: opts.Log,
	}}
}

// Repo returns the repository that s commits to, for the packages history, maintenance and mirror.
func (s *Store) Repo() *repo.Repo { return s.repo }

// Applied returns a task's commit, or nil if the task has not committed since the given time. A zero time searches the
// whole history.
func (s *Store) Applied(ctx context.Context, ref Ref, taskID string, since time.Time) (*Commit, error) {
	return s.repo.Applied(ctx, ref, taskID, since)
}

// Fence returns a task's commit, as Applied does. If the task has not committed, Fence makes sure that its runs up to
// the number attempt never will: if one of them is still alive, its commit returns ErrFenced. Fence may be repeated;
// after an error the runs may or may not be fenced. The fence lasts for an hour, or until 16 other tasks are fenced in
// the workspace.
func (s *Store) Fence(
	ctx context.Context, ref Ref, taskID string, attempt int, since time.Time,
) (*Commit, error) {
	return s.repo.Fence(ctx, ref, taskID, attempt, since)
}

// List returns the paths of a version below the directory dir, or all paths if dir is empty. Generation 0 means the
// newest.
func (s *Store) List(ctx context.Context, ref Ref, generation int64, dir string) ([]FileInfo, error) {
	return s.repo.List(ctx, ref, generation, dir)
}

// Retain keeps a version from garbage collection until a time, or until the workspace is deleted. It may be repeated.
func (s *Store) Retain(ctx context.Context, ref Ref, generation int64, until time.Time) error {
	return s.repo.Retain(ctx, ref, generation, until)
}
