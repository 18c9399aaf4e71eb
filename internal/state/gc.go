package state

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
)

// Retention says which versions outlive their replacement; zero fields take the
// defaults. Pinned versions and the newest one are always kept.
type Retention struct {
	Newest int           // 20
	All    time.Duration // every version replaced less than this ago: 24 h
	Daily  int           // the last version of each of so many days: 7
}

// CollectOptions configures Collect; zero fields take the defaults.
type CollectOptions struct {
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

// Collected is what Collect did.
type Collected struct {
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

// Collect removes what no kept version of a tenant needs, in two phases: a run
// marks objects that are unreferenced and older than the grace time, and a run at
// least the grace time later removes those that still are. At last it copies what newest versions need
// of packs that are mostly unused, and commits where that is now, see Compaction. It may be interrupted
// anywhere and run again. Two runs at once do the same work twice and no harm.
func (s *Store) Collect(ctx context.Context, tenant string, opts CollectOptions) (Collected, error) {
	opts.Retention.Newest = cmp.Or(opts.Retention.Newest, 20)
	opts.Retention.All = cmp.Or(opts.Retention.All, 24*time.Hour)
	opts.Retention.Daily = cmp.Or(opts.Retention.Daily, 7)
	opts.Grace = cmp.Or(opts.Grace, 24*time.Hour)
	opts.Deleted = cmp.Or(opts.Deleted, 30*24*time.Hour)
	if !slug.MatchString(tenant) {
		return Collected{}, fmt.Errorf("tenant name %q is not a slug", tenant)
	}
	c := &collector{
		store: s, tenant: tenant, opts: opts, now: time.Now(), key: s.keys(tenant).currentID(),
		live: map[string]bool{}, candidates: map[string]int64{}, kept: map[string][]string{}, rest: map[string]int{},
		packs: map[objects.Digest]*liveBlobs{}, givenUp: map[string]bool{}, otherKey: map[string]bool{},
		out: Collected{OtherKeys: map[string]int{}},
	}
	if err := c.run(ctx); err != nil {
		return c.out, fmt.Errorf("collect %s: %w", tenant, err)
	}
	return c.out, nil
}

type collector struct {
	store      *Store
	tenant     string
	opts       CollectOptions
	now        time.Time
	live       map[string]bool     // keys
	candidates map[string]int64    // keys that nothing refers to, with their sizes
	kept       map[string][]string // by workspace: names of objects of Keep
	rest       map[string]int      // by workspace: objects beside HEAD and pins
	packs      map[objects.Digest]*liveBlobs
	givenUp    map[string]bool // keys of manifests that Repair has given up
	key        string          // id of the tenant's key
	otherKey   map[string]bool // keys of objects that are encrypted with another one
	out        Collected
}

func (c *collector) run(ctx context.Context) error {
	// Listed before HEADs are read: what is committed in between is younger than grace.
	stored, workspaces, err := c.list(ctx)
	if err != nil {
		return err
	}
	for _, ws := range workspaces {
		if err := c.workspace(ctx, Ref{c.tenant, ws}); err != nil {
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
	for info, err := range c.store.objects.List(ctx, c.tenant+"/", "") {
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
func (c *collector) workspace(ctx context.Context, ref Ref) error {
	c.out.Workspaces++
	h, etag, err := c.store.readHead(ctx, ref, "")
	if err != nil {
		return err
	}
	if etag != "" {
		c.needs(ref.headKey(), h.key)
	}
	if h.Deleted && h.key != c.key {
		return c.rekeyTombstone(ctx, ref, h, etag)
	}
	if h.Deleted && c.rest[ref.Workspace] == 0 {
		return c.purge(ctx, ref, h, etag)
	}
	if c.opts.Inactive > 0 && !h.Deleted && c.now.Sub(h.Time) > c.opts.Inactive {
		c.out.Inactive = append(c.out.Inactive, ref.Workspace)
		if !c.opts.DryRun {
			if err := c.store.Delete(ctx, ref); err != nil {
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

// markVersion marks a manifest and all that it needs.
func (c *collector) markVersion(ctx context.Context, ref Ref, k keptManifest) error {
	c.markManifest(ref, k.link, k.man, k.pinned)
	broken := false
	for _, l := range k.man.header.Chain {
		key := ref.manifestKey(l.Name)
		if c.givenUp[key] {
			broken = true
			continue
		}
		if c.live[key] && !k.pinned {
			continue
		}
		m, err := c.store.headerOf(ctx, ref, l.Name, &l.Digest)
		if err != nil {
			return err
		}
		c.markManifest(ref, l, m, k.pinned)
	}
	if broken {
		return nil
	}
	v, err := c.store.load(ctx, ref, k.link)
	if err != nil {
		return err
	}
	c.use(v.snap)
	return nil
}

func (c *collector) markManifest(ref Ref, l link, m *manifest, pinned bool) {
	key := ref.manifestKey(l.Name)
	c.live[key] = true
	c.needs(key, m.key)
	c.markPacks(m, pinned)
}

// needs notes the key of an object that is still read.
func (c *collector) needs(key, id string) {
	if id != c.key && !c.otherKey[key] {
		c.otherKey[key] = true
		c.out.OtherKeys[id]++
	}
}

type keptManifest struct {
	link   link
	man    *manifest
	pinned bool
}

// retained returns the versions to keep, after noting those that parents will
// no longer lead to. Pins of a life before born went with it.
func (c *collector) retained(ctx context.Context, ref Ref, born int64) ([]keptManifest, error) {
	var all []keptManifest
	err := c.store.walk(ctx, ref, func(l link, m *manifest) bool {
		all = append(all, keptManifest{link: l, man: m})
		c.needs(ref.manifestKey(l.Name), m.key) // also of one that is on its way out
		return true
	})
	if err != nil {
		return nil, err
	}
	p, etag, err := c.store.readPins(ctx, ref)
	if err != nil {
		return nil, err
	}
	if etag != "" {
		c.needs(ref.pinsKey(), p.key)
	}
	for _, g := range p.Lost {
		c.givenUp[ref.manifestKey(g.Name)] = true
	}
	var kept []keptManifest
	var orphans []link
	replaced := c.now
	days := map[string]bool{}
	gap := false
	for i, k := range all {
		h := k.man.header
		day := h.Time.Format(time.DateOnly)
		daily := !days[day] && c.now.Sub(h.Time) <= time.Duration(c.opts.Retention.Daily)*24*time.Hour
		pinned := slices.ContainsFunc(p.Pins, func(x pin) bool { return x.At == k.link })
		if i < c.opts.Retention.Newest || c.now.Sub(replaced) < c.opts.Retention.All || daily || pinned {
			k.pinned = pinned
			kept = append(kept, k)
			if gap && !pinned {
				orphans = append(orphans, k.link)
			}
		} else {
			gap = true
		}
		days[day] = true
		replaced = h.Time
	}
	lost := func(x pin) bool { return x.Generation < born }
	current := p.key == c.key || etag == ""
	if c.opts.DryRun || current && slices.Equal(orphans, p.Kept) && !slices.ContainsFunc(p.Pins, lost) {
		return kept, nil
	}
	return kept, c.store.changePins(ctx, ref, func(p *pins) {
		p.Kept, p.Pins = orphans, slices.DeleteFunc(p.Pins, lost)
	})
}

// marks is the object that one run leaves for a later one.
type marks struct {
	Time time.Time `json:"time"`
	Keys []string  `json:"keys"`
}

// sweep removes what an earlier run marked long enough ago and is still
// unreferenced, and marks the rest.
func (c *collector) sweep(ctx context.Context) error {
	pending := map[string]bool{}
	prefix := c.tenant + "/gc/"
	var runs []string
	for info, err := range c.store.objects.List(ctx, prefix, "") {
		if err != nil {
			return err
		}
		if info.Key != turnKey(c.tenant) {
			runs = append(runs, info.Key)
		}
	}
	for _, run := range runs {
		if err := c.sweepRun(ctx, run, pending); err != nil {
			return err
		}
	}
	var fresh []string
	for key := range c.candidates {
		if !pending[key] {
			fresh = append(fresh, key)
		}
	}
	c.out.Marked = len(fresh) + len(pending)
	if len(fresh) == 0 || c.opts.DryRun {
		return nil
	}
	slices.Sort(fresh)
	data, err := json.Marshal(marks{c.now.UTC(), fresh})
	if err != nil {
		return err
	}
	key := prefix + fmt.Sprintf("%012d-%s", c.now.Unix(), strings.ToLower(newCommitID()))
	return c.store.objects.Put(ctx, key, data, objects.Sum(data))
}

func (c *collector) sweepRun(ctx context.Context, run string, pending map[string]bool) error {
	obj, err := c.store.objects.Get(ctx, run, objects.GetOptions{})
	if errors.Is(err, ErrNotFound) {
		return nil // another run at the same time has done it
	}
	if err != nil {
		return err
	}
	var m marks
	if err := json.Unmarshal(obj.Data, &m); err != nil { // nobody knows what was marked: it is marked again
		c.store.opts.Log.WarnContext(ctx, "marks of a collection are damaged and count for nothing", "key", run, "error", err)
		if c.opts.DryRun {
			return nil
		}
		return c.store.objects.Delete(ctx, run)
	}
	ripe := c.now.Sub(m.Time) >= c.opts.Grace
	var remove []string
	for _, key := range m.Keys {
		size, still := c.candidates[key]
		switch {
		case !still: // referred to again, or gone
		case ripe:
			remove = append(remove, key)
			c.out.Bytes += size
			delete(c.candidates, key)
		default:
			pending[key] = true
		}
	}
	if !ripe || c.opts.DryRun {
		return nil
	}
	// Manifests first: none may be left that refers to a pack that is gone.
	slices.SortStableFunc(remove, func(a, b string) int {
		return cmp.Compare(boolInt(strings.HasPrefix(a, c.tenant+"/p/")), boolInt(strings.HasPrefix(b, c.tenant+"/p/")))
	})
	c.out.Removed += len(remove)
	return c.store.objects.Delete(ctx, append(remove, run)...)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
