package maintenance

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/repo"
)

// Retention says which versions outlive their replacement; zero fields take the
// defaults. Pinned versions and the newest one are always kept.
type Retention struct {
	Newest int           // 20
	All    time.Duration // every version replaced less than this ago: 24 h
	Daily  int           // the last version of each of so many days: 7
}

// GCOptions configures Collect; zero fields take the defaults.
type GCOptions struct {
	Retention Retention
	// Grace must exceed twice the longest task: 24 h. What a commit under way
	// may refer to is younger than that, or was referred to that long ago.
	Grace time.Duration
	// Deleted is how long the name of a deleted workspace is remembered, for late commits to be refused:
	// 30 days, negative: for ever. It must exceed the time for which anybody remembers generations.
	Deleted time.Duration
	// Inactive deletes workspaces without a commit for so long; 0: never.
	Inactive time.Duration
	DryRun   bool // report, change nothing
}

// GCResult is what Collect did.
type GCResult struct {
	Workspaces int      // looked at
	Inactive   []string // deleted
	Purged     []string // deleted long ago: forgotten
	Marked     int      // objects that the next run after the grace time may remove
	Removed    int      // objects removed
	Bytes      int64    // of them
	Emptied    int      // packs of which little was needed: newest versions no longer need them

	// OtherKeys counts the objects that are still needed, as they were found, and have another key than the
	// tenant's of today: by KeyID, in the clear "". A secret whose key is not here can be destroyed.
	OtherKeys map[string]int
}

// CollectGarbage removes what no kept version of a tenant needs, in two phases: a run
// marks objects that are unreferenced and older than the grace time, and a run at
// least the grace time later removes those that still are. At last it copies what newest versions need
// of packs that are mostly unused, and commits where that is now, see Compaction. It may be interrupted
// anywhere and run again. Two runs at once do the same work twice and no harm.
func CollectGarbage(ctx context.Context, r *repo.Repo, tenant string, opts GCOptions) (GCResult, error) {
	opts.Retention.Newest = cmp.Or(opts.Retention.Newest, 20)
	opts.Retention.All = cmp.Or(opts.Retention.All, 24*time.Hour)
	opts.Retention.Daily = cmp.Or(opts.Retention.Daily, 7)
	opts.Grace = cmp.Or(opts.Grace, 24*time.Hour)
	opts.Deleted = cmp.Or(opts.Deleted, 30*24*time.Hour)
	if !names.IsSlug(tenant) {
		return GCResult{}, fmt.Errorf("tenant name %q is not a slug", tenant)
	}
	c := &collector{
		repo: r, tenant: tenant, opts: opts, now: time.Now(), key: r.Keys(tenant).CurrentID(),
		live: map[string]bool{}, candidates: map[string]int64{}, kept: map[string][]string{}, rest: map[string]int{},
		packs: map[objects.Digest]*liveBlobs{}, lost: map[string]bool{}, otherKey: map[string]bool{},
		out: GCResult{OtherKeys: map[string]int{}},
	}
	if err := c.run(ctx); err != nil {
		return c.out, fmt.Errorf("collect %s: %w", tenant, err)
	}
	return c.out, nil
}

type collector struct {
	repo       *repo.Repo
	tenant     string
	opts       GCOptions
	now        time.Time
	live       map[string]bool     // keys
	candidates map[string]int64    // keys that nothing refers to, with their sizes
	kept       map[string][]string // by workspace: names of objects of Keep
	rest       map[string]int      // by workspace: objects beside HEAD and pins
	packs      map[objects.Digest]*liveBlobs
	lost       map[string]bool // keys of manifests that Repair has given up
	key        string          // id of the tenant's key
	otherKey   map[string]bool // keys of objects that are encrypted with another one
	out        GCResult
}

func (c *collector) run(ctx context.Context) error {
	// Listed before HEADs are read: what is committed in between is younger than grace.
	stored, workspaces, err := c.list(ctx)
	if err != nil {
		return err
	}
	for _, ws := range workspaces {
		if err := c.workspace(ctx, format.Ref{Tenant: c.tenant, Workspace: ws}); err != nil {
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
	return c.empty(ctx, workspaces)
}

// list returns the collectable objects, and the workspaces.
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
			c.rest[parts[2]]++
		case len(parts) == 5 && parts[1] == "w" && parts[3] == "k":
			stored = append(stored, info)
			c.rest[parts[2]]++
			c.kept[parts[2]] = append(c.kept[parts[2]], parts[4])
		case len(parts) == 4 && parts[1] == "w" && parts[3] == "HEAD":
			workspaces = append(workspaces, parts[2])
		}
	}
	return stored, workspaces, nil
}

// workspace marks everything that its kept versions need as live.
func (c *collector) workspace(ctx context.Context, ref format.Ref) error {
	c.out.Workspaces++
	h, etag, err := c.repo.ReadHead(ctx, ref, "")
	if err != nil {
		return err
	}
	if etag != "" {
		c.needs(ref.HeadKey(), h.Key)
	}
	if h.Deleted && h.Key != c.key {
		return c.rekeyTombstone(ctx, ref, h, etag)
	}
	if h.Deleted && c.rest[ref.Workspace] == 0 {
		return c.purge(ctx, ref, h, etag)
	}
	if c.opts.Inactive > 0 && !h.Deleted && c.now.Sub(h.Time) > c.opts.Inactive {
		c.out.Inactive = append(c.out.Inactive, ref.Workspace)
		if !c.opts.DryRun {
			if err := history.Delete(ctx, c.repo, ref); err != nil {
				return err
			}
		}
	}
	born := h.Born
	if h.Deleted {
		born = h.Generation + 1
	}
	kept, err := c.retained(ctx, ref, born)
	if err != nil {
		return err
	}
	for _, k := range kept {
		if err := c.markVersion(ctx, ref, k); err != nil {
			return err
		}
	}
	return c.markKept(ctx, ref, h)
}
