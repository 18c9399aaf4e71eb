package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/codefleet/codefleet/internal/text"
)

// merger brings one side's changes onto a version that others made meanwhile,
// path by path, with the common ancestor as the referee.
type merger struct {
	base, theirs *snapshot
	read         func(*entry) ([]byte, error)         // content of a small file
	write        func(*entry, []byte) (*entry, error) // like the entry, with other content
	suffix       string                               // for the copy of a conflicting path; empty: conflicts fail

	ours      map[string]*entry // the changes made
	removed   map[string]bool   // paths among them that are gone
	out       map[string]*entry // the changes to make to theirs; nil: remove
	conflicts []string
}

// merge returns what to change in theirs so that ours is in it too, and the
// paths that both sides changed. The same content on both sides is a conflict
// too: two tasks that read 5 and write 6 have counted to 7.
func (m *merger) merge(ours []change) ([]change, []string, error) {
	m.ours, m.removed, m.out = map[string]*entry{}, map[string]bool{}, map[string]*entry{}
	for _, c := range ours {
		m.ours[c.path], m.removed[c.path] = c.entry, c.entry == nil
	}
	for _, c := range ours {
		if err := m.path(c); err != nil {
			return nil, nil, err
		}
	}
	m.keepParents()
	changes := make([]change, 0, len(m.out))
	for path, e := range m.out {
		if e == nil && m.theirs.find(path) == nil {
			continue
		}
		changes = append(changes, change{path, e})
	}
	sortChanges(changes)
	slices.Sort(m.conflicts)
	return changes, slices.Compact(m.conflicts), nil
}

func (m *merger) path(c change) error {
	base, theirs := m.base.find(c.path), m.theirs.find(c.path)
	switch {
	case theirs.same(base): // untouched by them (both may be nil)
		if c.entry != nil && c.entry.Kind != kindDir && m.theirs.hasBelow(c.path, m.removed) {
			m.conflict(c, theirs) // a file here, files below it there
			return nil
		}
		m.out[c.path] = c.entry
	case c.entry.isDir() && theirs.isDir(): // only modes differ
	case c.entry == nil && theirs == nil && base.isDir(): // what was in it is compared path by path
	default:
		merged, err := m.byKey(base, theirs, c.entry)
		if err != nil {
			return err
		}
		if merged != nil {
			m.out[c.path] = merged
			return nil
		}
		m.conflict(c, theirs)
	}
	return nil
}

// conflict keeps both: an edit wins over a removal, theirs keeps the name,
// directories keep theirs, and files step aside unless they are the same.
func (m *merger) conflict(c change, theirs *entry) {
	m.conflicts = append(m.conflicts, c.path)
	switch {
	case theirs.same(c.entry):
	case c.entry == nil: // we removed what they edited
	case theirs == nil: // they removed what we edited
		m.out[c.path] = c.entry
	case c.entry.Kind == kindDir: // they made a file of the same name
		m.out[m.aside(c.path)] = renamed(theirs, m.aside(c.path))
		m.out[c.path] = c.entry
	default:
		m.out[m.aside(c.path)] = renamed(c.entry, m.aside(c.path))
	}
}

// aside returns the first free name for a copy.
func (m *merger) aside(path string) string {
	suffix := ".conflict-" + m.suffix
	if room := maxComponent - len(suffix) - 4; len(path)-len(parent(path))-1 > room {
		path = path[:max(len(parent(path))+1, 0)+room]
	}
	name := path + suffix
	for i := 2; m.theirs.find(name) != nil && i < 1000; i++ {
		name = fmt.Sprintf("%s%s.%d", path, suffix, i)
	}
	return name
}

func renamed(e *entry, path string) *entry {
	moved := *e
	moved.Path = path
	return &moved
}

// keepParents restores directories that one side removed and the other put
// something into, and turns what cannot be placed into a conflict.
func (m *merger) keepParents() {
	for _, path := range slices.Sorted(maps.Keys(m.out)) {
		e := m.out[path]
		if e == nil {
			continue
		}
		for dir := parent(path); dir != ""; dir = parent(dir) {
			now, changed := m.out[dir]
			if !changed {
				now = m.theirs.find(dir)
			}
			if now == nil {
				m.out[dir] = m.anyDir(dir)
				continue
			}
			if now.Kind != kindDir { // they made a file of our directory
				m.conflicts = append(m.conflicts, path)
				m.out[m.aside(dir)] = renamed(now, m.aside(dir))
				m.out[dir] = m.anyDir(dir)
			}
		}
	}
	except := map[string]bool{}
	for path, e := range m.out {
		except[path] = e == nil
	}
	for path, e := range m.out {
		if e != nil {
			continue
		}
		if t := m.theirs.find(path); t != nil && t.Kind == kindDir && (m.theirs.hasBelow(path, except) || m.placedBelow(path)) {
			m.out[path] = t // they put something into the directory that we removed
		}
	}
}

func (m *merger) placedBelow(dir string) bool {
	prefix := dir + "/"
	for path, e := range m.out {
		if e != nil && len(path) > len(prefix) && path[:len(prefix)] == prefix {
			return true
		}
	}
	return false
}

func (m *merger) anyDir(dir string) *entry {
	for _, e := range []*entry{m.ours[dir], m.base.find(dir)} {
		if e != nil && e.Kind == kindDir {
			return e
		}
	}
	return &entry{Path: dir, Kind: kindDir, Mode: 0o755}
}

// byKey merges JSON objects key by key, or returns nil.
func (m *merger) byKey(base, theirs, ours *entry) (*entry, error) {
	if theirs == nil || ours == nil || !mergesByKey(ours.Path) || theirs.Kind != kindFile || ours.Kind != kindFile ||
		max(theirs.Size, ours.Size) > maxBlob || base != nil && (base.Kind != kindFile || base.Size > maxBlob) {
		return nil, nil
	}
	var objects [3]map[string]json.RawMessage
	for i, e := range []*entry{base, theirs, ours} {
		if e == nil {
			continue
		}
		data, err := m.read(e)
		if err != nil {
			return nil, err
		}
		if json.Unmarshal(data, &objects[i]) != nil || objects[i] == nil && i > 0 {
			return nil, nil //nolint:nilerr // not an object: an ordinary conflict
		}
	}
	merged, ok := mergeKeys(objects[0], objects[1], objects[2])
	if !ok {
		return nil, nil
	}
	data, err := json.Marshal(merged)
	if err != nil || len(data) >= maxBlob {
		return nil, nil //nolint:nilerr // an ordinary conflict
	}
	return m.write(ours, append(text.IndentJSON(data, "  ", maxBlob-1), '\n'))
}

// mergeKeys is the three-way merge of objects; false when both sides changed one
// key, be it to the same value.
func mergeKeys(base, theirs, ours map[string]json.RawMessage) (map[string]json.RawMessage, bool) {
	merged := maps.Clone(theirs)
	keys := maps.Clone(base)
	if keys == nil {
		keys = map[string]json.RawMessage{}
	}
	maps.Copy(keys, ours)
	for key := range keys {
		b, t, o := base[key], theirs[key], ours[key]
		switch {
		case sameJSON(b, o): // we changed nothing
		case !sameJSON(b, t):
			return nil, false
		case o == nil:
			delete(merged, key)
		default:
			merged[key] = o
		}
	}
	return merged, true
}

// sameJSON compares values but for white space; nil is no value.
func sameJSON(a, b json.RawMessage) bool {
	if (a == nil) != (b == nil) {
		return false
	}
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes()) || a == nil
}
