package state

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
)

// RepairOptions says how much Repair reads.
type RepairOptions struct {
	ReadData bool // verify all content, not only of packs that are missing or have another size
	DryRun   bool // report, change nothing
}

// LostPath is a path whose content is gone.
type LostPath struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	Older int64  `json:"older,omitempty"` // the newest generation that has it in a form that can be read; 0: none
}

// Repaired is what Repair found and did.
type Repaired struct {
	Commit    Commit     // NoChange: the newest version could be read as it was
	Problems  []string   // damaged objects
	Lost      []LostPath // the new version is without them
	Unknown   []int64    // generations that are lost, and with them what only they changed
	Recovered []string   // files of content that no name is known for
}

// Repair makes the newest version of a workspace readable when objects of it are lost or damaged, as a
// new commit that has all that is still there:
//
//   - HEAD is lost: the newest manifest that has all of its packs takes its place.
//   - Manifests are lost: the version is put together from the newest one that can be read and the deltas
//     after it. What only a lost manifest named is content without a name: it is found by the indexes
//     of packs, and becomes a file in recovered/ (a large one in pieces).
//   - Packs are lost or damaged: content that other packs have too, or that can still be read, is used.
//     Files without theirs are left out and named.
//
// The history passes over versions that cannot be read. Nothing is removed or overwritten but HEAD and the pins, by a
// swap, so Repair may be interrupted anywhere and run again. A workspace that is well stays as it is.
func (s *Store) Repair(ctx context.Context, ref Ref, opts RepairOptions) (Repaired, error) {
	if err := ref.check(); err != nil {
		return Repaired{}, err
	}
	r := &repairer{store: s.fresh(), ref: ref, opts: opts, man: map[string]*named{}, bad: map[string]bool{}, known: map[int64]string{}}
	if err := r.run(ctx); err != nil {
		return r.out, fmt.Errorf("repair %s: %w", ref, err)
	}
	return r.out, nil
}

type repairer struct {
	store *Store
	ref   Ref
	opts  RepairOptions
	out   Repaired

	head    head
	etag    string
	headBad bool              // missing or damaged
	names   []string          // of manifests in the store, oldest first
	man     map[string]*named // those that can be read
	bad     map[string]bool   // those that cannot
	known   map[int64]string  // names of manifests that others refer to, by generation
	line    []step            // newest first
	base    *loaded           // the newest version of the line that can be read; nil: none
	at      int               // of base in the line
	tree    map[string]*entry
	packs   *inspector
	fold    *fold // of damaged packs
}

// step is one manifest of the history, which may be unreadable.
type step struct {
	name string
	*named
}

func (r *repairer) run(ctx context.Context) error {
	for _, part := range []func(context.Context) error{r.survey, r.readTree, r.readContent, r.findUnnamed} {
		if err := part(ctx); err != nil {
			return err
		}
		if r.head.Deleted || len(r.line) == 0 && !r.headBad { // there is nothing to repair
			r.out.Commit.NoChange = true
			return nil
		}
	}
	if err := r.commit(ctx); err != nil || r.opts.DryRun {
		return err
	}
	return r.bridge(ctx)
}

// survey reads HEAD and all manifests, and puts them in order.
func (r *repairer) survey(ctx context.Context) (err error) {
	if r.packs, err = r.store.newInspector(ctx, r.ref.Tenant); err != nil {
		return err
	}
	prefix := r.ref.key("m/")
	for info, err := range r.store.objects.List(ctx, prefix, "") {
		if err != nil {
			return err
		}
		name := info.Key[len(prefix):]
		r.names = append(r.names, name)
		found, err := r.store.readNamed(ctx, r.ref, name)
		switch {
		case isDamage(err):
			r.bad[name] = true
			r.out.Problems = append(r.out.Problems, err.Error())
		case err != nil:
			return err
		default:
			r.man[name] = found
		}
	}
	if err := r.readHead(ctx); err != nil {
		return err
	}
	r.follow()
	return nil
}

func (r *repairer) readHead(ctx context.Context) error {
	obj, err := r.store.objects.Get(ctx, r.ref.headKey(), objects.GetOptions{})
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if err == nil {
		r.etag = obj.ETag
		if r.head, err = r.store.openHead(r.ref, obj.Data); err == nil || !isDamage(err) {
			return err
		}
	} else if len(r.names) == 0 {
		return nil // a workspace that never was, or is forgotten
	}
	r.headBad = true
	r.out.Problems = append(r.out.Problems, r.ref.headKey()+": "+err.Error())
	r.head = head{Format: headFormat, Born: 1}
	for _, name := range r.names {
		r.head.Generation = max(r.head.Generation, link{Name: name}.generation())
	}
	f, _, err := r.store.readFloor(ctx, r.ref.Tenant)
	r.head.Generation = max(r.head.Generation, f.Generation)
	return err
}

// follow finds the line of manifests that led to the newest version, also past those that cannot be read.
func (r *repairer) follow() {
	name := ""
	for _, t := range r.head.Recent {
		r.known[t.Generation] = t.manifest()
	}
	if r.head.Manifest != nil {
		name = r.head.Manifest.Name
	} else if r.headBad {
		name = r.newest()
	}
	for name != "" {
		s := step{name, r.man[name]}
		r.line = append(r.line, s)
		if s.named == nil {
			name = r.before(link{Name: name}.generation())
			continue
		}
		for _, l := range s.man.header.Chain {
			r.known[l.generation()] = l.Name
		}
		name = ""
		if p := s.man.header.Parent; p != nil && p.generation() < s.link.generation() {
			name = p.Name
		}
	}
	for last := len(r.line) - 1; last > 0 && r.line[last].named == nil && !r.bad[r.line[last].name] && !r.inChain(r.line[last].name); last-- {
		r.line = r.line[:last] // what was collected
	}
}

// newest is the last manifest that can be read and has all of its own packs, or else that can be read.
func (r *repairer) newest() string {
	best := ""
	for _, name := range slices.Backward(r.names) {
		if r.man[name] == nil {
			continue
		}
		if best == "" {
			best = name
		}
		if !slices.ContainsFunc(r.man[name].man.header.Packs, func(p wirePack) bool { return r.packs.listed[p.ID].Size != p.Size }) {
			return name
		}
	}
	return best
}

// before is the name of the manifest of the generation before, or of the newest one that can be read and is older.
func (r *repairer) before(generation int64) string {
	if name := r.known[generation-1]; name != "" {
		return name
	}
	for _, name := range slices.Backward(r.names) {
		if r.man[name] != nil && (link{Name: name}).generation() < generation {
			return name
		}
	}
	return ""
}

// commit makes what was found the newest version, unless that is what is there.
func (r *repairer) commit(ctx context.Context) error {
	on := &version{head: r.head, etag: r.etag, snap: emptySnapshot, at: time.Now()}
	if r.base != nil {
		on.snap, on.man, on.size = r.base.snap, r.base.man, r.base.size
		on.head.Manifest = &r.line[r.at].link
	}
	if r.headBad {
		r.restoreHead(&on.head)
	}
	target, err := r.snapshot(ctx)
	if err != nil {
		return err
	}
	changes := on.snap.diff(target)
	if !r.headBad && r.at == 0 && r.base != nil && len(changes) == 0 && len(r.fold.to) == 0 {
		r.out.Commit = Commit{Generation: r.head.Generation, ID: r.head.Commit, Time: r.head.Time, NoChange: true}
		return nil
	}
	if r.opts.DryRun {
		r.out.Commit = Commit{Generation: on.head.Generation + 1, Changed: changedPaths(changes)}
		return nil
	}
	p := &proposal{
		store: r.store, ref: r.ref, change: Change{Message: "repair"}, upload: &upload{changes: changes},
		base: on, on: on, id: newCommitID(), fold: r.fold, full: true,
	}
	defer func() { _ = r.fold.stored() }()
	r.out.Commit, _, err = p.run(ctx)
	return err
}

// restoreHead fills a head that was lost with what manifests tell.
func (r *repairer) restoreHead(h *head) {
	for _, s := range slices.Backward(r.line) {
		if s.named == nil {
			continue
		}
		m := s.man.header
		if m.Parent == nil {
			h.Born = m.Generation
		}
		if m.TaskID != "" {
			h.Recent = append(h.Recent, recent{m.TaskID, m.Generation, manifestDigits(s.link.Digest), m.Time.Unix()})
		}
	}
	if r.base != nil {
		h.Time = r.base.man.header.Time
	}
}

// bridge has the history pass over manifests that cannot be read.
func (r *repairer) bridge(ctx context.Context) error {
	p, _, err := r.store.readPins(ctx, r.ref)
	if err != nil && !isDamage(err) {
		return err
	}
	if err != nil {
		r.out.Problems = append(r.out.Problems, err.Error()+" (the names of pins are lost)")
		obj, err := r.store.objects.Get(ctx, r.ref.pinsKey(), objects.GetOptions{})
		if err != nil {
			return err
		}
		if err = r.store.swapPins(ctx, r.ref, obj.ETag, pins{}); err != nil {
			return err
		}
	}
	gaps := r.gaps(p)
	if len(gaps) == 0 {
		return nil
	}
	return r.store.changePins(ctx, r.ref, func(p *pins) {
		p.Lost = slices.DeleteFunc(p.Lost, func(g gap) bool {
			return slices.ContainsFunc(gaps, func(x gap) bool { return x.Name == g.Name })
		})
		p.Lost = append(gaps, p.Lost...)
		p.Lost = p.Lost[:min(len(p.Lost), maxGaps)]
	})
}

// gaps are the manifests of the line that cannot be read, but for those that retention has dropped.
func (r *repairer) gaps(p pins) []gap {
	var gaps []gap
	for i, s := range r.line {
		if s.named != nil {
			continue
		}
		if i > r.at && !r.bad[s.name] && len(p.older(link{Name: s.name}.generation())) > 0 && !r.inChain(s.name) {
			continue
		}
		g := gap{Name: s.name}
		for _, older := range r.line[i:] {
			if older.named != nil {
				g.Before = &older.link
				break
			}
		}
		if old := p.lost(s.name); old == nil || (old.Before == nil) != (g.Before == nil) || g.Before != nil && *g.Before != *old.Before {
			gaps = append(gaps, g)
		}
	}
	for _, l := range p.older(math.MaxInt64) {
		if r.man[l.Name] == nil && p.lost(l.Name) == nil && !slices.ContainsFunc(gaps, func(g gap) bool { return g.Name == l.Name }) {
			gaps = append(gaps, gap{Name: l.Name})
		}
	}
	return gaps
}

// inChain reports whether a version that can be read names a manifest as one that it builds on.
func (r *repairer) inChain(name string) bool {
	return slices.ContainsFunc(r.line, func(s step) bool {
		return s.named != nil && slices.ContainsFunc(s.man.header.Chain, func(l link) bool { return l.Name == name })
	})
}
