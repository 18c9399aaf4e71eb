package selectioneval

import (
	"cmp"
	"math"
	"slices"
)

// Metrics are means over the queries of a set, each 0 … 1.
type Metrics struct {
	Recall1  float64 `json:"recall_1"`
	Recall5  float64 `json:"recall_5"`
	Recall10 float64 `json:"recall_10"`
	Hit3     float64 `json:"hit_3"`
	Comp10   float64 `json:"complete_10"` // every group found in the first ten
	NDCG10   float64 `json:"ndcg_10"`
	MRR      float64 `json:"mrr"`
}

func (m *Metrics) add(o Metrics, weight float64) {
	m.Recall1 += weight * o.Recall1
	m.Recall5 += weight * o.Recall5
	m.Recall10 += weight * o.Recall10
	m.Hit3 += weight * o.Hit3
	m.Comp10 += weight * o.Comp10
	m.NDCG10 += weight * o.NDCG10
	m.MRR += weight * o.MRR
}

// groups returns the sets of interchangeable tools; a query needs one tool of each.
func (q Query) groups() [][]string {
	groups := q.Groups
	if len(groups) == 0 {
		for _, id := range q.Relevant {
			groups = append(groups, []string{id})
		}
	}
	return groups
}

// Share returns the share of the query's groups that the given tools cover, 0 … 1.
func (q Query) Share(ids []string) float64 {
	found, groups := 0.0, q.groups()
	for _, g := range groups {
		if slices.ContainsFunc(g, func(id string) bool { return slices.Contains(ids, id) }) {
			found++
		}
	}
	return found / float64(max(1, len(groups)))
}

// measure scores one ranking, best first.
func measure(q Query, ranked []string) Metrics {
	groups := q.groups()
	first := make([]int, 0, len(groups)) // the place of each group's best member
	for _, g := range groups {
		if place := slices.IndexFunc(ranked, func(id string) bool { return slices.Contains(g, id) }); place >= 0 {
			first = append(first, place+1)
		}
	}
	slices.Sort(first)
	within := func(k int) float64 {
		n, _ := slices.BinarySearch(first, k+1)
		return float64(n)
	}
	total := float64(max(len(groups), 1))
	m := Metrics{
		Recall1: within(1) / total, Recall5: within(5) / total, Recall10: within(10) / total,
		Hit3: min(1, within(3)), NDCG10: gain(q, ranked, first, len(groups)),
	}
	if within(10) == total {
		m.Comp10 = 1
	}
	if len(first) > 0 {
		m.MRR = 1 / float64(first[0])
	}
	return m
}

// gain is nDCG at ten: binary at the first member of each group, or linear when the query has grades.
func gain(q Query, ranked []string, first []int, groups int) float64 {
	var got, best float64
	if len(q.Grades) > 0 {
		var ideal []float64
		for i, id := range ranked[:min(10, len(ranked))] {
			got += q.Grades[id] / math.Log2(float64(i+2))
		}
		for _, g := range q.Grades {
			ideal = append(ideal, g)
		}
		slices.SortFunc(ideal, func(a, b float64) int { return cmp.Compare(b, a) })
		for i, g := range ideal[:min(10, len(ideal))] {
			best += g / math.Log2(float64(i+2))
		}
	} else {
		for _, p := range first {
			if p <= 10 {
				got += 1 / math.Log2(float64(p+1))
			}
		}
		for i := range min(groups, 10) {
			best += 1 / math.Log2(float64(i+2))
		}
	}
	if best == 0 {
		return 0
	}
	return got / best
}
