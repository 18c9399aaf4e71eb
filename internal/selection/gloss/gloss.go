// Package gloss holds small word vectors computed from the glosses of WordNet 3.0 (test/glossgen, LICENSE.wordnet).
// They
// place a sofa near a couch, need neither network nor model, and cost 2.5 MB of the binary. They support a lexical
// ranking; alone they rank badly.
package gloss

import (
	_ "embed"
	"encoding/binary"
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
	Vector string  // Dimensions signed bytes, of length 127 in their largest component
	Scale  float32 // of one step of Vector
	Idf    float32 // inverse frequency among the glosses
}

// Table maps stems to vectors. It is immutable.
type Table struct{ words map[string]Word }

// Load returns the embedded table, decoded at the first call.
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

type formatError string

func (e formatError) Error() string { return string(e) }

// decode reads, little endian: u32 words, u32 bytes of the vocabulary, the vocabulary separated by newlines, then for
// each word a u32 count, then for each word Dimensions signed bytes.
func decode(s string) (*Table, error) {
	if len(s) < 8 {
		return nil, formatError("no header")
	}
	n := int(binary.LittleEndian.Uint32([]byte(s[:4])))
	size := int(binary.LittleEndian.Uint32([]byte(s[4:8])))
	if len(s) != 8+size+n*(4+Dimensions) {
		return nil, formatError("wrong length")
	}
	vocabulary := strings.Split(s[8:8+size], "\n")
	if len(vocabulary) != n {
		return nil, formatError("wrong vocabulary")
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

// Encode returns the data that Load reads.
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
