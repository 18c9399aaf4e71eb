package selection

import (
	"cmp"
	"fmt"
	"slices"
)

// Explanation holds the parts of a tool's score, and the terms that matched.
type Explanation struct {
	// Terms are the matched stems with the highest weights, at most eight, the highest first. A synonym or spelling
	// neighbour of a stem of the query is listed as "neighbour (for stem)".
	Terms   []string `json:"terms"`
	Lexical float64  `json:"lexical"`
	Clause  float64  `json:"clause"` // how well it fits one request of a query with several
	Server  float64  `json:"server"`
	Vectors float64  `json:"vectors"` // the similarity of word vectors
	Name    float64  `json:"name"`
	History float64  `json:"history"`
	Dense   float64  `json:"dense,omitempty"` // 1/(fusionRank + the rank by embeddings); 0 if it has none
	// OtherOperation reports whether the tool has a different operation from the query, or does the opposite, which
	// lowers its score.
	OtherOperation bool `json:"other_operation,omitempty"`
}

// explain returns the parts of a candidate's score, and the terms of the queries that it matches.
func (s *Index) explain(c candidate, r Request) *Explanation {
	e := &Explanation{
		Terms: []string{}, Lexical: round3(c.lexical), Clause: round3(c.clause), Server: round3(c.server),
		Vectors: round3(c.vectors), Name: round3(c.name), History: round3(c.history), Dense: round3(c.dense),
		OtherOperation: c.other,
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
				text = fmt.Sprintf("%s (for %s)", text, s.expandedFrom(text, q))
			}
			matches = append(matches, match{text, t.weight * s.lexical.impact[int(from)+i]})
		}
	}
	slices.SortFunc(matches, func(a, b match) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.text, b.text))
	})
	for _, m := range matches {
		if !slices.Contains(e.Terms, m.text) && len(e.Terms) < 8 {
			e.Terms = append(e.Terms, m.text)
		}
	}
	return e
}

// expandedFrom returns the query's term that has the given term as a synonym or spelling neighbour.
func (s *Index) expandedFrom(term string, q query) string {
	for _, own := range q.own {
		if slices.Contains(synonyms()[own], term) {
			return own
		}
	}
	for _, own := range q.own {
		if slices.ContainsFunc(s.spelling.neighbours(own), func(n neighbour) bool { return n.word == term }) {
			return own
		}
	}
	return "?"
}
