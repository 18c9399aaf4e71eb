package selection

import (
	"math"
	"slices"
)

// The parameters of BM25F, which weights and adds the term frequencies of all fields before they saturate.
const (
	saturation = 3.0  // k1
	lengthNorm = 0.65 // b
)

// field is one searched part of a document.
type field struct {
	weight float32
	terms  []string
}

// postings is an immutable inverted index. It holds the documents of each term, and the term's impact in each document.
type postings struct {
	docs   int
	prior  int              // imaginary documents without terms, so that words of a small index do not count as common
	ids    map[string]int32 // by term
	idf    []float32        // by term
	start  []uint32         // the postings of term t are [start[t], start[t+1])
	doc    []int32          // by posting
	impact []float32        // by posting; the saturated frequency times idf
}

// posting counts a term in one field of a document. Its impact is not known yet, because that depends on the average
// length of the field.
type posting struct {
	term, doc int32
	field     uint8
	count     uint16
}

// newPostings indexes the documents 0 … docs-1. fields returns a document's fields, always in the same order.
func newPostings(docs, prior int, fields func(doc int) []field) *postings {
	x := &postings{docs: docs, prior: prior, ids: map[string]int32{}}
	var (
		raw     []posting
		weights []float32
		lengths [][]float32 // by field, by document
		average []float64
	)
	for d := range docs {
		parts := fields(d)
		if lengths == nil {
			n := len(parts)
			weights, lengths, average = make([]float32, n), make([][]float32, n), make([]float64, n)
			for f := range parts {
				weights[f], lengths[f] = parts[f].weight, make([]float32, docs)
			}
		}
		for f, part := range parts {
			raw = x.appendPostings(raw, int32(d), uint8(f), part.terms)
			lengths[f][d] = float32(len(part.terms))
			average[f] += float64(len(part.terms)) / float64(docs)
		}
	}
	x.invert(raw, func(p posting) float32 {
		relative := float32(1)
		if average[p.field] > 0 {
			relative = lengths[p.field][p.doc] / float32(average[p.field])
		}
		return weights[p.field] * float32(p.count) / (1 - lengthNorm + lengthNorm*relative)
	})
	return x
}

// appendPostings appends postings for the terms of a field. Repeated terms of a short field share a posting.
func (x *postings) appendPostings(raw []posting, doc int32, f uint8, terms []string) []posting {
	from := len(raw)
next:
	for _, t := range terms {
		id, ok := x.ids[t]
		if !ok {
			id = int32(len(x.ids))
			x.ids[t] = id
		}
		if len(raw)-from < 64 { // in a longer field, invert merges the postings
			for i := from; i < len(raw); i++ {
				if raw[i].term == id && raw[i].count < math.MaxUint16 {
					raw[i].count++
					continue next
				}
			}
		}
		raw = append(raw, posting{term: id, doc: doc, field: f, count: 1})
	}
	return raw
}

// invert sorts the postings by term, with a counting sort that keeps the order of documents. It adds up the
// frequencies of a term in the fields of a document, and computes the impacts.
func (x *postings) invert(raw []posting, frequency func(posting) float32) {
	terms := len(x.ids)
	at := make([]uint32, terms+1)
	for _, p := range raw {
		at[p.term+1]++
	}
	for t := range terms {
		at[t+1] += at[t]
	}
	order := make([]int32, len(raw))
	next := slices.Clone(at)
	for i, p := range raw {
		order[next[p.term]] = int32(i)
		next[p.term]++
	}
	x.start, x.idf = make([]uint32, terms+1), make([]float32, terms)
	for t := range terms {
		from := len(x.doc)
		for _, i := range order[at[t]:at[t+1]] {
			p := raw[i]
			if n := len(x.doc); n > from && x.doc[n-1] == p.doc {
				x.impact[n-1] += frequency(p)
				continue
			}
			x.doc, x.impact = append(x.doc, p.doc), append(x.impact, frequency(p))
		}
		x.start[t+1] = uint32(len(x.doc))
		df := float64(len(x.doc) - from)
		x.idf[t] = float32(math.Log(1 + (float64(x.docs+x.prior)-df+0.5)/(df+0.5)))
		for i := from; i < len(x.doc); i++ {
			tf := x.impact[i]
			x.impact[i] = x.idf[t] * tf * (saturation + 1) / (saturation + tf)
		}
	}
	x.doc, x.impact = slices.Clip(x.doc), slices.Clip(x.impact)
}

// add adds weight times the impact of a term to the scores of its documents.
func (x *postings) add(scores []float32, term int32, weight float32) {
	from, to := x.start[term], x.start[term+1]
	impact := x.impact[from:to]
	for i, d := range x.doc[from:to] {
		scores[d] += weight * impact[i]
	}
}

// weightedTerm is one term of a query.
type weightedTerm struct {
	id     int32
	weight float32
}

// score sets the documents' scores to the sum over the terms.
func (x *postings) score(scores []float32, terms []weightedTerm) {
	clear(scores)
	for _, t := range terms {
		x.add(scores, t.id, t.weight)
	}
}

// toolFields returns the searched fields of a tool. They include the server's name, so that "slack" finds its tools.
func toolFields(t *Tool, analyse func(string) []string) []field {
	var names, described []string
	for _, p := range t.Params {
		names = append(names, analyse(p.Name)...)
		described = append(described, analyse(p.Description)...)
		for _, e := range p.Enum {
			described = append(described, analyse(e)...)
		}
	}
	return []field{
		{3, analyse(t.Name)},
		{1, analyse(t.Description)},
		{0.5, names},
		{0.3, described},
		{1, append(slices.Clone(analyse(t.Server)), analyse(t.ServerTitle)...)},
		{0.5, analyse(t.ServerDescription)},
	}
}
