package selection

import (
	"math"
	"math/bits"
	"slices"
)

// denseList holds the tools nearest to a query, best first. A score is a cosine. Scores are compared with background,
// the average score of all tools, because one embedding model yields cosines between .1 and .5, another one between .7
// and .9.
type denseList struct {
	tools      []candidate
	background float32
}

// confidence returns the distance of the best tool from the background, 0 … 1.
func (l denseList) confidence() float64 {
	if len(l.tools) == 0 || l.background >= 1 {
		return 0
	}
	return round2(max(0, float64((l.tools[0].score-l.background)/(1-l.background))))
}

// passes reports whether a score is within the relative cut-off, measured from the background.
func (l denseList) passes(score float32) bool {
	return score-l.background >= CutOff*(l.tools[0].score-l.background)
}

// fusionRank is the parameter k of reciprocal rank fusion.
const fusionRank = 20

// fuse merges the list of the Index (local: by words, word vectors and history) with the list by embeddings (dense), by
// reciprocal ranks. Since ranks do not tell how much better one tool is than the next, the cut-off is applied to each
// list's scores before they are merged.
func fuse(local []candidate, dense denseList) []candidate {
	position := make(map[int32]int, len(local))
	out := slices.Clone(local)
	for i := range out {
		position[out[i].tool] = i
		out[i].kept = out[i].score >= CutOff*local[0].score
		out[i].score = 1 / float32(fusionRank+i+1)
	}
	for rank, d := range dense.tools {
		i, ok := position[d.tool]
		if !ok {
			i = len(out)
			out = append(out, candidate{tool: d.tool})
		}
		out[i].kept = out[i].kept || dense.passes(d.score)
		out[i].dense = 1 / float32(fusionRank+rank+1)
		out[i].score += out[i].dense
	}
	slices.SortFunc(out, compareCandidates)
	return out
}

// cutFused returns the candidates within the cut-off of either list. If they are fewer than minimum, it adds the best
// others. It returns at most MaxTools.
func cutFused(fused []candidate, minimum int) []candidate {
	kept, rest := make([]candidate, 0, MaxTools), []candidate{}
	for _, c := range fused {
		if c.kept {
			kept = append(kept, c)
		} else {
			rest = append(rest, c)
		}
	}
	kept = append(kept, rest[:min(len(rest), max(0, minimum-len(kept)))]...)
	slices.SortFunc(kept, compareCandidates)
	return kept[:min(len(kept), MaxTools)]
}

// dense holds the unit vectors of a catalogue's tools. It is immutable.
//
// Each vector of a large catalogue has a sketch: one bit per dimension, set if the vector's value is above the average
// of all vectors in that dimension. A search compares the sketches first, and then the vectors of the tools with the
// nearest sketches.
type dense struct {
	vectors   [][]float32 // by tool; nil if the vector is missing
	missing   int         // number of missing vectors
	mean      []float32
	sketches  []uint64 // by tool; nil in a small catalogue
	sketchLen int      // in uint64s
}

const (
	exactUpTo  = 2000 // maximum number of tools in a catalogue without sketches
	oversample = 1000 // minimum number of vectors that are compared after the sketches
)

func newDense(vectors [][]float32) *dense {
	d := &dense{vectors: vectors}
	for _, v := range vectors {
		switch {
		case v == nil:
			d.missing++
		case d.mean == nil:
			d.mean = slices.Clone(v)
		case len(v) != len(d.mean): // vectors of different lengths are useless together
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
	d.sketchLen = (len(d.mean) + 63) / 64
	d.sketches = make([]uint64, d.sketchLen*len(vectors))
	for i, v := range vectors {
		d.setSketch(v, d.sketches[i*d.sketchLen:])
	}
	return d
}

// setSketch sets the bits of a vector's sketch in out.
func (d *dense) setSketch(v []float32, out []uint64) {
	for i, x := range v {
		if x > d.mean[i] {
			out[i/64] |= 1 << (i % 64)
		}
	}
}

// nearest returns the allowed tools whose vectors are nearest to the query, best first. If allowed is nil, all tools
// are allowed. It does not find tools without a vector or with a vector whose length differs from the query's.
func (d *dense) nearest(query []float32, limit int, allowed func(tool int32) bool) []candidate {
	best := newBestHeap(limit)
	compare := func(tool int32) {
		if v := d.vectors[tool]; v != nil && len(v) == len(query) && (allowed == nil || allowed(tool)) {
			if c := (candidate{tool: tool, score: dot(query, v)}); best.wants(c) {
				best.put(c)
			}
		}
	}
	if d.sketches == nil || len(query) != len(d.mean) {
		for i := range d.vectors {
			compare(int32(i))
		}
	} else {
		for _, i := range d.bySketch(query, allowed) {
			compare(i)
		}
	}
	return best.sorted()
}

// list returns the nearest tools, with the background of their scores.
func (d *dense) list(query []float32, limit int, allowed func(tool int32) bool) denseList {
	l := denseList{tools: d.nearest(query, limit, allowed)}
	if len(query) == len(d.mean) {
		l.background = dot(query, d.mean)
	}
	return l
}

// bySketch returns at least oversample of the allowed tools, or all of them: those whose sketches differ least from the
// query's sketch. Distances are small integers: the first pass counts the tools at each distance, and the second pass
// selects the nearest.
func (d *dense) bySketch(query []float32, allowed func(tool int32) bool) []int32 {
	sketch := make([]uint64, d.sketchLen)
	d.setSketch(query, sketch)
	const never = math.MaxUint16
	distance, count := make([]uint16, len(d.vectors)), make([]int, 64*d.sketchLen+1)
	eligible := 0
	for i, v := range d.vectors {
		if v == nil || allowed != nil && !allowed(int32(i)) {
			distance[i] = never
			continue
		}
		eligible++
		n, row := 0, d.sketches[i*d.sketchLen:][:d.sketchLen]
		for w, x := range row {
			n += bits.OnesCount64(x ^ sketch[w])
		}
		distance[i] = uint16(n)
		count[n]++
	}
	farthest, total := 0, 0
	for total += count[0]; total < min(oversample, eligible); total += count[farthest] {
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

// dot returns the dot product. Four sums run in parallel, which is faster than one.
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
