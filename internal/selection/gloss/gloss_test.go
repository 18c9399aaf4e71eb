package gloss

import (
	"math"
	"testing"
)

func TestLoadKnowsRelatedWords(t *testing.T) {
	table := Load()
	for _, c := range []struct{ word, near, far string }{
		{"sofa", "couch", "algebra"},
		{"physician", "hospit", "violin"},
		{"rain", "storm", "bank"},
	} {
		near, far := similarity(t, table, c.word, c.near), similarity(t, table, c.word, c.far)
		if near < 0.3 || near < far+0.2 {
			t.Errorf("similarity(%s, %s) = %.2f, similarity(%s, %s) = %.2f, want a clear difference", c.word, c.near,
				near, c.word, c.far, far)
		}
	}
}

func similarity(t *testing.T, table *Table, a, b string) float64 {
	t.Helper()
	var sums [2][Dimensions]float32
	for i, w := range []string{a, b} {
		word, ok := table.Lookup(w)
		if !ok {
			t.Fatalf("Lookup(%q): not found", w)
		}
		word.Add(sums[i][:], 1)
	}
	dot := 0.0
	for i := range sums[0] {
		dot += float64(sums[0][i]) * float64(sums[1][i])
	}
	return dot
}

func TestEncodeDecode(t *testing.T) {
	row := make([]float32, Dimensions)
	row[0], row[1] = 3, -4
	table, err := decode(string(Encode([]string{"one", "two"}, []int{7, 1},
		[][]float32{row, make([]float32, Dimensions)})))
	if err != nil {
		t.Fatal(err)
	}
	word, ok := table.Lookup("one")
	if !ok {
		t.Fatal(`Lookup("one"): not found`)
	}
	var sum [Dimensions]float32
	word.Add(sum[:], 1)
	if math.Abs(float64(sum[0])-0.6) > 0.01 || math.Abs(float64(sum[1])+0.8) > 0.01 {
		t.Errorf("decoded vector begins with %v, want 0.6 -0.8", sum[:2])
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(string(Encode([]string{"a"}, []int{1}, [][]float32{make([]float32, Dimensions)})))
	f.Add("\x01\x00\x00\x00\xff\xff\xff\xff")
	f.Fuzz(func(t *testing.T, s string) {
		if table, err := decode(s); err == nil && table == nil {
			t.Error("decode returned neither a table nor an error")
		}
	})
}
