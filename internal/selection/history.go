package selection

import (
	"math"
	"slices"

	"github.com/codefleet/codefleet/internal/selection/terms"
)

// Past is one successful task: the description's terms, without literal values, and the ids of the tools that ran.
type Past struct {
	Terms []string `json:"terms"`
	Tools []string `json:"tools"`
}

// NewPast returns what the history keeps of a task. It contains no paths, addresses or quantities.
func NewPast(description string, tools []string) Past {
	found := terms.Query(description)
	return Past{Terms: found[:min(len(found), maxTerms)], Tools: tools}
}

// History is an index of one tenant's past tasks, which finds the tools of similar tasks. It is immutable and never
// shared between tenants. A nil History is empty. Tools that are no longer in the catalogue are ignored.
type History struct {
	tasks *postings
	tools [][]string // the ids of each task's tools
	self  []float32  // each task's score for its own description
}

const (
	similarTasks   = 10   // past tasks whose tools get votes
	priorTasks     = 20   // see postings.prior
	similarityLow  = 0.05 // with a lower similarity of the most similar task, the history has no weight
	similarityHigh = 0.4  // with this similarity, the weight is 1; a higher one adds the difference to it
)

// NewHistory indexes the past tasks that used tools. It returns nil if there are none.
func NewHistory(past []Past) *History {
	h := &History{}
	var terms [][]string
	for _, p := range past {
		if len(p.Tools) > 0 {
			terms = append(terms, p.Terms)
			h.tools = append(h.tools, p.Tools)
		}
	}
	if len(terms) == 0 {
		return nil
	}
	h.tasks = newPostings(len(terms), priorTasks, func(d int) []field { return []field{{1, terms[d]}} })
	h.self = make([]float32, len(terms))
	for t := range h.tasks.idf {
		for i := h.tasks.start[t]; i < h.tasks.start[t+1]; i++ {
			h.self[h.tasks.doc[i]] += h.tasks.impact[i]
		}
	}
	return h
}

// votes returns the weight that similar tasks give to each of their tools: 0 … 1 up to similarityHigh, and up to 1.6
// if a past task is the same. It returns nil if there are no similar tasks.
func (h *History) votes(s *Index, terms []string) map[int32]float32 {
	if h == nil {
		return nil
	}
	scores := make([]float32, len(h.tools))
	var mass float32
	for _, t := range terms {
		if id, ok := h.tasks.ids[t]; ok {
			h.tasks.add(scores, id, 1)
			mass += h.tasks.idf[id]
		} else {
			mass += float32(math.Log(1 + float64(2*(len(h.tools)+priorTasks))))
		}
	}
	best := newBestHeap(similarTasks) // past tasks: here a candidate's field tool is the number of a task
	for d, v := range scores {
		if v > 0 {
			// As in a cosine, the shared weight is divided by the geometric mean of both weights.
			score := min(1, v/float32(math.Sqrt(float64(mass*h.self[d])+1e-9)))
			c := candidate{tool: int32(d), score: score}
			if best.wants(c) {
				best.put(c)
			}
		}
	}
	return h.countVotes(s, best.sorted())
}

// countVotes returns the votes of similar tasks, which are sorted by similarity.
func (h *History) countVotes(s *Index, similar []candidate) map[int32]float32 {
	if len(similar) == 0 || similar[0].score < similarityLow {
		return nil
	}
	strength := min(1, (similar[0].score-similarityLow)/(similarityHigh-similarityLow))
	strength += max(0, similar[0].score-similarityHigh) // for nearly the same task, the history outweighs the words
	votes := map[int32]float32{}
	var largest float32
	for _, c := range similar {
		weight := c.score * c.score
		for _, id := range slices.Compact(slices.Sorted(slices.Values(h.tools[c.tool]))) {
			if tool, ok := s.position[id]; ok {
				votes[tool] += weight
				largest = max(largest, votes[tool])
			}
		}
	}
	for tool, v := range votes {
		votes[tool] = strength * v / largest
	}
	return votes
}
