package maintenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/repo"
)

// Retention says which versions garbage collection keeps. The newest version, pinned versions and retained ones are
// always kept.
type Retention struct {
	Newest int           // the number of newest versions that are kept; the default is 20
	All    time.Duration // versions that were replaced less than this ago are kept; the default is 24 h
	Daily  int           // the number of days of which the last version is kept; the default is 7
}

// GCOptions configures CollectGarbage.
type GCOptions struct {
	Retention Retention
	// Grace is the minimal age of a removed object, and the minimal time between its mark and its removal. The default
	// is 24 h. It must exceed twice the longest task, because commits may refer to objects of that age.
	Grace time.Duration
	// Deleted is how long a deleted workspace's HEAD is kept, so that late commits fail. The default is 30 days; a
	// negative value means for ever. It must exceed the time for which clients remember generations.
	Deleted time.Duration
	// Inactive is how long a workspace may go without a commit before it is deleted. 0 means for ever.
	Inactive time.Duration
	DryRun   bool // report, but change nothing
}

// GCResult is what CollectGarbage did.
type GCResult struct {
	Workspaces int      // visited
	Inactive   []string // workspaces that were deleted because they were inactive
	Purged     []string // workspaces whose HEAD was removed, long after their deletion
	Marked     int      // objects that a run after the grace time may remove
	Removed    int      // objects
	Bytes      int64    // bytes of removed objects
	Compacted  int      // packs whose needed content was copied to new ones

	// OtherKeys counts the objects in use that are not encrypted with the tenant's current key, by the id of their
	// key, which is empty for unencrypted objects. A secret whose key id is not listed can be destroyed.
	OtherKeys map[string]int
}

// CollectGarbage removes the objects of a tenant that no kept version needs, in two phases: a run marks objects that
// are unreferenced and older than the grace time, and a run at least the grace time later removes the marked objects
// that are still unreferenced. Then it compacts packs that are mostly unused, see repo.Compaction. It may be
// interrupted at any time and run again. Concurrent runs are safe, but repeat each other's work. CollectGarbage removes
// nothing if the HEAD of a workspace is damaged or lost, except that it may take the only version of a workspace
// without HEAD for that of a commit that failed (see repo.Repo.FloorWithoutHead).
func CollectGarbage(ctx context.Context, r *repo.Repo, tenant string, opts GCOptions) (GCResult, error) {
	opts.Retention.Newest = cmp.Or(opts.Retention.Newest, 20)
	opts.Retention.All = cmp.Or(opts.Retention.All, 24*time.Hour)
	opts.Retention.Daily = cmp.Or(opts.Retention.Daily, 7)
	opts.Grace = cmp.Or(opts.Grace, 24*time.Hour)
	opts.Deleted = cmp.Or(opts.Deleted, 30*24*time.Hour)
	if err := names.Check("tenant", tenant); err != nil {
		return GCResult{}, err
	}
	c := &collector{
		repo: r, tenant: tenant, opts: opts, now: time.Now(), keyID: r.Keys(tenant).CurrentID(),
		live: map[string]bool{}, candidates: map[string]int64{},
		retained: map[string][]string{}, remaining: map[string]int{},
		packs: map[objects.Digest]*liveBlobs{}, lost: map[string]bool{}, otherKey: map[string]bool{},
		out: GCResult{OtherKeys: map[string]int{}},
	}
	if err := c.run(ctx); err != nil {
		return c.out, fmt.Errorf("collect garbage of %s: %w", tenant, err)
	}
	return c.out, nil
}

// collector is one run of CollectGarbage.
type collector struct {
	repo       *repo.Repo
	tenant     string
	opts       GCOptions
	now        time.Time
	live       map[string]bool     // keys of objects that are needed
	candidates map[string]int64    // sizes of unreferenced objects, by key
	retained   map[string][]string // names of a workspace's objects below k/, by workspace
	remaining  map[string]int      // number of a workspace's manifests and retained objects, by workspace
	packs      map[objects.Digest]*liveBlobs
	lost       map[string]bool // keys of manifests that a repair could not read
	keyID      string          // id of the tenant's current encryption key
	otherKey   map[string]bool // needed objects that are not encrypted with the current key, by their object keys
	out        GCResult
}

func (c *collector) run(ctx context.Context) error {
	// Objects are listed before HEADs are read. Objects that are stored in between are younger than the grace time.
	stored, workspaces, err := c.list(ctx)
	if err != nil {
		return err
	}
	headless := maps.Clone(c.remaining)
	for _, ws := range workspaces {
		delete(headless, ws)
	}
	for ws := range headless {
		// Without HEAD nothing is marked: the run would remove what a repair needs.
		if _, err := c.repo.FloorWithoutHead(ctx, format.Ref{Tenant: c.tenant, Workspace: ws}); err != nil {
			return err
		}
	}
	for _, ws := range workspaces {
		if err := c.markWorkspace(ctx, format.Ref{Tenant: c.tenant, Workspace: ws}); err != nil {
			return err
		}
	}
	for _, o := range stored {
		if !c.live[o.Key] && c.now.Sub(o.Modified) >= c.opts.Grace {
			c.candidates[o.Key] = o.Size
		}
	}
	if err := c.sweep(ctx); err != nil {
		return err
	}
	return c.compact(ctx, workspaces)
}

// list returns the objects that may be removed, and the names of the workspaces. It sets c.remaining and c.retained.
func (c *collector) list(ctx context.Context) (stored []objects.ObjectInfo, workspaces []string, err error) {
	for info, err := range c.repo.Bucket.List(ctx, c.tenant+"/", "") {
		if err != nil {
			return nil, nil, err
		}
		parts := strings.Split(info.Key, "/")
		switch {
		case len(parts) == 4 && parts[1] == "p":
			stored = append(stored, info)
		case len(parts) == 5 && parts[1] == "w" && parts[3] == "m":
			stored = append(stored, info)
			c.remaining[parts[2]]++
		case len(parts) == 5 && parts[1] == "w" && parts[3] == "k":
			stored = append(stored, info)
			c.remaining[parts[2]]++
			c.retained[parts[2]] = append(c.retained[parts[2]], parts[4])
		case len(parts) == 4 && parts[1] == "w" && parts[3] == "HEAD":
			workspaces = append(workspaces, parts[2])
		}
	}
	return stored, workspaces, nil
}

// markWorkspace marks what a workspace's kept versions need. It first folds HEAD. It deletes an inactive workspace,
// purges a workspace that was deleted long ago, and encrypts the HEAD of a deleted workspace with the current key.
func (c *collector) markWorkspace(ctx context.Context, ref format.Ref) error {
	c.out.Workspaces++
	h, etag, err := c.repo.ReadHead(ctx, ref, "")
	if err == nil && len(h.Carried) > 0 && !c.opts.DryRun {
		if err = c.repo.Fold(ctx, ref); err == nil {
			h, etag, err = c.repo.ReadHead(ctx, ref, "")
		}
	}
	if err != nil {
		return err
	}
	if etag != "" {
		c.countOtherKey(ref.HeadKey(), h.Key)
	}
	if h.Deleted && h.Key != c.keyID {
		return c.rekeyTombstone(ctx, ref, h, etag)
	}
	if h.Deleted && c.remaining[ref.Workspace] == 0 {
		return c.purge(ctx, ref, h, etag)
	}
	if c.opts.Inactive > 0 && !h.Deleted && c.now.Sub(h.Time) > c.opts.Inactive {
		if err := c.deleteInactive(ctx, ref, h); err != nil {
			return err
		}
	}
	born := h.Born
	if h.Deleted {
		born = h.Generation + 1
	}
	if err := c.markVersions(ctx, ref, born); err != nil {
		return err
	}
	return c.markRetained(ctx, ref, h)
}

// deleteInactive deletes a workspace with the HEAD h, unless a task has committed since h was read.
func (c *collector) deleteInactive(ctx context.Context, ref format.Ref, h format.Head) error {
	if !c.opts.DryRun {
		err := history.DeleteUnchanged(ctx, c.repo, ref, h.Commit)
		if errors.Is(err, objects.ErrConflict) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	c.out.Inactive = append(c.out.Inactive, ref.Workspace)
	return nil
}
