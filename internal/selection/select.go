package selection

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/codefleet/codefleet/internal/selection/terms"
	"github.com/codefleet/codefleet/internal/text"
)

// Detail determines how much of each tool a response contains.
type Detail string

// The levels of detail.
const (
	DetailName        Detail = "name"        // ids only
	DetailDescription Detail = "description" // the signature and the description's first sentence
	DetailFull        Detail = "full"        // the whole definition
)

// ErrDetail is returned for an unknown detail level.
var ErrDetail = errors.New("unknown detail level; want one of name, description, full")

// The relative cut-off: a query selects all tools with at least CutOff times the best tool's score, but at least
// MinTools and at most MaxTools.
const (
	CutOff   = 0.5
	MinTools = 5 // the default of Request.Min
	MaxTools = 20
)

// Request asks for the tools of one or several queries. The zero values of all fields but Queries are the defaults.
type Request struct {
	Queries []string         // one query for each step finds more than one query for the whole task
	Detail  Detail           // the default is description
	Limit   int              // maximum number of tools for each query; default and maximum MaxTools
	Min     int              // number of tools that a query selects whatever their score; the default is MinTools
	History *History         // the tenant's; may be nil
	Allow   func(*Tool) bool // nil allows all tools; the result must depend on the tool alone
	Explain bool             // adds Hit.Why
}

// Response holds the selected tools.
type Response struct {
	Servers   []ServerGroup `json:"servers"`   // in the order of their best tools
	Available int           `json:"available"` // number of tools in the index, allowed or not
	Share     float64       `json:"share"`     // selected tools / available tools
	Queries   []QueryReport `json:"queries"`
	Degraded  string        `json:"degraded,omitempty"` // why configured embeddings were not used for all tools
}

// ServerGroup holds the selected tools of one server, best first.
type ServerGroup struct {
	Server string `json:"server"`
	Tools  []Hit  `json:"tools"`
	More   int    `json:"more"` // number of the server's other tools
}

// Hit is one selected tool.
type Hit struct {
	ID          string       `json:"id"`
	Tool        string       `json:"tool"`
	Score       float64      `json:"score"` // the query's best tool has 1
	Import      string       `json:"import,omitempty"`
	Signature   string       `json:"signature,omitempty"`
	Description string       `json:"description,omitempty"`
	Definition  *Tool        `json:"definition,omitempty"`
	Why         *Explanation `json:"why,omitempty"`
}

// QueryReport says how well one query matched.
type QueryReport struct {
	Query          string   `json:"query"`
	Tools          []string `json:"tools"`           // ids, best first
	Confidence     float64  `json:"confidence"`      // 0 … 1; if it is low, perhaps no tool fits
	UnmatchedTerms []string `json:"unmatched_terms"` // words of the query that match no word of a tool
}

// maxSearched is how many bytes of a sentence wordsOf searches.
const maxSearched = 64 << 10

// wordsOf returns, for each of the missing terms, the first word of the sentence from which the term comes, or the term
// itself if there is no such word. It returns each word once.
func wordsOf(sentence string, missing []string) []string {
	firsts := make(map[string]string, len(missing)) // "" until a word is found
	for _, term := range missing {
		firsts[term] = ""
	}
	isSeparator := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	for word := range strings.FieldsFuncSeq(sentence[:min(len(sentence), maxSearched)], isSeparator) {
		for _, term := range terms.Query(word) {
			if first, ok := firsts[term]; ok && first == "" {
				firsts[term] = strings.ToLower(word)
			}
		}
	}
	words, listed := make([]string, 0, len(missing)), map[string]bool{}
	for _, term := range missing {
		if word := cmp.Or(firsts[term], term); !listed[word] {
			listed[word], words = true, append(words, word)
		}
	}
	return words
}

// Select ranks the catalogue for each query and returns the union, grouped by server. The order is by score, then by
// id, and depends only on the request and the index. A query that matches no tool selects none.
func (s *Index) Select(r Request) (Response, error) {
	return s.selectWith(r, nil)
}

// selectWith fuses each query's local list with its dense list, if dense has one.
func (s *Index) selectWith(r Request, dense []denseList) (Response, error) {
	if err := r.setDefaults(); err != nil {
		return Response{}, err
	}
	response := Response{Available: s.Len()}
	best := map[int32]candidate{}
	for i, sentence := range r.Queries {
		found, q := s.rank(sentence, r.History, r.Allow, rankDepth)
		report := QueryReport{
			Query: sentence, Tools: []string{},
			UnmatchedTerms: wordsOf(sentence, q.unmatched), Confidence: confidence(found, q),
		}
		kept := cutOff(found, r.Min)
		if i < len(dense) && len(dense[i].tools) > 0 {
			kept = cutFused(fuse(found, dense[i]), r.Min)
			report.Confidence = max(report.Confidence, dense[i].confidence())
		}
		if len(kept) > 0 && kept[0].opposite {
			report.Confidence = round2(oppositeConfidence * report.Confidence)
		}
		for _, c := range kept[:min(len(kept), r.Limit)] {
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

// rankDepth is the number of candidates for each query before the cut-off.
const rankDepth = 60

// setDefaults sets the defaults of the fields that are zero or negative. It returns ErrDetail for an unknown level of
// detail.
func (r *Request) setDefaults() error {
	r.Detail = cmp.Or(r.Detail, DetailDescription)
	if r.Detail != DetailName && r.Detail != DetailDescription && r.Detail != DetailFull {
		return fmt.Errorf("%q: %w", r.Detail, ErrDetail)
	}
	if r.Limit <= 0 {
		r.Limit = MaxTools
	}
	if r.Min <= 0 {
		r.Min = MinTools
	}
	return nil
}

// cutOff applies the relative cut-off.
func cutOff(found []candidate, minimum int) []candidate {
	n := 0
	for n < len(found) && n < MaxTools && (n < minimum || found[n].score >= CutOff*found[0].score) {
		n++
	}
	return found[:n]
}

// confidence compares the best score with the score of a tool that matches all terms, and multiplies the outcome by the
// share of the query's terms that match a tool.
func confidence(found []candidate, q query) float64 {
	if len(found) == 0 || q.mass == 0 {
		return 0
	}
	matched := 1 - float64(len(q.unmatched))/float64(len(q.own))
	strength := float64(found[0].score) / (5 * math.Sqrt(float64(q.mass)))
	return round2(math.Min(1, strength) * matched)
}

func round2(x float64) float64 { return math.Round(100*x) / 100 }

func round3(x float32) float64 { return math.Round(float64(x)*1000) / 1000 }

// group adds the best candidates to the response, by server.
func (s *Index) group(response *Response, best map[int32]candidate, r Request) {
	chosen := slices.SortedFunc(maps.Values(best), compareCandidates)
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

// serverRange returns the positions [first, last) of all tools that have the same server as a tool.
func (s *Index) serverRange(tool int32) (first, last int) {
	server := s.serverOf[tool]
	first, _ = slices.BinarySearch(s.serverOf, server)
	last, _ = slices.BinarySearch(s.serverOf, server+1)
	return first, last
}

func (s *Index) hit(c candidate, r Request) Hit {
	t := &s.tools[c.tool]
	h := Hit{ID: t.ID(), Tool: t.Name, Score: round3(c.score), Import: t.Import}
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

// firstSentence returns a description's first sentence, truncated to 120 characters.
func firstSentence(d string) string {
	d = text.OneLine(d)
	if i := strings.Index(d, ". "); i > 0 {
		d = d[:i+1]
	}
	if runes := []rune(d); len(runes) > 120 {
		d = string(runes[:119]) + "…"
	}
	return d
}

// Ranked returns the ids of the best tools for a sentence, best first, without a cut-off.
func (s *Index) Ranked(sentence string, history *History, limit int) []string {
	found, _ := s.rank(sentence, history, nil, limit)
	ids := make([]string, len(found))
	for i, c := range found {
		ids[i] = s.tools[c.tool].ID()
	}
	return ids
}
