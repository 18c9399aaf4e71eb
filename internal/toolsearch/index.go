package toolsearch

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/codegen/rules"
	"github.com/codefleet/codefleet/internal/selection"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
)

// Index finds the tools of one catalogue that programs may call. It is safe for concurrent use.
type Index struct {
	Listing *tools.Listing
	Usable  []tools.Tool // the tools that programs may call

	ranking func() ranking
	tokens  func() []int           // sizes of the definitions of Usable in a prompt
	skills  map[string]tools.Skill // by name
}

func newIndex(listing *tools.Listing, embeddings *Embeddings) *Index {
	x := &Index{Listing: listing, skills: map[string]tools.Skill{}}
	for _, k := range listing.Skills {
		x.skills[k.Name] = k
	}
	for _, t := range listing.Tools {
		if t.Usable() {
			x.Usable = append(x.Usable, t)
		}
	}
	x.ranking = sync.OnceValue(func() ranking {
		list := make([]selection.Tool, len(x.Usable), len(x.Usable)+len(listing.Skills))
		for i, t := range x.Usable {
			list[i] = selectionTool(t)
		}
		for _, k := range listing.Skills {
			list = append(list, skillAsTool(k))
		}
		return embeddings.ranking(selection.Build(list))
	})
	x.tokens = sync.OnceValue(func() []int {
		tokens := make([]int, len(x.Usable))
		for i, t := range x.Usable {
			tokens[i] = codegen.Tokens(t.ID() + t.Signature + t.Description + string(t.InputSchema))
		}
		return tokens
	})
	return x
}

// Select ranks the tools for one or several queries. It uses embeddings if they are ready.
func (x *Index) Select(ctx context.Context, r selection.Request) (selection.Response, error) {
	return x.ranking().Select(ctx, r)
}

// Words returns the index without embeddings.
func (x *Index) Words() *selection.Index { return x.ranking().local }

// Permitted yields the usable tools that an allow-list permits (see broker.Allowed), with their positions in Usable.
func (x *Index) Permitted(allow []string) iter.Seq2[int, tools.Tool] {
	return func(yield func(int, tools.Tool) bool) {
		for i, t := range x.Usable {
			if broker.Allowed(allow, t.Server, t.Name) && !yield(i, t) {
				return
			}
		}
	}
}

// Count returns how many tools an allow-list permits.
func (x *Index) Count(allow []string) (n int) {
	for range x.Permitted(allow) {
		n++
	}
	return n
}

// DefinitionTokens returns how many tokens the definitions of all permitted tools would take in a prompt.
func (x *Index) DefinitionTokens(allow []string) (sum int) {
	tokens := x.tokens()
	for i := range x.Permitted(allow) {
		sum += tokens[i]
	}
	return sum
}

const (
	maxQueries    = 20  // a description with more clauses is searched as one query
	minConfidence = 0.2 // clauses below it add no tools, unless all clauses are below it
)

// Wanted describes the tools that a task needs.
type Wanted struct {
	Description string
	Allow       []string           // the allow-list, for broker.Allowed
	Max         int                // limit of tools; default and maximum selection.MaxTools
	History     *selection.History // the tenant's tool history; may be nil
}

// Pick returns the ids of the tools that a task needs. First come the best tool of each clause and the best of those
// that similar tasks used before, then the second best of each, and so on. degraded is why embeddings, although the
// fleet has them, were not used for all tools.
func (x *Index) Pick(ctx context.Context, w Wanted) (ids []string, degraded string, err error) {
	queries := rules.Clauses(w.Description)
	if len(queries) == 0 || len(queries) > maxQueries {
		queries = []string{w.Description}
	}
	request := selection.Request{
		Queries: queries, Detail: selection.DetailName, Min: 1,
		Allow: func(tool *selection.Tool) bool {
			return !x.isSkill(tool) && broker.Allowed(w.Allow, tool.Server, tool.Name)
		},
	}
	found, err := x.Select(ctx, request)
	if err != nil {
		return nil, "", err
	}
	var confident, all [][]string
	for _, q := range found.Queries {
		all = append(all, q.Tools)
		if q.Confidence >= minConfidence {
			confident = append(confident, q.Tools)
		}
	}
	if len(confident) == 0 {
		confident = all
	}
	if w.History != nil {
		request.Queries, request.History, request.Explain = []string{w.Description}, w.History, true
		found, err := x.Words().Select(request)
		if err != nil {
			return nil, "", err
		}
		confident = append(confident, fromHistory(found))
	}
	limit := min(cmp.Or(w.Max, selection.MaxTools), selection.MaxTools)
	return interleave(confident, limit), found.Degraded, nil
}

// fromHistory returns the tools that the tenant's history contributed, best first.
func fromHistory(r selection.Response) (ids []string) {
	for _, q := range r.Queries {
		for _, id := range q.Tools {
			for _, g := range r.Servers {
				for _, h := range g.Tools {
					if h.ID == id && h.Why.History > 0 {
						ids = append(ids, id)
					}
				}
			}
		}
	}
	return ids
}

// interleave returns at most n different strings: the first of each list, then the second of each, and so on. So the
// many tools of one clause do not displace the best tool of another.
func interleave(lists [][]string, n int) []string {
	out := []string{}
	for i, more := 0, true; more; i++ {
		more = false
		for _, list := range lists {
			if i < len(list) {
				more = true
				if len(out) < n && !slices.Contains(out, list[i]) {
					out = append(out, list[i])
				}
			}
		}
	}
	return out
}

// Definitions returns the tools with the given ids as code generation needs them. It omits unknown ids.
func (x *Index) Definitions(ids []string) []codegen.Tool {
	byID := make(map[string]tools.Tool, len(x.Usable))
	for _, t := range x.Usable {
		byID[t.ID()] = t
	}
	out := make([]codegen.Tool, 0, len(ids))
	for _, id := range ids {
		if t, ok := byID[id]; ok {
			out = append(out, codegenTool(t))
		}
	}
	return out
}

func codegenTool(t tools.Tool) codegen.Tool {
	out := codegen.Tool{
		Server: t.Server, Name: t.Name, Module: t.Package(), Function: t.Function,
		Signature: t.Signature, Doc: t.Description,
	}
	for _, p := range t.Params() {
		out.Params = append(out.Params, codegen.Param{Name: p.Name, Type: p.Type, Required: p.Required, Enum: p.Enum})
	}
	return out
}

// selectionTool returns a tool as package selection searches it.
func selectionTool(t tools.Tool) selection.Tool {
	out := selection.Tool{
		Server: t.Server, Name: t.Name, Description: t.Description,
		Import: t.Import(), Signature: t.Signature, Types: t.Types,
		ServerDescription: t.About.Description + "\n" + t.About.Instructions,
	}
	if !strings.EqualFold(t.About.Title, t.Server) { // otherwise the title adds no words
		out.ServerTitle = t.About.Title
	}
	for _, p := range t.Params() {
		out.Params = append(out.Params, selection.Param(p))
	}
	return out
}
