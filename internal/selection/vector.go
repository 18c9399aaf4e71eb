package selection

import (
	"math"

	"github.com/codefleet/codefleet/internal/selection/gloss"
)

const dims = gloss.Dimensions

// vectorizer computes one unit vector for each tool: the sum of its words' vectors, weighted by field and rarity. The
// direction that all tools share is removed, because it only means "this is a tool".
type vectorizer struct {
	table *gloss.Table
	sums  []float32
}

func newVectorizer(table *gloss.Table, tools int) *vectorizer {
	return &vectorizer{table: table, sums: make([]float32, 0, tools*dims)}
}

func (v *vectorizer) add(fields []field) {
	var sum [dims]float32
	for _, f := range fields {
		if len(f.terms) > 0 {
			var part [dims]float32
			addTerms(v.table, part[:], f.terms)
			scale := f.weight / float32(math.Sqrt(float64(len(f.terms))))
			for i := range sum {
				sum[i] += scale * part[i]
			}
		}
	}
	normalise(sum[:])
	v.sums = append(v.sums, sum[:]...)
}

// addTerms adds the terms' vectors, weighted by rarity, to sum.
func addTerms(table *gloss.Table, sum []float32, terms []string) {
	for _, t := range terms {
		if w, ok := table.Lookup(t); ok {
			w.Add(sum, w.Idf)
		}
	}
}

// finish removes the direction that all tools share from their vectors. It returns the packed vectors and this
// direction.
func (v *vectorizer) finish() (packed []int8, common []float32) {
	common = make([]float32, dims)
	for i, x := range v.sums {
		common[i%dims] += x
	}
	normalise(common)
	packed = make([]int8, len(v.sums))
	for at := 0; at < len(v.sums); at += dims {
		row := v.sums[at : at+dims]
		removeDirection(row, common)
		pack(packed[at:], row)
	}
	return packed, common
}

// queryVector returns the packed vector of a query's terms, or nil if none of them has a vector.
func (s *Index) queryVector(terms []string) []int8 {
	sum := make([]float32, dims)
	addTerms(s.table, sum, terms)
	if !normalise(sum) {
		return nil
	}
	removeDirection(sum, s.common)
	packed := make([]int8, dims)
	pack(packed, sum)
	return packed
}

// pack converts a unit vector to bytes.
func pack(packed []int8, row []float32) {
	for i, x := range row {
		packed[i] = int8(math.Round(float64(x) * 127))
	}
}

// removeDirection subtracts the projection of a vector on a direction, and normalises the vector.
func removeDirection(row, direction []float32) {
	d := float32(0)
	for i := range row {
		d += row[i] * direction[i]
	}
	for i := range row {
		row[i] -= d * direction[i]
	}
	normalise(row)
}

// normalise scales a vector to unit length. It returns false if the vector is zero.
func normalise(row []float32) bool {
	n := float32(0)
	for _, x := range row {
		n += x * x
	}
	if n < 1e-12 {
		return false
	}
	n = 1 / float32(math.Sqrt(float64(n)))
	for i := range row {
		row[i] *= n
	}
	return true
}

// cosine returns the cosine of two packed vectors, about -1 … 1.
func cosine(a, b []int8) float32 {
	var s0, s1 int32
	a, b = a[:dims], b[:dims]
	for i := 0; i < dims; i += 2 {
		s0 += int32(a[i]) * int32(b[i])
		s1 += int32(a[i+1]) * int32(b[i+1])
	}
	return float32(s0+s1) / (127 * 127)
}
