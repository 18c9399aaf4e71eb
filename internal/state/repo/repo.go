package repo

import (
	"errors"
	"log/slog"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/content"
	"github.com/codefleet/codefleet/internal/state/format"
)

// Options configures a Repo.
type Options struct {
	CacheDir   string              // directory for cached packs and manifests; empty means no disk cache
	CacheBytes int64               // limit of CacheDir; the default is 2 GiB
	Quota      format.Quota        // quota of each workspace
	Reserved   []string            // top-level names that no version may have
	StateFile  string              // the default state document, whose changes are merged by top-level keys
	Retry      objects.RetryPolicy // for requests to the object store
	Compaction Compaction
	Secrets    func(tenant string) format.Secrets // nil means no encryption
	// Carry reports whether HEAD may carry small commits of trees. It must return false unless all processes that use
	// the object store can read such HEADs. Nil means never. See also Repo.StartFolding.
	Carry func() bool
	Log   *slog.Logger
}

// Repo gives access to the workspaces in one object store. It is safe for concurrent use.
type Repo struct {
	*content.Store
	Options Options // with defaults; read-only

	carrier  *carrier // the same as Bucket
	folder   *folder  // nil unless StartFolding was called
	versions versionCache
	absent   absences
	onCommit []func(format.Ref)
}

// New returns a Repo on bucket. It sends no request.
func New(bucket objects.Objects, o Options) *Repo {
	o.Quota, o.Retry, o.Compaction = o.Quota.WithDefaults(), o.Retry.WithDefaults(), o.Compaction.orDefaults()
	c := content.New(objects.WithRetry(bucket, o.Retry), content.Options{
		CacheDir: o.CacheDir, CacheBytes: o.CacheBytes, Secrets: o.Secrets, Log: o.Log,
	})
	r := &Repo{Store: c, Options: o}
	r.readCarried(c.Bucket)
	return r
}

// Fresh returns a Repo without cached data, so that it reads what the object store holds.
func (r *Repo) Fresh() *Repo {
	fresh := &Repo{Store: r.Uncached(), Options: r.Options, onCommit: r.onCommit}
	fresh.readCarried(r.carrier.Objects)
	return fresh
}

// Subscribe makes r call fn with the workspace after each commit and deletion. fn must not block. Call Subscribe before
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

// ErrFenced is returned when a late run of a task that has ended tries to commit, see Repo.Fence.
var ErrFenced = errors.New("the task has ended without this run")
