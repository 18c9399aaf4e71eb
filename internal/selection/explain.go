package selection

import (
	"fmt"
	"math"
	"slices"
)

// Explanation holds the parts of a tool's score.
type Explanation struct {
	Terms   []string `json:"terms"` // matched words by weight: "stem" or "stem (for word)"
	Lexical float64  `json:"lexical"`
	Clause  float64  `json:"clause"`
	Server  float64  `json:"server"`
	Vectors float64  `json:"vectors"`
	History float64  `json:"history"`
	Dense   float64  `json:"dense,omitempty"`
}

func (s *Index) explain(c candidate, r Request) *Explanation {
	round := func(v float32) float64 { return math.Round(float64(v)*1000) / 1000 }
	e := &Explanation{
		Terms: []string{}, Lexical: round(c.lexical), Clause: round(c.clause), Server: round(c.server),
		Vectors: round(c.gloss), History: round(c.history), Dense: round(c.fusion),
	}
	names := make(map[int32]string, len(s.lexical.ids))
	for w, id := range s.lexical.ids {
		names[id] = w
	}
	type match struct {
		text   string
		weight float32
	}
	var matches []match
	for _, sentence := range r.Queries {
		q := s.analyse(sentence)
		for _, t := range q.terms {
			from, to := s.lexical.start[t.id], s.lexical.start[t.id+1]
			i, ok := slices.BinarySearch(s.lexical.doc[from:to], c.tool)
			if !ok {
				continue
			}
			text := names[t.id]
			if !slices.Contains(q.own, text) {
				text = fmt.Sprintf("%s (for %s)", text, s.reason(text, q))
			}
			matches = append(matches, match{text, t.weight * s.lexical.impact[int(from)+i]})
		}
	}
	sortBy(matches, func(a, b match) bool { return a.weight > b.weight || a.weight == b.weight && a.text < b.text })
	for _, m := range matches {
		if !slices.Contains(e.Terms, m.text) && len(e.Terms) < 8 {
			e.Terms = append(e.Terms, m.text)
		}
	}
	return e
}

// reason returns the word of the query whose synonym or spelling neighbour the term is.
func (s *Index) reason(term string, q query) string {
	for _, own := range q.own {
		if slices.Contains(synonyms()[own], term) {
			return own
		}
	}
	for _, own := range q.own {
		if slices.ContainsFunc(s.spelling.near(own), func(n neighbour) bool { return n.word == term }) {
			return own
		}
	}
	return "?"
}
