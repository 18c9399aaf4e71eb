package tree

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/ignore"
)

// rescan scans the directory and updates nodes: what did not change since the
// last look keeps its entry.
func (t *Dir) rescan(rules ignore.Rules) error {
	if !t.known { // an interrupted change, or the first look: trust nothing
		clear(t.nodes)
	}
	started := time.Now()
	out, err := scan(t.root, func(path string, dir bool) bool { return t.reserved(path) || rules.Match(path, dir) })
	if err != nil {
		t.known = false
		return err
	}
	t.excluded = slices.DeleteFunc(out.excluded, t.reserved)
	t.round++
	for _, f := range out.found {
		n, ok := t.nodes[f.path]
		if !ok {
			n = &node{}
			t.nodes[f.path] = n
		}
		if !ok || n.racy || n.stat != f.stat {
			n.entry = nil
			n.stat, n.racy = f.stat, f.stat.racy(started)
		}
		n.seen = t.round
	}
	for path, n := range t.nodes {
		if n.seen != t.round {
			delete(t.nodes, path)
		}
	}
	t.known = true
	return nil
}

// reserved reports whether path is, or is below, a mount point of ours.
func (t *Dir) reserved(path string) bool {
	return slices.Contains(t.opts.Reserved, format.TopDir(path))
}

// ignoreRules reads the tree's own rules, which are as hostile as the rest of it.
func (t *Dir) ignoreRules() ignore.Rules {
	data, err := t.ReadFile(ignore.FileName, ignore.MaxFile)
	if err != nil {
		data = nil // there is none
	}
	return ExcludeRules(t.opts.Excludes, data)
}

// ExcludeRules are the patterns of excludes and those of a .workspaceignore file.
func ExcludeRules(excludes []string, file []byte) ignore.Rules {
	return append(ignore.Parse([]byte(strings.Join(excludes, "\n"))), ignore.Parse(file)...)
}

// dropOdd forgets sockets, pipes and devices: they cannot be stored.
func (t *Dir) dropOdd(ctx context.Context) {
	for path, n := range t.nodes {
		if n.stat.Kind == format.KindOther {
			t.opts.Log.WarnContext(ctx, "not a file, directory or link: not committed", "workspace", t.ref.String(), "path", path)
			t.excluded = append(t.excluded, path)
			delete(t.nodes, path)
		}
	}
}
