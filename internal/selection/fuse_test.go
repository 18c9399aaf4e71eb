package selection

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// clustered returns unit vectors around 40 topics, like the vectors of an embedding model.
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
			out[i][j] += 0.8*float32(r.NormFloat64()) + 0.5 // 0.5 is a component that all vectors share
		}
		normalise(out[i])
	}
	return out
}

// TestSketchesFindTheNearest compares the search by sketches with an exact search.
func TestSketchesFindTheNearest(t *testing.T) {
	vectors := clustered(6000, 256)
	vectors[77] = nil
	fast := newDense(vectors)
	if fast.sketches == nil || fast.missing != 1 {
		t.Fatalf("%d vectors missing, sketches %v, want 1 and true", fast.missing, fast.sketches != nil)
	}
	exact := &dense{vectors: vectors}
	found, total := 0, 0
	for q := 0; q < 6000; q += 300 {
		want := exact.nearest(vectors[q+1], 20, nil)
		got := fast.nearest(vectors[q+1], 20, nil)
		if got[0] != want[0] {
			t.Errorf("nearest to %d = %v, want %v", q+1, got[0], want[0])
		}
		for _, w := range want {
			total++
			if slices.Contains(got, w) {
				found++
			}
		}
	}
	if found*100 < total*97 {
		t.Errorf("found %d of the %d nearest tools, want at least 97 %%", found, total)
	}
	if got := fast.nearest(make([]float32, 3), 20, nil); len(got) != 0 {
		t.Errorf("a query of another length found %d tools, want none", len(got))
	}
	if got := newDense([][]float32{{1, 0}, {1}}); got.missing != 2 {
		t.Errorf("vectors of different lengths: %d count as missing, want both", got.missing)
	}
}

// TestSketchesOfAllowedTools checks that a search by sketches finds the tools that are allowed, even if all others are
// nearer to the query.
func TestSketchesOfAllowedTools(t *testing.T) {
	vectors := clustered(6000, 256)
	few := map[int32]bool{}
	exact := (&dense{vectors: vectors}).nearest(vectors[0], len(vectors), nil)
	for _, c := range exact[len(exact)-10:] {
		few[c.tool] = true
	}
	allowed := func(tool int32) bool { return few[tool] }
	if got := newDense(vectors).nearest(vectors[0], 20, allowed); !slices.Equal(got, exact[len(exact)-10:]) {
		t.Errorf("found %v, want the allowed tools %v", got, exact[len(exact)-10:])
	}
}
