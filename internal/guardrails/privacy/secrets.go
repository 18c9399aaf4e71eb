package privacy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/zricethezav/gitleaks/v8/detect"
)

// secrets finds keys with the rules of gitleaks.
type secrets struct {
	mu       sync.Mutex // detect.Detector is not documented as safe for concurrent use
	detector *detect.Detector
}

// loadSecrets compiles the rules once in a process: that takes some 40 ms.
var loadSecrets = sync.OnceValues(newSecrets)

func newSecrets() (*secrets, error) {
	d, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		return nil, fmt.Errorf("load the rules for secrets: %w", err)
	}
	d.IgnoreGitleaksAllow = true // a comment must not hide a key
	return &secrets{detector: d}, nil
}

// The rules look at pieces of at most this many bytes, so that their time does not grow faster than the text. Pieces
// overlap, so that a key at a border is found in one of them.
const pieceSize, pieceOverlap = 64 << 10, 8 << 10

// find returns the keys in a text. A key that lies in two pieces may be returned twice, and out of order.
func (s *secrets) find(text string) []Span {
	var found []Span
	for _, p := range suspects(text) {
		for start := p.Start; ; start += pieceSize - pieceOverlap {
			end := min(start+pieceSize, p.End)
			for _, f := range s.findIn(text[start:end]) {
				from, to := start+f.Start, start+f.End
				if n := len(found); n == 0 || from < found[n-1].Start || to > found[n-1].End {
					found = append(found, whole(text, from, to))
				}
			}
			if end == p.End {
				break
			}
		}
	}
	return found
}

// suspects returns the parts of a text that may contain a key: lines with a long run of characters, and a few lines
// before and after them. The rules are slow, and most lines cannot contain a key.
func suspects(text string) []Span {
	var parts []Span
	for start := 0; start < len(text); {
		end := start + 1 + strings.IndexByte(text[start:], '\n')
		if end == start {
			end = len(text)
		}
		if mayHaveKey(text[start:end]) {
			p := Span{Start: linesBack(text, start), End: linesAhead(text, end)}
			if last := len(parts) - 1; last >= 0 && p.Start <= parts[last].End {
				parts[last].End = p.End
			} else {
				parts = append(parts, p)
			}
		}
		start = end
	}
	return parts
}

// A rule may look at this many lines, of this many bytes in all, before and after a key.
const aroundLines, aroundBytes = 3, 1000

// linesBack returns the start of the aroundLines lines before i, or an offset aroundBytes before i if that is later.
func linesBack(text string, i int) int {
	start := i
	for n := 0; n < aroundLines && start > 0; n++ {
		start = 1 + strings.LastIndexByte(text[:start-1], '\n')
	}
	return max(start, i-aroundBytes)
}

// linesAhead returns the end of the aroundLines lines from i on, or an offset aroundBytes after i if that is earlier.
func linesAhead(text string, i int) int {
	end := i
	for n := 0; n < aroundLines && end < len(text); n++ {
		next := strings.IndexByte(text[end:], '\n')
		if next < 0 {
			return min(len(text), i+aroundBytes)
		}
		end += next + 1
	}
	return min(end, i+aroundBytes)
}

// mayHaveKey reports whether a line has a run of characters that can be a key: 10 or more with a digit, or 30 or more.
func mayHaveKey(line string) bool {
	run, digit := 0, false
	for i := range len(line) {
		c := class[line[i]]
		if c&isKey == 0 {
			run, digit = 0, false
			continue
		}
		run++
		digit = digit || c&isDigit != 0
		if run >= 10 && digit || run >= 30 {
			return true
		}
	}
	return false
}

// whole extends a key in both directions, as far as there are characters of keys, because a rule may match only a part
// of it.
func whole(text string, start, end int) Span {
	for start > 0 && class[text[start-1]]&isKey != 0 && text[start-1] != '=' {
		start--
	}
	for end < len(text) && class[text[end]]&isKey != 0 {
		end++
	}
	return Span{start, end, Secret}
}

// findIn returns the keys in a text, in order.
func (s *secrets) findIn(text string) []Span {
	s.mu.Lock()
	findings := s.detector.DetectString(text)
	s.mu.Unlock()
	var found []Span
	seen := map[string]bool{"": true}
	for _, f := range findings {
		for at := 0; !seen[f.Secret]; {
			i := strings.Index(text[at:], f.Secret)
			if i < 0 {
				seen[f.Secret] = true
				break
			}
			found = append(found, Span{Start: at + i, End: at + i + len(f.Secret)})
			at += i + len(f.Secret)
		}
	}
	slices.SortFunc(found, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
	return found
}
