package selection

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Detail says how much of each tool a response contains.
type Detail string

// The levels of detail.
const (
	DetailName        Detail = "name"        // ids only
	DetailDescription Detail = "description" // one line: signature and first sentence
	DetailFull        Detail = "full"        // the whole definition
)

// ErrDetail is returned for a detail level that does not exist.
var ErrDetail = errors.New("unknown detail level, want name, description or full")

// The relative cut-off: a query gets every tool that scores at least CutOff of the best one, but no fewer than MinTools
// and no more than MaxTools.
const (
	CutOff   = 0.5
	MinTools = 5 // the default of Request.Floor
	MaxTools = 20
)

// Request asks for the tools of one or several queries. The zero value of every other field is a sensible default.
type Request struct {
	Queries []string         // one for each step finds more than one for all
	Detail  Detail           // default description
	Limit   int              // of tools in all; default MaxTools for each query
	Floor   int              // tools that a query gets whatever their score; default MinTools
	History *History         // of the tenant; may be nil
	Allow   func(*Tool) bool // nil allows all; must depend on the tool alone
	Explain bool
}

// Response holds the selected tools.
type Response struct {
	Servers   []ServerGroup `json:"servers"`   // in the order of their best tools
	Available int           `json:"available"` // tools that were searched
	Share     float64       `json:"share"`     // selected / available
	Queries   []QueryReport `json:"queries"`
	Degraded  string        `json:"degraded,omitempty"` // why embeddings are missing, if configured
}

// ServerGroup is the selected tools of one server, best first.
type ServerGroup struct {
	Server string `json:"server"`
	Tools  []Hit  `json:"tools"`
	More   int    `json:"more"` // other tools of this server
}

// Hit is one selected tool.
type Hit struct {
	ID          string       `json:"id"`
	Tool        string       `json:"tool"`
	Score       float64      `json:"score"` // relative to the best tool of its query, which has 1
	Signature   string       `json:"signature,omitempty"`
	Description string       `json:"description,omitempty"`
	Definition  *Tool        `json:"definition,omitempty"`
	Why         *Explanation `json:"why,omitempty"`
}

// QueryReport says how well one query matched.
type QueryReport struct {
	Query          string   `json:"query"`
	Tools          []string `json:"tools"`           // ids, best first
	Confidence     float64  `json:"confidence"`      // 0 … 1; low: perhaps no tool fits
	UnmatchedTerms []string `json:"unmatched_terms"` // stems that occur in no tool
}

// Select ranks the catalogue for each query and returns the union, grouped by server. The order depends on the
// request and the index alone: by score, then by id. A query without a word of any tool finds nothing.
func (s *Index) Select(r Request) (Response, error) {
	return s.selectWith(r, nil)
}

// selectWith fuses each query's local list with a dense one; dense may be nil or have empty entries.
func (s *Index) selectWith(r Request, dense []denseList) (Response, error) {
	if err := r.complete(); err != nil {
		return Response{}, err
	}
	response := Response{Available: s.Len()}
	best := map[int32]candidate{}
	for i, sentence := range r.Queries {
		found, q := s.rank(sentence, r.History, r.Allow, rankDepth)
		report := QueryReport{
			Query: sentence, Tools: []string{},
			UnmatchedTerms: append([]string{}, q.unmatched...), Confidence: confidence(found, q),
		}
		kept := cut(found, r.Floor)
		if i < len(dense) && len(dense[i].tools) > 0 {
			kept = cutFused(fuse(found, dense[i]), r.Floor)
			report.Confidence = max(report.Confidence, dense[i].confidence())
		}
		for _, c := range kept {
			c.score /= kept[0].score
			report.Tools = append(report.Tools, s.tools[c.tool].ID())
			if old, ok := best[c.tool]; !ok || better(c, old) {
				best[c.tool] = c
			}
		}
		response.Queries = append(response.Queries, report)
	}
	s.group(&response, best, r)
	return response, nil
}

const rankDepth = 60

func (r *Request) complete() error {
	if r.Detail == "" {
		r.Detail = DetailDescription
	}
	if r.Detail != DetailName && r.Detail != DetailDescription && r.Detail != DetailFull {
		return fmt.Errorf("%q: %w", r.Detail, ErrDetail)
	}
	if r.Limit <= 0 {
		r.Limit = MaxTools * max(1, len(r.Queries))
	}
	if r.Floor <= 0 {
		r.Floor = MinTools
	}
	return nil
}

// cut applies the relative cut-off.
func cut(found []candidate, floor int) []candidate {
	n := 0
	for n < len(found) && n < MaxTools && (n < floor || found[n].score >= CutOff*found[0].score) {
		n++
	}
	return found[:n]
}

// confidence compares the best score with the score of a tool that matches every word.
func confidence(found []candidate, q query) float64 {
	if len(found) == 0 || q.mass == 0 {
		return 0
	}
	matched := 1 - float64(len(q.unmatched))/float64(len(q.own))
	strength := float64(found[0].score) / (5 * math.Sqrt(float64(q.mass)))
	return round2(math.Min(1, strength) * matched)
}

func round2(x float64) float64 { return math.Round(100*x) / 100 }

func (s *Index) group(response *Response, best map[int32]candidate, r Request) {
	chosen := make([]candidate, 0, len(best))
	for _, c := range best {
		chosen = append(chosen, c)
	}
	sortBy(chosen, better)
	chosen = chosen[:min(len(chosen), r.Limit)]
	if s.Len() > 0 {
		response.Share = float64(len(chosen)) / float64(s.Len())
	}
	response.Servers = []ServerGroup{}
	for _, c := range chosen {
		t := &s.tools[c.tool]
		at := slices.IndexFunc(response.Servers, func(g ServerGroup) bool { return g.Server == t.Server })
		if at < 0 {
			at = len(response.Servers)
			first, last := s.serverRange(c.tool)
			response.Servers = append(response.Servers, ServerGroup{Server: t.Server, More: last - first})
		}
		g := &response.Servers[at]
		g.Tools, g.More = append(g.Tools, s.hit(c, r)), g.More-1
	}
}

// serverRange returns the positions [first, last) of the tools of a tool's server.
func (s *Index) serverRange(tool int32) (first, last int) {
	server := s.serverOf[tool]
	first, _ = slices.BinarySearch(s.serverOf, server)
	last, _ = slices.BinarySearch(s.serverOf, server+1)
	return first, last
}

func (s *Index) hit(c candidate, r Request) Hit {
	t := &s.tools[c.tool]
	h := Hit{ID: t.ID(), Tool: t.Name, Score: math.Round(float64(c.score)*1000) / 1000}
	switch r.Detail {
	case DetailName:
	case DetailDescription:
		h.Signature, h.Description = t.Signature, firstSentence(t.Description)
	case DetailFull:
		copied := *t
		h.Signature, h.Description, h.Definition = t.Signature, t.Description, &copied
	}
	if r.Explain {
		h.Why = s.explain(c, r)
	}
	return h
}

// firstSentence returns the first sentence of a description, at most 120 characters.
func firstSentence(d string) string {
	d = strings.Join(strings.Fields(d), " ")
	if i := strings.Index(d, ". "); i > 0 {
		d = d[:i+1]
	}
	if runes := []rune(d); len(runes) > 120 {
		d = string(runes[:119]) + "…"
	}
	return d
}

// Ranked returns the ids of the best tools for one sentence, best first, at most limit: the ranking without a cut-off.
func (s *Index) Ranked(sentence string, history *History, limit int) []string {
	found, _ := s.rank(sentence, history, nil, limit)
	ids := make([]string, len(found))
	for i, c := range found {
		ids[i] = s.tools[c.tool].ID()
	}
	return ids
}
