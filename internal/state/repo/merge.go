package repo

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/codefleet/codefleet/internal/state/format"
)

// merger is a three-way merge, path by path: it applies our changes, which were made to base, to theirs.
type merger struct {
	base, theirs *format.EntrySet
	read         func(*format.Entry) ([]byte, error)                // returns the content of a small file
	write        func(*format.Entry, []byte) (*format.Entry, error) // returns a copy of the entry with other content
	views        []string                                           // paths of ours that replace theirs
	document     string                                             // path of the default state document
	suffix       string                                             // suffix of the names of conflict copies

	ours      map[string]*format.Entry // our changes
	removed   map[string]bool          // paths that we removed
	out       map[string]*format.Entry // changes to make to theirs; nil removes the path
	copies    map[string]int           // how many names copyName has tried, by the name without a counter
	conflicts []string
}

// merge returns the changes to make to theirs, and the conflicts: paths that both sides changed and that do not merge
// (see mergePath). A file that both sides changed in the same way is a conflict too: if two tasks read 5 and write 6,
// one increment is lost.
func (m *merger) merge(ours []format.Change) ([]format.Change, []string, error) {
	m.ours, m.removed, m.out = map[string]*format.Entry{}, map[string]bool{}, map[string]*format.Entry{}
	m.copies = map[string]int{}
	for _, c := range ours {
		m.ours[c.Path], m.removed[c.Path] = c.Entry, c.Entry == nil
	}
	for _, c := range ours {
		if err := m.mergePath(c); err != nil {
			return nil, nil, err
		}
	}
	m.keepParents()
	changes := make([]format.Change, 0, len(m.out))
	for path, e := range m.out {
		if e == nil && m.theirs.Find(path) == nil {
			continue
		}
		changes = append(changes, format.Change{Path: path, Entry: e})
	}
	format.SortChanges(changes)
	slices.Sort(m.conflicts)
	return changes, slices.Compact(m.conflicts), nil
}

// mergePath adds one of our changes to out, merged with theirs if both sides changed the path. If they do not merge,
// the path is a conflict.
func (m *merger) mergePath(c format.Change) error {
	base, theirs := m.base.Find(c.Path), m.theirs.Find(c.Path)
	switch {
	case c.Entry != nil && !theirs.IsDir() && slices.Contains(m.views, c.Path):
		m.out[c.Path] = c.Entry
	case theirs.Same(base): // they did not change it; both may be nil
		if c.Entry != nil && c.Entry.Kind != format.KindDir && m.theirs.HasBelow(c.Path, m.removed) {
			m.conflict(c, theirs) // we made a file where they have paths of a directory
			return nil
		}
		m.out[c.Path] = c.Entry
	case c.Entry.IsDir() && theirs.IsDir(): // only modes differ
	case c.Entry == nil && theirs == nil && base.IsDir(): // both removed it; the paths below are merged one by one
	default:
		merged, err := m.mergeJSON(base, theirs, c.Entry)
		if err != nil {
			return err
		}
		if merged == nil {
			m.conflict(c, theirs)
			return nil
		}
		m.out[c.Path] = merged
	}
	return nil
}

// conflict keeps both versions of a path: an edit wins over a removal, a directory keeps its name, and if two files
// differ, ours is renamed.
func (m *merger) conflict(c format.Change, theirs *format.Entry) {
	m.conflicts = append(m.conflicts, c.Path)
	switch {
	case theirs.Same(c.Entry):
	case c.Entry == nil: // we removed what they edited
	case theirs == nil: // they removed what we edited
		m.out[c.Path] = c.Entry
	case c.Entry.Kind == format.KindDir: // they made a file with that name
		m.addCopy(theirs)
		m.out[c.Path] = c.Entry
	default:
		m.addCopy(c.Entry)
	}
}

// addCopy adds a copy of one version of a conflicting path to out.
func (m *merger) addCopy(e *format.Entry) {
	copied := *e
	copied.Path = m.copyName(e.Path)
	m.out[copied.Path] = &copied
}

// copyName returns the first free name for a copy of a path, cut if it would be too long. If even a short name does not
// fit, the copy is in the nearest directory above in which it does.
func (m *merger) copyName(path string) string {
	const counter = len(".2000000") // no version has more paths
	suffix := ".conflict-" + m.suffix
	dir, name := format.ParentDir(path), path[strings.LastIndexByte(path, '/')+1:]
	room := func() int {
		return min(format.MaxComponent, format.MaxPath-len(dir)-len("/")) - len(suffix) - counter
	}
	for dir != "" && room() < 1 {
		dir = format.ParentDir(dir)
	}
	if n := room(); len(name) > n {
		for valid := utf8.ValidString(name); valid && n > 0 && !utf8.RuneStart(name[n]); {
			n--
		}
		name = name[:n]
	}
	stem := strings.TrimPrefix(dir+"/"+name+suffix, "/")
	for {
		m.copies[stem]++
		copied := stem
		if n := m.copies[stem]; n > 1 {
			copied = fmt.Sprintf("%s.%d", stem, n)
		}
		_, ours := m.ours[copied]
		_, out := m.out[copied]
		if !ours && !out && m.theirs.Find(copied) == nil {
			return copied
		}
	}
}

// keepParents restores directories that one side removed while the other side added paths to them. If a path's
// directory became a file, the path is a conflict.
func (m *merger) keepParents() {
	for _, path := range slices.Sorted(maps.Keys(m.out)) {
		e := m.out[path]
		if e == nil {
			continue
		}
		for dir := format.ParentDir(path); dir != ""; dir = format.ParentDir(dir) {
			now, changed := m.out[dir]
			if !changed {
				now = m.theirs.Find(dir)
			}
			if now == nil {
				m.out[dir] = m.anyDir(dir)
				continue
			}
			if now.Kind != format.KindDir { // they replaced our directory with a file
				m.conflicts = append(m.conflicts, path)
				m.addCopy(now)
				m.out[dir] = m.anyDir(dir)
			}
		}
	}
	except := map[string]bool{}
	written := map[string]bool{} // directories below which the merge writes paths
	for path, e := range m.out {
		except[path] = e == nil
		if e == nil {
			continue
		}
		for dir := format.ParentDir(path); dir != "" && !written[dir]; dir = format.ParentDir(dir) {
			written[dir] = true
		}
	}
	for path, e := range m.out {
		if e != nil {
			continue
		}
		if t := m.theirs.Find(path); t.IsDir() && (written[path] || m.theirs.HasBelow(path, except)) {
			m.out[path] = t // they added paths to the directory that we removed
		}
	}
}

// anyDir returns the entry of a directory from our changes or the base, or a new one.
func (m *merger) anyDir(dir string) *format.Entry {
	for _, e := range []*format.Entry{m.ours[dir], m.base.Find(dir)} {
		if e.IsDir() {
			return e
		}
	}
	return format.NewDir(dir)
}
