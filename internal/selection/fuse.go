package selection

import "slices"

// scored is one tool of a dense list.
type scored struct {
	tool  int32
	score float32
}

// fusionRank is the k of reciprocal rank fusion. With 20, a tool that both lists have among the first 20, or that one
// list has first, passes the relative cut-off.
const fusionRank = 20

// fuse merges the local list with the dense one by reciprocal ranks. The local list stays in it whole.
func fuse(local []candidate, dense []scored, s *Snapshot, allowed func(*Tool) bool) []candidate {
	at := make(map[int32]int, len(local))
	out := slices.Clone(local)
	for i := range out {
		at[out[i].tool] = i
		out[i].score = 1 / float32(fusionRank+i+1)
	}
	rank := 0
	for _, d := range dense {
		if allowed != nil && !allowed(&s.tools[d.tool]) {
			continue
		}
		rank++
		i, ok := at[d.tool]
		if !ok {
			i = len(out)
			out = append(out, candidate{tool: d.tool})
		}
		out[i].fusion = 1 / float32(fusionRank+rank)
		out[i].score += out[i].fusion
	}
	sortBy(out, better)
	return out
}

// nearest returns the tools whose vectors are nearest to the query's, best first. Both are of unit length; a tool
// without a vector does not take part.
func nearest(query []float32, vectors [][]float32, limit int) []scored {
	best := newTop(limit)
	for d, v := range vectors {
		if v == nil {
			continue
		}
		c := candidate{tool: int32(d), score: dot(query, v)}
		if best.wants(c) {
			best.put(c)
		}
	}
	out := make([]scored, 0, limit)
	for _, c := range best.sorted() {
		out = append(out, scored{c.tool, c.score})
	}
	return out
}

func dot(a, b []float32) float32 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float32
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += a[i] * b[i]
		s1 += a[i+1] * b[i+1]
		s2 += a[i+2] * b[i+2]
		s3 += a[i+3] * b[i+3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return s0 + s1 + s2 + s3
}
