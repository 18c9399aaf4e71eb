package tree

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/state/format"
)

const namedOffenders = 5

// checkTree applies the quota to what a scan found.
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
		return &format.QuotaError{What: "largest file in bytes", Has: largest, Limit: q.Largest, Largest: worst(nodes, size)}
	case bytes > q.Bytes:
		return &format.QuotaError{What: "total in bytes", Has: bytes, Limit: q.Bytes, Largest: worst(nodes, size)}
	case len(nodes) > q.Files:
		return &format.QuotaError{What: "number of files", Has: int64(len(nodes)), Limit: int64(q.Files), Largest: crowded(nodes)}
	case depth > q.Depth:
		return &format.QuotaError{What: "depth", Has: int64(depth), Limit: int64(q.Depth), Largest: worst(nodes, func(p string) int64 { return 1 + int64(strings.Count(p, "/")) })}
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
		counts[cmp.Or(format.ParentDir(path), ".")]++
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
