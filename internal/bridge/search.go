package bridge

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/text"
)

type searchIn struct {
	Query       string   `json:"query,omitempty" jsonschema:"what the tools should do"`
	Queries     []string `json:"queries,omitempty" jsonschema:"instead of query: one for each step, at most 20"`
	DetailLevel string   `json:"detail_level,omitempty" jsonschema:"name (default), description, or full"`
	MaxResults  int      `json:"max_results,omitempty" jsonschema:"for each query; default 10, at most 20"`
}

const (
	maxQueries      = 20  // limit of queries in one search, as in the fleet
	maxResults      = 20  // limit of tools for each query, as in the fleet
	resultsPerQuery = 10  // default
	maxQueryEcho    = 200 // bytes of JSON
	maxTermEcho     = 40  // bytes of JSON
)

// list returns the queries of a search.
func (in searchIn) list() ([]string, error) {
	if in.Queries == nil {
		in.Queries = []string{in.Query}
	} else if in.Query != "" {
		return nil, badArgument("give either query or queries, not both")
	}
	if n := len(in.Queries); n == 0 || n > maxQueries {
		return nil, badArgument("%d queries: give 1 to %d", n, maxQueries)
	}
	for _, q := range in.Queries {
		if strings.TrimSpace(q) == "" {
			return nil, badArgument("a query is empty: describe what the tools should do, in query or in queries")
		}
	}
	return in.Queries, nil
}

// toolFound is a tool in the result of search_tools, at the levels description and full.
type toolFound struct {
	Description string `json:"description,omitempty"`
	Code        string `json:"code,omitempty"`
}

// searchNote says how certain a search is. The result has it beside the servers, under searchKey.
type searchNote struct {
	Confidence     float64            `json:"confidence" jsonschema:"0 to 1, of the least certain query; low: perhaps no tool fits"`
	UnmatchedTerms []string           `json:"unmatched_terms" jsonschema:"words of the queries that occur in no tool"`
	Queries        []client.ToolQuery `json:"queries,omitempty" jsonschema:"if queries was given: each query with its tools as server/tool, best first"`
	Degraded       string             `json:"degraded,omitempty" jsonschema:"why the search could not use the configured embeddings"`
	Shortened      string             `json:"shortened,omitempty" jsonschema:"what the result lacks because of its size"`
}

// noteOf summarizes the queries of a search. With perQuery it also lists each query.
func noteOf(found client.ToolSearch, perQuery bool) searchNote {
	n := searchNote{UnmatchedTerms: []string{}, Degraded: found.Degraded}
	names := map[string]string{}
	for _, g := range found.Servers {
		for _, t := range g.Tools {
			pkg, function := importNames(t.Import, g.Server, t.Tool)
			names[cmp.Or(t.ID, g.Server+"/"+t.Tool)] = pkg + "/" + function
		}
	}
	for i, q := range found.Queries {
		if i == 0 || q.Confidence < n.Confidence {
			n.Confidence = q.Confidence
		}
		q.UnmatchedTerms = slices.Clone(q.UnmatchedTerms)
		for i, term := range q.UnmatchedTerms {
			term = textStart(term, maxTermEcho)
			if q.UnmatchedTerms[i] = term; !slices.Contains(n.UnmatchedTerms, term) {
				n.UnmatchedTerms = append(n.UnmatchedTerms, term)
			}
		}
		if perQuery {
			q.Query, q.Tools = textStart(q.Query, maxQueryEcho), slices.Clone(q.Tools)
			for i, id := range q.Tools {
				q.Tools[i] = cmp.Or(names[id], id)
			}
			n.Queries = append(n.Queries, q)
		}
	}
	return n
}

// searchKey is a name that no server can have.
const searchKey = "_search"

func searchSchema() *jsonschema.Schema {
	s := schemaOf[map[string]any]()
	s.Properties = map[string]*jsonschema.Schema{searchKey: schemaOf[searchNote]()}
	s.Required = []string{searchKey}
	return s
}

func (c *call) search(ctx context.Context, in searchIn) (*result, error) {
	level := client.Detail(in.DetailLevel)
	switch level {
	case "":
		level = client.DetailName
	case client.DetailName, client.DetailDescription, client.DetailFull:
	default:
		return nil, badArgument("unknown detail_level %q: want one of name, description, full", in.DetailLevel)
	}
	if in.MaxResults < 0 || in.MaxResults > maxResults {
		return nil, badArgument("max_results must be from 1 to %d", maxResults)
	}
	queries, err := in.list()
	if err != nil {
		return nil, err
	}
	o := client.SearchToolsOptions{Detail: level, Limit: cmp.Or(in.MaxResults, resultsPerQuery)}
	found, err := c.fleet.SearchTools(ctx, o, queries...)
	if err != nil {
		return nil, err
	}
	f := searchResult{level: level, tools: ranked(found), note: noteOf(found, in.Queries != nil)}
	return &result{out: f.fit(c.b.o.MaxOutput)}, nil
}

// match is one tool of a search, under the names that programs import.
type match struct {
	pkg, function string
	rank          int // the tool's best position among the tools of the queries
	client.ToolMatch
}

// ranked returns the tools of a search: first the best of each query, then the second best of each, and so on.
func ranked(found client.ToolSearch) []match {
	best := map[string]int{}
	for _, q := range found.Queries {
		for i, id := range q.Tools {
			if at, ok := best[id]; !ok || i < at {
				best[id] = i
			}
		}
	}
	var all []match
	for _, g := range found.Servers {
		for _, t := range g.Tools {
			m := match{rank: best[cmp.Or(t.ID, g.Server+"/"+t.Tool)], ToolMatch: t}
			m.pkg, m.function = importNames(t.Import, g.Server, t.Tool)
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, func(a, b match) int { return cmp.Compare(a.rank, b.rank) })
	return all
}

// searchResult is the outcome of a search.
type searchResult struct {
	level client.Detail
	tools []match
	note  searchNote
}

// fit returns the result of a search in at most limit bytes of JSON. The tools that rank last lose their code, then
// their descriptions, then they are left out.
func (f searchResult) fit(limit int) map[string]any {
	f.note.fit(limit / 2)
	shown, size := make([]toolFound, len(f.tools)), shortenedSize+jsonSize(f.result(nil))
	for i, t := range f.tools {
		shown[i] = describe(t, f.level)
		size += t.size(shown[i])
	}
	complete := len(shown)
	for _, shorten := range []func(*toolFound){
		func(t *toolFound) { t.Code = "" },
		func(t *toolFound) { t.Description = "" },
	} {
		for i := len(shown) - 1; i >= 0 && size > limit; i-- {
			if before := shown[i]; before != (toolFound{}) {
				shorten(&shown[i])
				size -= f.tools[i].size(before) - f.tools[i].size(shown[i])
				complete = min(complete, i)
			}
		}
	}
	n := len(shown)
	for ; n > 0 && size > limit; n-- {
		size -= f.tools[n-1].size(shown[n-1])
	}
	if complete = min(complete, n); complete < len(shown) {
		f.note.Shortened = fmt.Sprintf("%d of %d tools are complete, %d are left out: "+
			"search for fewer things at once, or give a smaller max_results", complete, len(shown), len(shown)-n)
	}
	return f.result(shown[:n])
}

// shortenedSize is more than the size of searchNote.Shortened in JSON.
const shortenedSize = 200

// size returns at least the size of the tool in JSON.
func (t match) size(shown toolFound) int {
	return len(t.pkg) + len(t.function) + len(`"":{"":},`) + jsonSize(shown)
}

func jsonSize(v any) int {
	data, err := marshal(v)
	if err != nil {
		return 0 // encode reports it
	}
	return len(data)
}

// fit shortens the lists of the queries, so that the note takes at most limit bytes of JSON.
func (n *searchNote) fit(limit int) {
	for keep := maxResults; keep > 0 && jsonSize(n) > limit; keep -= 2 {
		for i := range n.Queries {
			q := &n.Queries[i]
			q.Tools = q.Tools[:min(keep, len(q.Tools))]
			q.UnmatchedTerms = q.UnmatchedTerms[:min(keep, len(q.UnmatchedTerms))]
		}
		n.UnmatchedTerms = n.UnmatchedTerms[:min(2*keep, len(n.UnmatchedTerms))]
	}
}

// result returns the first len(shown) tools, by server, as shown describes them.
func (f searchResult) result(shown []toolFound) map[string]any {
	names, full := map[string][]string{}, map[string]map[string]toolFound{}
	for i, t := range f.tools[:len(shown)] {
		names[t.pkg] = append(names[t.pkg], t.function)
		if full[t.pkg] == nil {
			full[t.pkg] = map[string]toolFound{}
		}
		full[t.pkg][t.function] = shown[i]
	}
	out := map[string]any{searchKey: f.note}
	for pkg := range names {
		if out[pkg] = full[pkg]; f.level == client.DetailName {
			out[pkg] = names[pkg]
		}
	}
	return out
}

// Limits of one tool's texts in a result, in bytes.
const (
	maxDescription      = 2000
	maxParamDescription = 400
	maxTypes            = 6000
)

// describe returns a tool in the form in which a program calls it.
func describe(t match, level client.Detail) toolFound {
	line := text.Truncate(strings.TrimSpace(t.Description), maxDescription)
	switch level {
	case client.DetailName:
		return toolFound{}
	case client.DetailDescription:
		return toolFound{Description: strings.TrimSpace(text.Truncate(t.Signature, maxDescription) + "  # " + line)}
	case client.DetailFull:
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n# %s\n", importOf(t), t.Signature)
	for _, p := range t.Params {
		fmt.Fprintf(&b, "#   %s: %s", p.Name, p.Type)
		if !p.Required {
			b.WriteString(", optional")
		}
		if len(p.Enum) > 0 {
			var choices []string
			for _, value := range p.Enum {
				choices = append(choices, choice(value, p.Type))
			}
			fmt.Fprintf(&b, ", one of %s", strings.Join(choices, ", "))
		}
		if p.Description != "" {
			b.WriteString("  " + text.Truncate(text.OneLine(p.Description), maxParamDescription))
		}
		b.WriteString("\n")
	}
	b.WriteString(describeTypes(t))
	return toolFound{Description: line, Code: b.String()}
}

// otherLiteral matches the Python literals that are no strings.
var otherLiteral = regexp.MustCompile(`^(?:None|True|False|-?\d[\d.eE+-]*|\[.*\]|\{.*\})$`)

// choice returns a value of an enum as a Python literal on one line. An enum has its strings without quotes: "1" is a
// string if the parameter's type is str or shows it in quotes.
func choice(value, typ string) string {
	quoted := strconv.Quote(value)
	if otherLiteral.MatchString(value) && typ != "str" && typ != "Optional[str]" && !strings.Contains(typ, quoted) {
		return text.Printable(value)
	}
	return text.Printable(quoted)
}

// importOf returns the statement with which a program imports a tool, or the program of a skill.
func importOf(t match) string {
	switch {
	case strings.HasPrefix(t.Import, "from skills."):
		return t.Import
	case t.Import == "" && t.pkg == "skills":
		return "# instructions without a program: get_skill returns them"
	}
	return "from servers." + t.pkg + " import " + t.function
}

// describeTypes returns the classes that a tool's signature names. They show the members of nested arguments, which
// programs pass as dictionaries.
func describeTypes(t match) string {
	types := strings.TrimSpace(t.Types)
	if types == "" {
		return ""
	}
	more := ""
	if len(types) > maxTypes {
		types = types[:strings.LastIndexByte(types[:maxTypes], '\n')+1]
		more = fmt.Sprintf("# and more: import inspect, sys; print(inspect.getsource(sys.modules[%s.__module__]))\n",
			t.function)
	}
	const title = "\n# The types of its arguments and result, which are dictionaries:\n"
	return title + strings.TrimSpace(types) + "\n" + more
}
