package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Quota bounds one version of a workspace; zero fields take the defaults of DefaultQuota.
type Quota struct {
	Bytes   int64 // sum of file sizes
	Files   int   // files, directories and links
	Largest int64 // bytes of one file
	Depth   int   // components of a path
}

// DefaultQuota is 5 GiB in 200,000 entries, one of them at most 2 GiB, 64 levels deep.
var DefaultQuota = Quota{Bytes: 5 << 30, Files: 200_000, Largest: 2 << 30, Depth: 64}

func (q Quota) withDefaults() Quota {
	q.Bytes = cmp.Or(q.Bytes, DefaultQuota.Bytes)
	q.Files = cmp.Or(q.Files, DefaultQuota.Files)
	q.Largest = cmp.Or(q.Largest, DefaultQuota.Largest)
	q.Depth = cmp.Or(q.Depth, DefaultQuota.Depth)
	return q
}

// QuotaError is returned by Commit before anything is uploaded. It wraps ErrQuota.
type QuotaError struct {
	What    string   // bytes, files, largest, depth
	Has     int64    // what the tree has
	Limit   int64    // what it may have
	Largest []string // the paths, or directories, that contribute most, with their share
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("%v: %s is %d, limit is %d; most of it: %s", ErrQuota, e.What, e.Has, e.Limit, strings.Join(e.Largest, ", "))
}

func (e *QuotaError) Unwrap() error { return ErrQuota }

const namedOffenders = 5

// checkTree applies the quota to what a scan found.
func (q Quota) checkTree(nodes map[string]*node) error {
	var bytes, largest int64
	depth := 0
	for path, n := range nodes {
		if n.stat.Kind == kindFile {
			bytes += n.stat.Size
			largest = max(largest, n.stat.Size)
		}
		depth = max(depth, 1+strings.Count(path, "/"))
	}
	size := func(path string) int64 {
		if n := nodes[path]; n.stat.Kind == kindFile {
			return n.stat.Size
		}
		return 0
	}
	switch {
	case largest > q.Largest:
		return &QuotaError{"largest file in bytes", largest, q.Largest, worst(nodes, size)}
	case bytes > q.Bytes:
		return &QuotaError{"total in bytes", bytes, q.Bytes, worst(nodes, size)}
	case len(nodes) > q.Files:
		return &QuotaError{"number of files", int64(len(nodes)), int64(q.Files), crowded(nodes)}
	case depth > q.Depth:
		return &QuotaError{"depth", int64(depth), int64(q.Depth), worst(nodes, func(p string) int64 { return 1 + int64(strings.Count(p, "/")) })}
	}
	return nil
}

// checkSnapshot applies the quota to a merged version.
func (q Quota) checkSnapshot(s *snapshot) error {
	switch {
	case s.bytes > q.Bytes:
		return &QuotaError{"total in bytes, merged with other tasks", s.bytes, q.Bytes, nil}
	case s.files > q.Files:
		return &QuotaError{"number of files, merged with other tasks", int64(s.files), int64(q.Files), nil}
	}
	return nil
}

type share struct {
	path string
	n    int64
}

func worst(nodes map[string]*node, of func(string) int64) []string {
	shares := make([]share, 0, len(nodes))
	for path := range nodes {
		shares = append(shares, share{path, of(path)})
	}
	return name(shares)
}

// crowded names the directories with the most children.
func crowded(nodes map[string]*node) []string {
	counts := map[string]int64{}
	for path := range nodes {
		counts[cmp.Or(parent(path), ".")]++
	}
	shares := make([]share, 0, len(counts))
	for path, n := range counts {
		shares = append(shares, share{path, n})
	}
	return name(shares)
}

func name(shares []share) []string {
	slices.SortFunc(shares, func(a, b share) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.path, b.path)) })
	var names []string
	for _, s := range shares[:min(namedOffenders, len(shares))] {
		names = append(names, fmt.Sprintf("%s (%d)", s.path, s.n))
	}
	return names
}
