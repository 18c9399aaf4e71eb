package tree

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/state/format"
)

const maxListed = 5 // paths in a QuotaError

// checkTree returns a *format.QuotaError if the scanned directory exceeds the quota.
func checkTree(q format.Quota, nodes map[string]*node) error {
	var bytes, largest int64
	depth := 0
	for path, n := range nodes {
		if n.stat.Kind == format.KindFile {
			bytes += n.stat.Size
			largest = max(largest, n.stat.Size)
		}
		depth = max(depth, 1+strings.Count(path, "/"))
	}
	size := func(path string) int64 {
		if n := nodes[path]; n.stat.Kind == format.KindFile {
			return n.stat.Size
		}
		return 0
	}
	switch {
	case largest > q.Largest:
		return exceeded("largest file in bytes", largest, q.Largest, largestBy(nodes, size))
	case bytes > q.Bytes:
		return exceeded("total in bytes", bytes, q.Bytes, largestBy(nodes, size))
	case len(nodes) > q.Files:
		return exceeded("number of files", int64(len(nodes)), int64(q.Files), crowded(nodes))
	case depth > q.Depth:
		deepest := largestBy(nodes, func(p string) int64 { return 1 + int64(strings.Count(p, "/")) })
		return exceeded("depth", int64(depth), int64(q.Depth), deepest)
	}
	return nil
}

func exceeded(what string, has, limit int64, largest []string) error {
	return &format.QuotaError{What: what, Has: has, Limit: limit, Largest: largest}
}

// share is a path's share of what the quota limits.
type share struct {
	path string
	n    int64
}

// largestBy describes the paths with the largest shares.
func largestBy(nodes map[string]*node, shareOf func(path string) int64) []string {
	shares := make([]share, 0, len(nodes))
	for path := range nodes {
		shares = append(shares, share{path, shareOf(path)})
	}
	return top(shares)
}

// crowded describes the directories with the most children.
func crowded(nodes map[string]*node) []string {
	counts := map[string]int64{}
	for path := range nodes {
		counts[cmp.Or(format.ParentDir(path), ".")]++
	}
	shares := make([]share, 0, len(counts))
	for path, n := range counts {
		shares = append(shares, share{path, n})
	}
	return top(shares)
}

// top describes the largest shares.
func top(shares []share) []string {
	slices.SortFunc(shares, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.path, b.path))
	})
	var names []string
	for _, s := range shares[:min(maxListed, len(shares))] {
		names = append(names, fmt.Sprintf("%s (%d)", s.path, s.n))
	}
	return names
}
