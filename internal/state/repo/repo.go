package repo

import (
	"errors"
	"log/slog"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/content"
	"github.com/codefleet/codefleet/internal/state/format"
)

// Options configures a Repo; zero fields take the defaults.
type Options struct {
	CacheDir   string              // worker-local cache of packs and manifests; empty: memory only
	CacheBytes int64               // limit of CacheDir in bytes, 0: 2 GiB
	Quota      format.Quota        // of each workspace
	Reserved   []string            // top-level names that no version may have
	Retry      objects.RetryPolicy // of requests to the object store
	Compaction Compaction
	Secrets    func(tenant string) format.Secrets // nil: nothing is encrypted
	Log        *slog.Logger
}

// Repo is the workspaces of one object store. It is safe for concurrent use.
type Repo struct {
	*content.Store
	Options Options // with defaults; read only

	versions versionCache
	onCommit []func(format.Ref)
}

// New returns a Repo on bucket. It makes no request.
func New(bucket objects.Objects, o Options) *Repo {
	o.Quota, o.Retry, o.Compaction = o.Quota.WithDefaults(), o.Retry.WithDefaults(), o.Compaction.orDefaults()
	c := content.New(objects.WithRetry(bucket, o.Retry), content.Options{
		CacheDir: o.CacheDir, CacheBytes: o.CacheBytes, Secrets: o.Secrets, Log: o.Log,
	})
	return &Repo{Store: c, Options: o}
}

// Fresh returns a Repo that has nothing cached, to see what the object store holds.
func (r *Repo) Fresh() *Repo {
	return &Repo{Store: r.Uncached(), Options: r.Options, onCommit: r.onCommit}
}

// Subscribe has fn called after each commit and deletion by r, with the workspace. fn must not block. Call it before
// other methods.
func (r *Repo) Subscribe(fn func(format.Ref)) { r.onCommit = append(r.onCommit, fn) }

// Notify calls the subscribers.
func (r *Repo) Notify(ref format.Ref) {
	for _, fn := range r.onCommit {
		fn(ref)
	}
}

// ErrDeleted is returned when the version that a commit builds on was deleted with its workspace.
var ErrDeleted = errors.New("workspace was deleted")

// ErrFenced is returned when a task that has ended tries to commit: see Repo.Fence.
var ErrFenced = errors.New("the task has ended without this run")
