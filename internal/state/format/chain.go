package format

import (
	"encoding/json"
	"maps"
	"slices"
)

// The manifests of a chain become shorter from the first, which is full, to the last. If the last layerWidth-1
// manifests of the chain are not of a larger size class than a new delta, the delta replaces them: it repeats their
// lines. So every line is written only a few times, and a chain has only a few manifests, however long the history is.
const (
	layerWidth = 4  // also the ratio of the sizes of consecutive classes
	minDeltas  = 16 // with fewer lines in all deltas of a chain, no full manifest is due
	chainMax   = 64 // manifests
)

// ancestorStep is the base of the generations in Header.Ancestors, which are multiples of its powers.
const (
	ancestorStep = 16
	maxAncestors = 12
)

// Extend makes m, whose version has the entries of set, the successor of prev. prev is nil for the first version of a
// workspace and for the first version after a deletion. m becomes a full manifest if prev is nil, full is true, the
// chain is too long, its deltas have as many lines as its full manifest, or its paths are unknown (see Attach).
// Otherwise m becomes a delta.
func (m *Manifest) Extend(prev *Manifest, prevRef *ManifestRef, set *EntrySet, full bool) {
	if prev == nil {
		m.Changes = EmptySet.Diff(set)
		return
	}
	parent := *prevRef
	m.Header.Parent, m.Header.Ancestors = &parent, prev.Header.ancestorsOfNext(parent)
	changed := m.Header.Changed
	if m.Header.Repeated == 0 {
		changed = ChangedPaths(m.Changes)
	}
	chain, below := prev.chainOfNext(parent)
	keep := keptLayers(chain, len(m.Changes))
	if full || keep == 0 || len(below) != len(chain)-1 {
		m.Header.Repeated = 0
		m.Header.setChanged(changed)
		m.Changes = EmptySet.Diff(set)
		return
	}
	m.repeat(below[keep-1:], set)
	if m.Header.Repeated > 0 {
		m.Header.setChanged(changed)
	}
	m.Header.Chain, m.below = chain[:keep:keep], below[:keep-1:keep-1]
}

// setChanged sets Changed, or ManyChanged if the paths are too many.
func (h *Header) setChanged(paths []string) {
	const longest = len(`\u0000`) // the most bytes that a byte of a path takes in JSON
	size := 0
	for _, p := range paths {
		size += len(`,""`) + longest*len(p)
	}
	if size > maxChanged {
		text, err := json.Marshal(paths)
		if err != nil || len(text) > maxChanged {
			h.Changed, h.ManyChanged = nil, true
			return
		}
	}
	h.Changed, h.ManyChanged = paths, false
}

// chainOfNext returns the longest chain that the next manifest can have, and the paths in each of the chain's manifests
// after the first. at refers to m.
func (m *Manifest) chainOfNext(at ManifestRef) ([]Layer, [][]string) {
	chain := append(slices.Clone(m.Header.Chain), Layer{at, m.Header.Lines})
	if m.IsFull() {
		return chain, nil
	}
	return chain, append(slices.Clone(m.below), ChangedPaths(m.Changes))
}

// keptLayers returns how many manifests of a chain a delta of n lines builds on; the delta replaces the others. 0 means
// that a full manifest is due.
func keptLayers(chain []Layer, n int) int {
	lines := n
	for _, l := range chain[1:] {
		lines += l.Lines
	}
	if lines >= max(minDeltas, chain[0].Lines) || len(chain) > chainMax {
		return 0
	}
	for kept := len(chain); ; {
		replaced, sum := 0, 0
		for _, l := range slices.Backward(chain[1:kept]) {
			if sizeClass(l.Lines) > sizeClass(n) {
				break
			}
			replaced++
			sum += l.Lines
		}
		if replaced < layerWidth-1 {
			return kept
		}
		kept -= replaced
		n += sum
	}
}

// sizeClass returns the size class of a manifest: the logarithm of its lines to the base layerWidth, rounded down.
func sizeClass(lines int) (class int) {
	for ; lines >= layerWidth; lines /= layerWidth {
		class++
	}
	return class
}

// repeat adds lines to a delta for the paths of other manifests, with their entries in set.
func (m *Manifest) repeat(others [][]string, set *EntrySet) {
	if len(others) == 0 {
		return
	}
	has := make(map[string]bool, len(m.Changes))
	for _, c := range m.Changes {
		has[c.Path] = true
	}
	changes := slices.Clone(m.Changes)
	for _, path := range slices.Concat(others...) {
		if !has[path] {
			has[path] = true
			changes = append(changes, Change{path, set.Find(path)})
		}
	}
	m.Header.Repeated += len(changes) - len(m.Changes)
	SortChanges(changes)
	m.Changes = changes
}

// Follows reports whether the delta m can be applied to the version of base, to which at refers. base must be m's
// parent or in m's chain. A parent may have a longer chain than m, because m repeats the lines of the manifests that it
// replaces.
func (m *Manifest) Follows(base *Manifest, at ManifestRef) bool {
	chain, _ := base.chainOfNext(at)
	n := min(len(chain), len(m.Header.Chain))
	return !m.IsFull() && slices.Equal(chain[:n], m.Header.Chain[:n])
}

// Attach records the paths of the manifests in m's chain, which Extend needs to make a successor of m. rest are the
// last manifests of the chain. base, to which at refers, is a manifest that m Follows; it knows the paths of the
// manifests before rest. base is nil if rest is the whole chain.
func (m *Manifest) Attach(base *Manifest, at ManifestRef, rest []*Manifest) {
	m.below = nil
	if base != nil {
		_, below := base.chainOfNext(at)
		m.below = below[:min(len(below), len(m.Header.Chain)-1)]
	}
	for _, d := range rest {
		if !d.IsFull() {
			m.below = append(slices.Clip(m.below), ChangedPaths(d.Changes))
		}
	}
}

// ancestorsOfNext returns the ancestors of the next manifest. at refers to the manifest with header h.
func (h *Header) ancestorsOfNext(at ManifestRef) []ManifestRef {
	out := slices.Clone(h.Ancestors)
	generation := at.Generation()
	for i, step := 0, int64(ancestorStep); i < maxAncestors && generation > 0 && generation%step == 0; i++ {
		if i == len(out) {
			out = append(out, at)
		}
		out[i] = at
		step *= ancestorStep
	}
	return out
}

// Squash combines the changes of consecutive manifests.
func Squash(deltas []*Manifest) []Change {
	if len(deltas) == 1 {
		return deltas[0].Changes
	}
	latest := map[string]Change{}
	for _, m := range deltas {
		for _, c := range m.Changes {
			latest[c.Path] = c
		}
	}
	changes := slices.Collect(maps.Values(latest))
	SortChanges(changes)
	return changes
}
