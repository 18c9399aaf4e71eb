package selection

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/selection/terms"
)

const (
	synonymWeight  = 0.5  // of a term's synonym, relative to the term
	spellingWeight = 0.15 // of a term's spelling neighbour, relative to the term, times the similarity
	serverWeight   = 0.05 // times the score of the tool's server

	// The following weights are relative to the best lexical score of the query.

	clauseWeight  = 0.3
	vectorWeight  = 0.4  // times the similarity of the vectors
	historyWeight = 0.8  // times the votes, from 0 to 1, or up to 1.6 if a past task is nearly the same
	nameWeight    = 0.15 // times the share of the tool's name that the query mentions
	nameTerms     = 6    // terms of a query; a longer query mentions many words by chance, so names weigh less

	// otherOperation is the share of its score that a tool keeps if its operation differs from the query's, or is the
	// opposite.
	otherOperation = 0.6

	// oppositeConfidence is the share of its confidence that a query keeps if its best tool does the opposite.
	oppositeConfidence = 0.5

	repeatWeight   = 0.5 // times the logarithm of how often a word occurs in the query
	everydayWeight = 0.3 // the share of the weight that the most frequent words of English lose
	rareIdf        = 8.0 // a word with at least this inverse frequency in WordNet's glosses is not an everyday word

	minCosine  = 0.35 // the lowest similarity of vectors that counts if no tool matches a word of the query
	stepTerms  = 12   // terms of a query; a longer one is a task of several steps, so its operation is not compared
	maxTerms   = 256  // terms of a query; later ones are ignored
	maxClauses = 30   // clauses of a query; later ones are ignored
)

// scratch is the working memory of one ranking: scores of tools and servers, and weights of terms.
type scratch struct {
	lexical, clause, bestClause, server []float32
	terms                               []float32 // weights of the query's terms; all other weights are 0
}

func newScratch(tools, servers, terms int) *scratch {
	f := func(n int) []float32 { return make([]float32, n) }
	return &scratch{f(tools), f(tools), f(tools), f(servers), f(terms)}
}

// query is an analysed query.
type query struct {
	own       []string       // the distinct terms of the text, in order
	terms     []weightedTerm // the terms to search for, with synonyms and spelling neighbours
	unmatched []string       // own terms that match no word of the catalogue, not even by synonym or spelling
	mass      float32        // the score of a tool that matches each own term once
}

// analyse returns the terms of a sentence with their weights.
func (s *Index) analyse(sentence string) query {
	q := query{}
	times := map[string]int{}
	for _, t := range terms.Query(sentence) {
		if times[t] == 0 && len(q.own) < maxTerms {
			q.own = append(q.own, t)
		}
		times[t]++
	}
	weights := map[string]float32{}
	for _, t := range q.own {
		weight := s.ownWeight(t, times[t])
		if !s.expand(t, weight, weights, times) {
			q.unmatched = append(q.unmatched, t)
		}
		if id, ok := s.lexical.ids[t]; ok {
			q.mass += weight * s.lexical.idf[id]
		}
	}
	for t, w := range weights {
		q.terms = append(q.terms, weightedTerm{s.lexical.ids[t], w})
	}
	// The order must be the same each time, because the sum of floats depends on it.
	slices.SortFunc(q.terms, func(a, b weightedTerm) int { return int(a.id) - int(b.id) })
	return q
}

func largest(scores []float32) float32 {
	m := float32(0)
	for _, v := range scores {
		m = max(m, v)
	}
	return m
}

// ownWeight returns the weight of a term of the query. A repeated term weighs more, an everyday word less.
func (s *Index) ownWeight(term string, times int) float32 {
	weight := 1 + repeatWeight*float32(math.Log(float64(times)))
	if w, ok := s.table.Lookup(term); ok {
		weight *= 1 - everydayWeight + everydayWeight*min(1, w.Idf/rareIdf)
	}
	return weight
}

// expand sets the weights of a term, its synonyms and its spelling neighbours, and reports whether it set any. times
// holds how often each term occurs in the query.
func (s *Index) expand(term string, weight float32, weights map[string]float32, times map[string]int) bool {
	found := false
	put := func(word string, share float32) {
		weight := weight * share
		if _, ok := s.lexical.ids[word]; ok {
			weights[word] = max(weights[word], weight)
			found = true
		}
	}
	put(term, 1)
	for _, other := range synonyms()[term] {
		if times[other] == 0 {
			put(other, synonymWeight)
		}
	}
	weightOfSpelling := float32(spellingWeight)
	if !found { // the term may be misspelt
		weightOfSpelling = synonymWeight
	}
	for _, n := range s.spelling.neighbours(term) {
		if times[n.word] == 0 {
			put(n.word, weightOfSpelling*n.similarity)
		}
	}
	return found
}

// candidate is one tool in a ranking, with the parts of its score.
type candidate struct {
	tool                                                   int32
	score                                                  float32
	lexical, clause, server, vectors, history, name, dense float32

	other    bool // its operation is not the query's
	opposite bool // it does the opposite of what the query requests; then other is set, too

	kept bool // in a fused list, whether the tool is within the cut-off of one of the two lists
}

// compareCandidates sorts the best candidate first, and candidates with the same score by id.
func compareCandidates(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.tool, b.tool))
}

func better(a, b candidate) bool { return compareCandidates(a, b) < 0 }

// rank returns the best candidates for a sentence, best first.
func (s *Index) rank(sentence string, history *History, allowed func(*Tool) bool, limit int) ([]candidate, query) {
	w := s.scratch.Get().(*scratch) //nolint:errcheck,forcetypeassert // the pool contains nothing else
	defer s.scratch.Put(w)
	q := s.analyse(sentence)
	s.lexical.score(w.lexical, q.terms)
	top := largest(w.lexical)
	vector := s.queryVector(q.own)
	votes := history.votes(s, q.own)
	if top == 0 && vector == nil && votes == nil {
		return nil, q
	}
	s.scoreClauses(w, sentence)
	s.scoreServers(w, q)
	for _, t := range q.terms {
		w.terms[t.id] = min(1, t.weight)
		defer func() { w.terms[t.id] = 0 }()
	}
	g := signals{top: top, vector: vector, votes: votes, gloss: vectorWeight * vectorFactor(top, q)}
	g.name = nameWeight * min(1, nameTerms/float32(max(1, len(q.own))))
	if len(q.own) <= stepTerms {
		g.asked, g.opposing = operationsOf(sentence), s.opposing(sentence)
	}
	return s.sum(w, g, allowed, limit), q
}

// vectorFactor returns the factor for the vectors' weight, which is lower if the best lexical hit already covers the
// query.
func vectorFactor(top float32, q query) float32 {
	if q.mass == 0 {
		return 1
	}
	return 1 - min(1, top/(q.mass*(saturation+1)))*0.5
}

// signals are the inputs of sum besides the scores in the scratch memory.
type signals struct {
	top    float32 // the best lexical score
	gloss  float32 // the vectors' weight
	vector []int8  // the query's vector, or nil
	votes  map[int32]float32
	name   float32 // the names' weight
	asked  operations

	opposing map[int32]bool // the tools that do the opposite of what the query requests; none if it is long
}

// sum adds up the signals of each tool and returns the best candidates.
func (s *Index) sum(w *scratch, g signals, allowed func(*Tool) bool, limit int) []candidate {
	unit, least := g.top, float32(0)
	if unit == 0 {
		unit, least = 1, minCosine
	}
	best := newBestHeap(limit)
	for d := range s.tools {
		c := candidate{
			tool:    int32(d),
			lexical: w.lexical[d],
			clause:  clauseWeight * unit * w.bestClause[d],
			server:  serverWeight * w.server[s.serverOf[d]],
			history: historyWeight * unit * g.votes[int32(d)],
			name:    g.name * unit * s.mentioned(d, w.terms),
		}
		if g.vector != nil {
			if similarity := cosine(g.vector, s.vectors[d*dims:]); similarity > least {
				c.vectors = g.gloss * unit * similarity
			}
		}
		c.score = c.lexical + c.clause + c.server + c.vectors + c.history + c.name
		c.opposite = g.opposing[int32(d)]
		if c.other = c.opposite || g.asked.conflictsWith(s.does[d]); c.other {
			c.score *= otherOperation
		}
		if c.score > 0 && best.wants(c) && (allowed == nil || allowed(&s.tools[d])) {
			best.put(c)
		}
	}
	return best.sorted()
}

// scoreClauses scores the tools for each clause, relative to the clause's best tool. It sets bestClause to each tool's
// highest score.
func (s *Index) scoreClauses(w *scratch, sentence string) {
	clear(w.bestClause)
	parts := clauses(sentence)
	if len(parts) < 2 {
		return
	}
	for _, part := range parts {
		q := s.analyse(part)
		s.lexical.score(w.clause, q.terms)
		if top := largest(w.clause); top > 0 {
			for d, v := range w.clause {
				w.bestClause[d] = max(w.bestClause[d], v/top)
			}
		}
	}
}

// mentioned returns the share of a tool's name, without its operation, that the query mentions: 0 to 1.
func (s *Index) mentioned(tool int, terms []float32) float32 {
	sum, all := float32(0), float32(0)
	for _, id := range s.names[tool] {
		idf := s.lexical.idf[id]
		sum, all = sum+terms[id]*idf, all+idf
	}
	if all == 0 {
		return 0
	}
	return sum / all
}

// scoreServers scores each server for the query's own terms.
func (s *Index) scoreServers(w *scratch, q query) {
	clear(w.server)
	for _, t := range q.own {
		if id, ok := s.servers.ids[t]; ok {
			s.servers.add(w.server, id, 1)
		}
	}
}

// clauses splits a sentence into its requests.
func clauses(sentence string) []string {
	sentence = terms.Literals(sentence)
	var out []string
	ends := func(r rune) bool { return strings.ContainsRune(".;!?\n,:", r) }
	for _, part := range strings.FieldsFunc(sentence, ends) {
		for p := range strings.SplitSeq(strings.ReplaceAll(part, " then ", " and "), " and ") {
			if len(strings.Fields(p)) >= 2 && len(out) < maxClauses {
				out = append(out, p)
			}
		}
	}
	return out
}

// bestHeap keeps the best candidates, up to limit, in a heap whose root is the worst one.
type bestHeap struct {
	limit int
	heap  []candidate
}

func newBestHeap(limit int) *bestHeap {
	return &bestHeap{limit: limit, heap: make([]candidate, 0, min(limit, 256))}
}

// wants reports whether put would keep a candidate.
func (t *bestHeap) wants(c candidate) bool { return len(t.heap) < t.limit || better(c, t.heap[0]) }

// put adds a candidate that the heap wants.
func (t *bestHeap) put(c candidate) {
	if len(t.heap) < t.limit {
		t.heap = append(t.heap, c)
		for i := len(t.heap) - 1; i > 0 && better(t.heap[(i-1)/2], t.heap[i]); i = (i - 1) / 2 {
			t.heap[i], t.heap[(i-1)/2] = t.heap[(i-1)/2], t.heap[i]
		}
		return
	}
	t.heap[0] = c
	for i := 0; ; {
		worst := i
		for _, child := range []int{2*i + 1, 2*i + 2} {
			if child < len(t.heap) && better(t.heap[worst], t.heap[child]) {
				worst = child
			}
		}
		if worst == i {
			return
		}
		t.heap[i], t.heap[worst] = t.heap[worst], t.heap[i]
		i = worst
	}
}

// sorted returns the candidates, best first. The heap must not be used afterwards.
func (t *bestHeap) sorted() []candidate {
	slices.SortFunc(t.heap, compareCandidates)
	return t.heap
}
