package pipeline

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/selection"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/schemas"
)

// Catalogue is where tasks have their tools from; *tools.Shelf is one.
type Catalogue interface {
	// Current returns the version of the tenant's catalogue that a task begun now pins, and its tools:
	// the same Snapshot while nothing changes.
	Current(ctx context.Context, tenant string) (version string, snap *tools.Snapshot, err error)
	// Pinned returns the tools of a version that an earlier run of the task pinned, perhaps on another
	// host; fs.ErrNotExist when it is not to be had any more.
	Pinned(ctx context.Context, tenant, version string) (*tools.Snapshot, error)
}

// Tools are the catalogue, and what stands behind its tools. Without a Catalogue tasks have no tools;
// with one, Upstream, Journal and Audit are required.
type Tools struct {
	Catalogue Catalogue
	Upstream  broker.Upstream
	Journal   broker.Journal
	Audit     broker.Audit
	Policy    broker.Policy
	Budget    broker.Budget                // of one run
	Allow     func(tenant string) []string // what a tenant may use, as broker.Task.Allow; nil: everything
	Approval  time.Duration                // how long somebody is asked under the policy approve; 0: such calls are refused
}

// toolset is one version of the catalogue as the stages see it. It is immutable, but for what it
// works out when it is first asked for.
type toolset struct {
	version string
	snap    *tools.Snapshot
	usable  []tools.Tool // those that a program may call
	index   func() index
	tokens  func() []int // of the usable definitions, as handing them to a model would cost
}

func newToolset(version string, snap *tools.Snapshot, embeddings *Embeddings) *toolset {
	s := &toolset{version: version, snap: snap}
	for _, t := range snap.Tools {
		if t.Usable() {
			s.usable = append(s.usable, t)
		}
	}
	s.index = sync.OnceValue(func() index {
		list := make([]selection.Tool, len(s.usable))
		for i, t := range s.usable {
			list[i] = selectable(t)
		}
		return embeddings.index(selection.Build(list))
	})
	s.tokens = sync.OnceValue(func() []int {
		tokens := make([]int, len(s.usable))
		for i, t := range s.usable {
			tokens[i] = codegen.Tokens(t.ID() + t.Signature + t.Description + string(t.InputSchema))
		}
		return tokens
	})
	return s
}

// direct is how many tokens the definitions of all tools that a task with this allow-list may use would cost a model.
func (s *toolset) direct(list []string) (tokens int) {
	for i, n := range s.tokens() {
		if broker.Allowed(list, s.usable[i].Server, s.usable[i].Name) {
			tokens += n
		}
	}
	return tokens
}

// allowed is how many tools a task with this allow-list may use.
func (s *toolset) allowed(list []string) (n int) {
	for _, t := range s.usable {
		if broker.Allowed(list, t.Server, t.Name) {
			n++
		}
	}
	return n
}

const (
	maxQueries = 20  // clauses that are asked one by one; a longer task is one query
	confident  = 0.2 // of a clause, below which its tools are left out when another clause's are not
)

// pick returns the ids of the few tools that a task needs: the best of each of its clauses, and the best of those that
// tasks like this one used in the past, then the second best of each, and so on. degraded says why embeddings had no part in it, when they should have.
func (s *toolset) pick(ctx context.Context, task string, allow []string, choice *schemas.ToolChoice, past *selection.History) (ids []string, degraded string, err error) {
	most := selection.AtMost
	if choice != nil && choice.Max > 0 {
		most = min(most, choice.Max)
	}
	queries := codegen.Clauses(task)
	if len(queries) == 0 || len(queries) > maxQueries {
		queries = []string{task}
	}
	request := selection.Request{
		Queries: queries, Detail: selection.DetailName, Floor: 1,
		Allow: func(tool *selection.Tool) bool { return broker.Allowed(allow, tool.Server, tool.Name) },
	}
	found, err := s.index().Select(ctx, request)
	if err != nil {
		return nil, "", err
	}
	var sure, all [][]string
	for _, q := range found.Queries {
		all = append(all, q.Tools)
		if q.Confidence >= confident {
			sure = append(sure, q.Tools)
		}
	}
	if len(sure) == 0 {
		sure = all
	}
	if past != nil {
		request.Queries, request.History, request.Explain = []string{task}, past, true
		remembered, err := s.index().local.Select(request)
		if err != nil {
			return nil, "", err
		}
		sure = append(sure, used(remembered))
	}
	return inTurn(sure, most), found.Degraded, nil
}

// used are the tools that owe their place to the past, best first.
func used(r selection.Response) (ids []string) {
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

// inTurn returns n different strings at most: the first of each list, then the second of each, and so on. No request's
// best tools give way to another one's many.
func inTurn(lists [][]string, n int) []string {
	out := []string{}
	for place, longer := 0, true; longer; place++ {
		longer = false
		for _, list := range lists {
			if place < len(list) {
				longer = true
				if len(out) < n && !slices.Contains(out, list[place]) {
					out = append(out, list[place])
				}
			}
		}
	}
	return out
}

// writable are the tools of the given ids, as the writers of programs see them.
func (s *toolset) writable(ids []string) []codegen.Tool {
	byID := make(map[string]tools.Tool, len(s.usable))
	for _, t := range s.usable {
		byID[t.ID()] = t
	}
	out := make([]codegen.Tool, 0, len(ids))
	for _, id := range ids {
		if t, ok := byID[id]; ok {
			out = append(out, writable(t))
		}
	}
	return out
}

func selectable(t tools.Tool) selection.Tool {
	out := selection.Tool{
		Server: t.Server, Name: t.Name, Description: t.Description, Signature: t.Signature,
		ServerDescription: t.About.Description + "\n" + t.About.Instructions,
	}
	if !strings.EqualFold(t.About.Title, t.Server) { // or it says nothing more
		out.ServerTitle = t.About.Title
	}
	for _, p := range t.Params() {
		out.Params = append(out.Params, selection.Param(p))
	}
	return out
}

func writable(t tools.Tool) codegen.Tool {
	out := codegen.Tool{
		Server: t.Server, Name: t.Name, Module: t.Package(), Function: t.Function, Signature: t.Signature, Doc: t.Description,
	}
	for _, p := range t.Params() {
		out.Params = append(out.Params, codegen.Param{Name: p.Name, Type: p.Type, Required: p.Required, Enum: p.Enum})
	}
	return out
}

// toolsets keeps the toolsets of the latest snapshots: what is costly to work out about one is worked
// out once. The zero value is usable.
type toolsets struct {
	embeddings *Embeddings

	mu   sync.Mutex
	list []*toolset // the least lately used first
}

// maxToolsets is how many are kept: one for each Snapshot, which tenants share when they see the same.
const maxToolsets = 32

func (c *toolsets) of(version string, snap *tools.Snapshot) *toolset {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.list, func(s *toolset) bool { return s.snap == snap && s.version == version }); i >= 0 {
		found := c.list[i]
		c.list = append(slices.Delete(c.list, i, i+1), found)
		return found
	}
	if len(c.list) == maxToolsets {
		c.list = slices.Delete(c.list, 0, 1)
	}
	made := newToolset(version, snap, c.embeddings)
	c.list = append(c.list, made)
	return made
}

// Preparer returns what does all that comes before a model is asked: it selects the tools that a task's description
// needs and makes the request to write its program. full is what all usable definitions would cost, in tokens.
func Preparer(snap *tools.Snapshot) (prepare func(description string) (codegen.Request, error), full int) {
	s := newToolset("", snap, nil)
	return func(description string) (codegen.Request, error) {
		ids, _, err := s.pick(context.Background(), description, []string{"*"}, nil, nil)
		return codegen.Request{Task: description, Tools: s.writable(ids)}, err
	}, s.direct([]string{"*"})
}

// Search finds tools as tasks do: with the same index, over those that a program may call. It is safe for concurrent
// use.
type Search struct{ sets toolsets }

// NewSearch returns a search by words and embeddings; nil embeddings: by words alone.
func NewSearch(e *Embeddings) *Search { return &Search{toolsets{embeddings: e}} }

// Select ranks the tools of a catalogue; r.History is what the tenant's tasks used.
func (s *Search) Select(ctx context.Context, snap *tools.Snapshot, r selection.Request) (selection.Response, error) {
	return s.sets.of("", snap).index().Select(ctx, r)
}

// Of is the index of a catalogue, without embeddings.
func (s *Search) Of(snap *tools.Snapshot) *selection.Snapshot {
	return s.sets.of("", snap).index().local
}
