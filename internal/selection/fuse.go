package selection

import (
	"math/bits"
	"slices"
)

// scored is one tool of a dense list.
type scored struct {
	tool  int32
	score float32
}

// denseList is the tools nearest to a query, best first. background is the average score of all tools: the cosines of
// one embedding model lie between .1 and .5, those of another between .7 and .9.
type denseList struct {
	tools      []scored
	background float32
}

// confidence is the distance of the best tool from the background, 0 … 1.
func (l denseList) confidence() float64 {
	if len(l.tools) == 0 || l.background >= 1 {
		return 0
	}
	return round2(max(0, float64((l.tools[0].score-l.background)/(1-l.background))))
}

// passes applies the relative cut-off to a score, measured from the background.
func (l denseList) passes(score float32) bool {
	return score-l.background >= CutOff*(l.tools[0].score-l.background)
}

// fusionRank is the k of reciprocal rank fusion.
const fusionRank = 20

// fuse merges the local list with the dense one by reciprocal ranks. Since ranks do not say how much better one tool is
// than the next, each list has its cut-off on its own scale.
func fuse(local []candidate, dense denseList) []candidate {
	at := make(map[int32]int, len(local))
	out := slices.Clone(local)
	for i := range out {
		at[out[i].tool] = i
		out[i].kept = out[i].score >= CutOff*local[0].score
		out[i].score = 1 / float32(fusionRank+i+1)
	}
	for rank, d := range dense.tools {
		i, ok := at[d.tool]
		if !ok {
			i = len(out)
			out = append(out, candidate{tool: d.tool})
		}
		out[i].kept = out[i].kept || dense.passes(d.score)
		out[i].fusion = 1 / float32(fusionRank+rank+1)
		out[i].score += out[i].fusion
	}
	sortBy(out, better)
	return out
}

// cutFused returns the candidates within the cut-off of either list, and others up to floor, at most MaxTools in all.
func cutFused(fused []candidate, floor int) []candidate {
	kept, rest := make([]candidate, 0, MaxTools), []candidate{}
	for _, c := range fused {
		if c.kept {
			kept = append(kept, c)
		} else {
			rest = append(rest, c)
		}
	}
	kept = append(kept, rest[:min(len(rest), max(0, floor-len(kept)))]...)
	sortBy(kept, better)
	return kept[:min(len(kept), MaxTools)]
}

// dense holds the vectors of a catalogue's tools, all of unit length; those not known yet are nil. It is immutable.
//
// Each vector has a sketch: one bit a number, set if the number is above the mean of all vectors. In a large catalogue
// only the tools whose sketches are nearest to the query's are compared in full.
type dense struct {
	vectors [][]float32
	missing int
	mean    []float32
	sketch  []uint64 // of all tools, words a tool
	words   int
}

const (
	exactUpTo  = 2000 // tools in a catalogue without sketches
	oversample = 1000 // tools that are compared in full after a search of sketches
)

func newDense(vectors [][]float32) *dense {
	d := &dense{vectors: vectors}
	for _, v := range vectors {
		switch {
		case v == nil:
			d.missing++
		case d.mean == nil:
			d.mean = slices.Clone(v)
		case len(v) != len(d.mean): // vectors of different lengths cannot be compared
			return &dense{vectors: make([][]float32, len(vectors)), missing: len(vectors)}
		default:
			for i, x := range v {
				d.mean[i] += x
			}
		}
	}
	for i := range d.mean {
		d.mean[i] /= float32(len(vectors) - d.missing)
	}
	if len(vectors) <= exactUpTo || d.mean == nil {
		return d
	}
	d.words = (len(d.mean) + 63) / 64
	d.sketch = make([]uint64, d.words*len(vectors))
	for i, v := range vectors {
		d.sketchOf(v, d.sketch[i*d.words:])
	}
	return d
}

func (d *dense) sketchOf(v []float32, out []uint64) {
	for i, x := range v {
		if x > d.mean[i] {
			out[i/64] |= 1 << (i % 64)
		}
	}
}

// nearest returns the allowed tools (nil: all) whose vectors are nearest to the query, best first. Tools without a
// vector are never found, and a query of another length finds nothing.
func (d *dense) nearest(query []float32, limit int, allowed func(tool int32) bool) []scored {
	best := newTop(limit)
	compare := func(tool int32) {
		if v := d.vectors[tool]; v != nil && len(v) == len(query) && (allowed == nil || allowed(tool)) {
			if c := (candidate{tool: tool, score: dot(query, v)}); best.wants(c) {
				best.put(c)
			}
		}
	}
	if d.sketch == nil || len(query) != len(d.mean) {
		for i := range d.vectors {
			compare(int32(i))
		}
	} else {
		for _, i := range d.bySketch(query) {
			compare(i)
		}
	}
	out := make([]scored, 0, limit)
	for _, c := range best.sorted() {
		out = append(out, scored{c.tool, c.score})
	}
	return out
}

// list returns the nearest tools with the background of their scores.
func (d *dense) list(query []float32, limit int, allowed func(tool int32) bool) denseList {
	l := denseList{tools: d.nearest(query, limit, allowed)}
	if len(query) == len(d.mean) {
		l.background = dot(query, d.mean)
	}
	return l
}

// bySketch returns the tools whose sketches differ least from the query's, at least oversample of them. Distances are
// small integers: one pass counts them, a second one selects the smallest.
func (d *dense) bySketch(query []float32) []int32 {
	asked := make([]uint64, d.words)
	d.sketchOf(query, asked)
	distance, count := make([]uint16, len(d.vectors)), make([]int, 64*d.words+1)
	for i := range d.vectors {
		n, row := 0, d.sketch[i*d.words:][:d.words]
		for w, x := range row {
			n += bits.OnesCount64(x ^ asked[w])
		}
		distance[i] = uint16(n)
		count[n]++
	}
	farthest, total := 0, 0
	for total += count[0]; total < min(oversample, len(d.vectors)); total += count[farthest] {
		farthest++
	}
	out := make([]int32, 0, total)
	for i, n := range distance {
		if int(n) <= farthest {
			out = append(out, int32(i))
		}
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
