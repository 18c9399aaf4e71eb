// Package gloss holds small word vectors that test/glossgen computed from the glosses of WordNet 3.0 (see
// LICENSE.wordnet). They place a sofa near a couch, need neither a network nor a model, and add 2.8 MB to the binary.
// They improve a lexical ranking; on their own they rank badly.
package gloss

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"sync"
)

// Dimensions is the length of every vector.
const Dimensions = 100

//go:embed vectors.bin
var data string

// Word is one row of the table.
type Word struct {
	Vector string  // Dimensions signed bytes; the largest component is 127 or -127
	Scale  float32 // the factor that makes Vector a unit vector
	Idf    float32 // the inverse frequency in the glosses
}

// Table maps stems to vectors. It is immutable.
type Table struct{ words map[string]Word }

// Load returns the embedded table. It is decoded at the first call.
var Load = sync.OnceValue(func() *Table {
	t, err := decode(data)
	if err != nil {
		panic("gloss: embedded table: " + err.Error())
	}
	return t
})

// Lookup returns the row of a stem.
func (t *Table) Lookup(stem string) (Word, bool) {
	w, ok := t.words[stem]
	return w, ok
}

// Add adds weight times the word's unit vector to sum, which has Dimensions numbers.
func (w Word) Add(sum []float32, weight float32) {
	s := weight * w.Scale
	for i := range len(w.Vector) {
		sum[i] += s * float32(int8(w.Vector[i]))
	}
}

// decode reads the number of words and the size of the vocabulary in bytes, as little-endian u32, then the vocabulary
// separated by newlines, then a u32 count for each word, then Dimensions signed bytes for each word.
func decode(s string) (*Table, error) {
	if len(s) < 8 {
		return nil, errors.New("the header is incomplete")
	}
	n := int(binary.LittleEndian.Uint32([]byte(s[:4])))
	size := int(binary.LittleEndian.Uint32([]byte(s[4:8])))
	if len(s) != 8+size+n*(4+Dimensions) {
		return nil, errors.New("the length does not match the header")
	}
	vocabulary := strings.Split(s[8:8+size], "\n")
	if len(vocabulary) != n {
		return nil, errors.New("the vocabulary does not match the header")
	}
	counts, vectors := s[8+size:], s[8+size+4*n:]
	t := &Table{words: make(map[string]Word, n)}
	for i, w := range vocabulary {
		v := vectors[i*Dimensions : (i+1)*Dimensions]
		count := binary.LittleEndian.Uint32([]byte(counts[4*i : 4*i+4]))
		t.words[w] = Word{Vector: v, Scale: unit(v), Idf: float32(math.Log(1 + 1e5/float64(count)))}
	}
	return t, nil
}

// unit returns the factor that makes a vector a unit vector.
func unit(v string) float32 {
	sum := 0.0
	for i := range len(v) {
		sum += float64(int8(v[i])) * float64(int8(v[i]))
	}
	if sum == 0 {
		return 0
	}
	return float32(1 / math.Sqrt(sum))
}

// Encode returns a table in the format that Load reads.
func Encode(vocabulary []string, counts []int, vectors [][]float32) []byte {
	names := strings.Join(vocabulary, "\n")
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(vocabulary)))
	out = binary.LittleEndian.AppendUint32(out, uint32(len(names)))
	out = append(out, names...)
	for _, c := range counts {
		out = binary.LittleEndian.AppendUint32(out, uint32(c))
	}
	for _, v := range vectors {
		largest := 0.0
		for _, x := range v {
			largest = math.Max(largest, math.Abs(float64(x)))
		}
		for _, x := range v {
			step := 0.0
			if largest > 0 {
				step = math.Round(float64(x) / largest * 127)
			}
			out = append(out, byte(int8(step)))
		}
	}
	return out
}
