// Command glossgen computes the word vectors of package gloss from the glosses of WordNet 3.0:
//
//	apt-get download wordnet-base && dpkg -x wordnet-base_*.deb wn
//	go run ./test/glossgen -wordnet wn/usr/share/wordnet -out internal/selection/gloss/vectors.bin
//
// It counts how often two stems occur near each other in a synset's words and gloss, computes the positive pointwise
// mutual information, and reduces that matrix to 100 dimensions by a randomised eigendecomposition. The numbers are
// rounded to eight bits. The seed is fixed, so the same WordNet gives the same file. It takes about a minute and 2 GB
// of memory.
package main

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/selection/gloss"
	"github.com/codefleet/codefleet/internal/selection/terms"
)

func main() {
	dir := flag.String("wordnet", "/usr/share/wordnet",
		"directory with WordNet's data.noun, data.verb, data.adj, data.adv")
	out := flag.String("out", "vectors.bin", "file to write")
	words := flag.Int("words", 25000, "number of stems; the most frequent are kept")
	flag.Parse()
	if err := run(*dir, *out, *words); err != nil {
		fmt.Fprintln(os.Stderr, "glossgen:", err)
		os.Exit(1)
	}
}

func run(dir, out string, words int) error {
	sentences, err := readGlosses(dir)
	if err != nil {
		return err
	}
	vocabulary, counts := mostFrequent(sentences, words)
	vectors := embed(ppmi(sentences, vocabulary), gloss.Dimensions)
	return os.WriteFile(out, gloss.Encode(vocabulary, counts, vectors), 0o644)
}

// readGlosses returns the stems of each synset: of its words, and of its gloss with the examples.
func readGlosses(dir string) ([][]string, error) {
	var sentences [][]string
	for _, part := range []string{"noun", "verb", "adj", "adv"} {
		file, err := os.Open(filepath.Join(dir, "data."+part))
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if s := sentence(lines.Text()); len(s) > 1 {
				sentences = append(sentences, s)
			}
		}
		if err := errors.Join(lines.Err(), file.Close()); err != nil {
			return nil, fmt.Errorf("read data.%s: %w", part, err)
		}
	}
	return sentences, nil
}

// sentence returns the stems of a line "offset lexfile type count(hex) word lexid word lexid … | gloss". It returns
// none for a line of the licence, which begins with a space.
func sentence(line string) []string {
	synset, glossText, ok := strings.Cut(line, " | ")
	if !ok || strings.HasPrefix(line, " ") {
		return nil
	}
	fields := strings.Fields(synset)
	var count int
	if _, err := fmt.Sscanf(fields[3], "%x", &count); err != nil {
		return nil
	}
	var b strings.Builder
	for i := range count {
		b.WriteString(strings.ReplaceAll(fields[4+2*i], "_", " "))
		b.WriteByte(' ')
	}
	return terms.Document(b.String() + glossText)
}

// mostFrequent returns the n most frequent stems, with their frequencies.
func mostFrequent(sentences [][]string, n int) ([]string, []int) {
	count := map[string]int{}
	for _, s := range sentences {
		for _, w := range s {
			count[w]++
		}
	}
	words := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	words = words[:min(n, len(words))]
	counts := make([]int, len(words))
	for i, w := range words {
		counts[i] = count[w]
	}
	return words, counts
}

const (
	window    = 8    // stems after a stem that count as near
	smoothing = 0.75 // exponent of the contexts' frequencies, which reduces the weight of rare stems
)

// ppmi returns the symmetric matrix of the positive pointwise mutual information of stems.
func ppmi(sentences [][]string, vocabulary []string) *sparse {
	index := make(map[string]int32, len(vocabulary))
	for i, w := range vocabulary {
		index[w] = int32(i)
	}
	pairs := map[uint64]float32{}
	for _, s := range sentences {
		for i, w := range s {
			a, ok := index[w]
			if !ok {
				continue
			}
			for j := i + 1; j <= i+window && j < len(s); j++ {
				if b, ok := index[s[j]]; ok && a != b {
					pairs[uint64(a)<<32|uint64(b)]++
					pairs[uint64(b)<<32|uint64(a)]++
				}
			}
		}
	}
	return weigh(pairs, len(vocabulary))
}

// weigh computes the matrix for n stems from how often each pair of stems occurs. A key of pairs has one stem in its
// upper 32 bits and the other in its lower 32 bits.
func weigh(pairs map[uint64]float32, n int) *sparse {
	sums, total, smoothed := make([]float64, n), 0.0, 0.0 // sums of the rows
	for key, c := range pairs {
		sums[key>>32] += float64(c)
		total += float64(c)
	}
	context := make([]float64, n)
	for i, r := range sums {
		context[i] = math.Pow(r, smoothing)
		smoothed += context[i]
	}
	m := &sparse{start: make([]int, n+1)}
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		a, b := key>>32, key&0xffffffff
		p := float64(pairs[key]) / total
		// The mean of both directions keeps the matrix symmetric in spite of the smoothing.
		v := (math.Log(p/(sums[a]/total*context[b]/smoothed)) + math.Log(p/(sums[b]/total*context[a]/smoothed))) / 2
		if v > 0 {
			m.column = append(m.column, int32(b))
			m.value = append(m.value, float32(v))
			m.start[a+1] = len(m.column)
		}
	}
	for i := 1; i <= n; i++ {
		m.start[i] = max(m.start[i], m.start[i-1])
	}
	return m
}
