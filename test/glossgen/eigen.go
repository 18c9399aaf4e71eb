package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"gonum.org/v1/gonum/mat"
)

// sparse is a square matrix with compressed rows.
type sparse struct {
	start  []int // the values of row i are [start[i], start[i+1])
	column []int32
	value  []float32
}

// times returns m·x. It computes the two halves of the rows concurrently.
func (m *sparse) times(x *mat.Dense) *mat.Dense {
	n, k := x.Dims()
	out := mat.NewDense(n, k, nil)
	var wg sync.WaitGroup
	for _, part := range [][2]int{{0, n / 2}, {n / 2, n}} {
		wg.Go(func() {
			for i := part[0]; i < part[1]; i++ {
				row := out.RawRowView(i)
				for p := m.start[i]; p < m.start[i+1]; p++ {
					v := float64(m.value[p])
					for j, e := range x.RawRowView(int(m.column[p])) {
						row[j] += v * e
					}
				}
			}
		})
	}
	wg.Wait()
	return out
}

// embed returns one row of k numbers for each row of m: the components of the k eigenvectors whose eigenvalues have the
// largest absolute values, scaled by the square roots of these. The eigenvectors are approximate.
func embed(m *sparse, k int) [][]float32 {
	const oversample, iterations = 20, 6
	n := len(m.start) - 1
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // with a fixed seed the file is always the same
	x := mat.NewDense(n, k+oversample, nil)
	x.Apply(func(_, _ int, _ float64) float64 { return random.NormFloat64() }, x)
	basis := orthonormal(m.times(x))
	for range iterations {
		basis = orthonormal(m.times(basis))
	}
	var projection mat.Dense
	projection.Mul(basis.T(), m.times(basis))
	return eigenvectors(basis, &projection, k)
}

// orthonormal replaces the columns of x with an orthonormal basis and returns x.
func orthonormal(x *mat.Dense) *mat.Dense {
	n, k := x.Dims()
	for j := range k {
		for range 2 { // "twice is enough" (Kahan and Parlett)
			for i := range j {
				dot := 0.0
				for r := range n {
					dot += x.At(r, i) * x.At(r, j)
				}
				for r := range n {
					x.Set(r, j, x.At(r, j)-dot*x.At(r, i))
				}
			}
		}
		norm := 0.0
		for r := range n {
			norm += x.At(r, j) * x.At(r, j)
		}
		for r := range n {
			x.Set(r, j, x.At(r, j)/math.Sqrt(norm))
		}
	}
	return x
}

// eigenvectors returns the scaled eigenvectors of a matrix, from its projection on the basis.
func eigenvectors(basis, projection *mat.Dense, k int) [][]float32 {
	n, l := basis.Dims()
	symmetric := mat.NewSymDense(l, nil)
	for i := range l {
		for j := i; j < l; j++ {
			symmetric.SetSym(i, j, (projection.At(i, j)+projection.At(j, i))/2)
		}
	}
	var eigen mat.EigenSym
	if !eigen.Factorize(symmetric, true) {
		panic("the eigendecomposition did not converge")
	}
	values := eigen.Values(nil)
	var projected, full mat.Dense
	eigen.VectorsTo(&projected)
	full.Mul(basis, &projected)
	order := make([]int, l)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(math.Abs(values[b]), math.Abs(values[a])) })
	out := make([][]float32, n)
	for r := range n {
		out[r] = make([]float32, k)
		for j, c := range order[:k] {
			out[r][j] = float32(full.At(r, c) * math.Sqrt(math.Abs(values[c])))
		}
	}
	return out
}
