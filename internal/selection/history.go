package selection

import (
	"math"
	"slices"

	"github.com/codefleet/codefleet/internal/selection/terms"
)

// Past is one successful task: the terms of its description, without values, and the ids of the tools that ran.
type Past struct {
	Terms []string `json:"terms"`
	Tools []string `json:"tools"`
}

// NewPast returns what the history keeps of a task: no paths, addresses or quantities.
func NewPast(description string, tools []string) Past {
	terms := terms.Query(description)
	return Past{Terms: terms[:min(len(terms), maxTerms)], Tools: tools}
}

// History is an index of one tenant's past tasks that finds the tools of similar ones. It is immutable and never shared
// between tenants. A nil History is empty. Tools that are no longer in the catalogue are ignored.
type History struct {
	tasks *postings
	used  [][]string
	self  []float32 // the score of a task against itself
}

const (
	neighbours     = 10
	imagined       = 20   // past tasks, see postings.prior
	similarityLow  = 0.05 // below it the history has no weight
	similarityHigh = 0.4  // above it the history has its full weight
)

// NewHistory indexes past tasks with tools; nil if there are none.
func NewHistory(past []Past) *History {
	h := &History{}
	var terms [][]string
	for _, p := range past {
		if len(p.Tools) > 0 {
			terms = append(terms, p.Terms)
			h.used = append(h.used, p.Tools)
		}
	}
	if len(terms) == 0 {
		return nil
	}
	h.tasks = newPostings(len(terms), imagined, func(d int) []field { return []field{{1, terms[d]}} })
	h.self = make([]float32, len(terms))
	for t := range h.tasks.idf {
		for i := h.tasks.start[t]; i < h.tasks.start[t+1]; i++ {
			h.self[h.tasks.doc[i]] += h.tasks.impact[i]
		}
	}
	return h
}

// votes returns the weight that similar tasks give to each of their tools, 0 … 1; nil without similar tasks.
func (h *History) votes(s *Index, terms []string) map[int32]float32 {
	if h == nil {
		return nil
	}
	scores := make([]float32, len(h.used))
	var mass float32
	for _, t := range terms {
		if id, ok := h.tasks.ids[t]; ok {
			h.tasks.add(scores, id, 1)
			mass += h.tasks.idf[id]
		} else {
			mass += float32(math.Log(1 + float64(2*(len(h.used)+imagined))))
		}
	}
	best := newTop(neighbours)
	for d, v := range scores {
		if v > 0 {
			// Like a cosine: the shared weight against the geometric mean of both sides' weights.
			c := candidate{tool: int32(d), score: v / float32(math.Sqrt(float64(mass*h.self[d])+1e-9))}
			if best.wants(c) {
				best.put(c)
			}
		}
	}
	return h.poll(s, best.sorted())
}

func (h *History) poll(s *Index, similar []candidate) map[int32]float32 {
	if len(similar) == 0 || similar[0].score < similarityLow {
		return nil
	}
	gate := min(1, (similar[0].score-similarityLow)/(similarityHigh-similarityLow))
	gate += max(0, similar[0].score-similarityHigh) // nearly the same task: the history outweighs the words
	votes := map[int32]float32{}
	var largest float32
	for _, c := range similar {
		weight := c.score * c.score
		for _, id := range slices.Compact(slices.Sorted(slices.Values(h.used[c.tool]))) {
			if tool, ok := s.position[id]; ok {
				votes[tool] += weight
				largest = max(largest, votes[tool])
			}
		}
	}
	for tool, v := range votes {
		votes[tool] = gate * v / largest
	}
	return votes
}
