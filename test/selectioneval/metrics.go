package selectioneval

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// Metrics are those of the ranking for one query, or their means over a set's queries. Each is between 0 and 1.
type Metrics struct {
	Recall1  float64
	Recall5  float64
	Recall10 float64
	Hit3     float64
	Comp10   float64 // the share of queries whose groups are all found among the first ten tools
	NDCG10   float64
	MRR      float64
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

// groups returns the groups of interchangeable tools. The query needs one tool of each.
func (q Query) groups() [][]string {
	groups := q.Groups
	if len(groups) == 0 {
		for _, id := range q.Relevant {
			groups = append(groups, []string{id})
		}
	}
	return groups
}

// Share returns the share of the query's groups that the given tools cover, between 0 and 1.
func (q Query) Share(ids []string) float64 {
	found, groups := 0.0, q.groups()
	for _, g := range groups {
		if slices.ContainsFunc(g, func(id string) bool { return slices.Contains(ids, id) }) {
			found++
		}
	}
	return found / float64(max(1, len(groups)))
}

// measure computes the metrics of one ranking.
func measure(q Query, ranked []string) Metrics {
	groups := q.groups()
	ranks := make([]int, 0, len(groups)) // rank of each group's best tool, from 1
	for _, g := range groups {
		if i := slices.IndexFunc(ranked, func(id string) bool { return slices.Contains(g, id) }); i >= 0 {
			ranks = append(ranks, i+1)
		}
	}
	slices.Sort(ranks)
	within := func(k int) float64 {
		n, _ := slices.BinarySearch(ranks, k+1)
		return float64(n)
	}
	total := float64(max(len(groups), 1))
	m := Metrics{
		Recall1: within(1) / total, Recall5: within(5) / total, Recall10: within(10) / total,
		Hit3: min(1, within(3)), NDCG10: ndcg(q, ranked, ranks, len(groups)),
	}
	if within(10) == total {
		m.Comp10 = 1
	}
	if len(ranks) > 0 {
		m.MRR = 1 / float64(ranks[0])
	}
	return m
}

// ndcg returns nDCG@10. The gain is the tool's grade if the query has grades, and otherwise 1 for the best tool of each
// group.
func ndcg(q Query, ranked []string, ranks []int, groups int) float64 {
	var got, best float64
	if len(q.Grades) > 0 {
		for i, id := range ranked[:min(10, len(ranked))] {
			got += q.Grades[id] / math.Log2(float64(i+2))
		}
		ideal := slices.SortedFunc(maps.Values(q.Grades), func(a, b float64) int { return cmp.Compare(b, a) })
		for i, g := range ideal[:min(10, len(ideal))] {
			best += g / math.Log2(float64(i+2))
		}
	} else {
		for _, rank := range ranks {
			if rank <= 10 {
				got += 1 / math.Log2(float64(rank+1))
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
