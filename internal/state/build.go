package state

import (
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
)

// build makes the manifest and the head of the next generation.
func (p *proposal) build() (*head, *manifest, []byte, error) {
	changes, moved := p.fold.onto(p.on.snap, p.changes)
	snap, err := p.on.snap.apply(changes)
	if err != nil {
		return nil, nil, nil, err
	}
	if p.merged || p.unchecked {
		if err := p.store.opts.Quota.checkSnapshot(snap); err != nil {
			return nil, nil, nil, err
		}
	}
	now := time.Now().UTC()
	man := &manifest{changes: changes, result: p.upload.result, header: header{
		Generation: p.on.head.Generation + 1, Commit: p.id, Time: now,
		TaskID: p.change.TaskID, Attempt: p.change.Attempt, Message: p.change.Message,
		Conflicts: p.conflicts, Files: snap.files, Bytes: snap.bytes,
	}}
	if len(p.upload.result) == 0 {
		man.header.Result = p.change.Result
	}
	if moved > 0 {
		man.header.Moved, man.header.Changed = moved, changedPaths(p.changes)
	}
	man.extend(p.on, snap, p.full)
	data, err := p.store.codec.encodeManifest(man)
	if err != nil {
		return nil, nil, nil, err
	}
	keys := p.store.keys(p.ref.Tenant)
	data, man.key = keys.lock(p.ref.manifestThing(), data), keys.currentID()
	digest := objects.Sum(data)
	name := manifestName(man.header.Generation, manifestDigits(digest))
	p.store.versions.put(p.ref.manifestKey(name), &loaded{man, snap, int64(len(data))})
	p.snap = snap
	next := p.on.head.next(man.header, link{name, digest})
	next.Files, next.Bytes = snap.files, snap.bytes
	return next, man, data, nil
}

// extend links a manifest to the version before it, as a delta unless the chain
// of deltas is long and large, or it is to be full.
func (m *manifest) extend(on *version, snap *snapshot, whole bool) {
	if on.man == nil { // the first one, or the first after a tombstone
		m.changes = everything(snap)
		return
	}
	parent := *on.head.Manifest
	m.header.Parent = &parent
	prev := on.man.header
	chain := append(slices.Clone(prev.Chain), parent)
	full, deltas := prev.FullBytes, prev.ChainBytes
	if on.man.full() {
		full = on.size
	} else {
		deltas += on.size
	}
	if whole || len(chain) > chainMost || len(chain) >= chainLeast && deltas >= full/4 {
		if m.header.Moved == 0 {
			m.header.Changed = changedPaths(m.changes)
		}
		m.header.Moved = 0
		m.changes = everything(snap)
		return
	}
	m.header.Chain, m.header.FullBytes, m.header.ChainBytes = chain, full, deltas
}

func everything(snap *snapshot) []change {
	changes := make([]change, len(snap.entries))
	for i, e := range snap.entries {
		changes[i] = change{e.Path, e}
	}
	return changes
}

// next returns the head that follows h.
func (h *head) next(m header, l link) *head {
	next := &head{
		Generation: m.Generation, Commit: m.Commit, Manifest: &l, Time: m.Time, Born: h.Born,
		Recent: slices.Clone(h.Recent), Floor: h.Floor, FloorTime: h.FloorTime,
	}
	if h.Deleted {
		next.Born = m.Generation
	}
	if m.TaskID != "" {
		next.Recent = append(next.Recent, recent{m.TaskID, m.Generation, l.digits(), m.Time.Unix()})
	}
	return next
}
