package selection

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// clustered returns unit vectors around a few topics, like those of an embedding model.
func clustered(n, dimensions int) [][]float32 {
	r := rand.New(rand.NewPCG(1, 2))
	topics := make([][]float32, 40)
	for i := range topics {
		topics[i] = make([]float32, dimensions)
		for j := range topics[i] {
			topics[i][j] = float32(r.NormFloat64())
		}
	}
	out := make([][]float32, n)
	for i := range out {
		out[i] = slices.Clone(topics[i%len(topics)])
		for j := range out[i] {
			out[i][j] += 0.8*float32(r.NormFloat64()) + 0.5 // and what all have in common
		}
		normalise(out[i])
	}
	return out
}

// TestSketchesFindWhatAllComparisonsFind compares the search by sketches with the comparison of all vectors.
func TestSketchesFindWhatAllComparisonsFind(t *testing.T) {
	vectors := clustered(6000, 256)
	vectors[77] = nil
	fast := newDense(vectors)
	if fast.sketch == nil || fast.missing != 1 {
		t.Fatalf("%d missing, sketches %v: the test proves nothing", fast.missing, fast.sketch != nil)
	}
	exact := &dense{vectors: vectors}
	found, of := 0, 0
	for q := 0; q < 6000; q += 300 {
		want := exact.nearest(vectors[q+1], 20, nil)
		got := fast.nearest(vectors[q+1], 20, nil)
		if got[0] != want[0] {
			t.Errorf("nearest to %d = %v, want %v", q+1, got[0], want[0])
		}
		for _, w := range want {
			of++
			if slices.Contains(got, w) {
				found++
			}
		}
	}
	if found*100 < of*97 {
		t.Errorf("found %d of the %d nearest, want at least 97 %%", found, of)
	}
	if got := fast.nearest(make([]float32, 3), 20, nil); len(got) != 0 {
		t.Errorf("a query of another length found %d tools, want none", len(got))
	}
	if got := newDense([][]float32{{1, 0}, {1}}); got.missing != 2 {
		t.Errorf("vectors of unlike lengths: %d missing, want both of no use", got.missing)
	}
}
