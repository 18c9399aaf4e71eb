package selection

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func catalogue() []Tool {
	tool := func(server, name, description string, params ...string) Tool {
		t := Tool{Server: server, Name: name, Description: description, Signature: name + "(" +
			strings.Join(params, ", ") + ")"}
		for _, p := range params {
			t.Params = append(t.Params, Param{Name: p, Required: true})
		}
		return t
	}
	return []Tool{
		tool("calculator", "add", "Add two numbers together.", "a", "b"),
		tool("calculator", "multiply", "Multiply two numbers.", "a", "b"),
		tool("calculator", "calculate", "Evaluate a mathematical expression.", "expression"),
		tool("weather", "get_weather", "Get current weather information for a location.", "location", "units"),
		tool("weather", "get_forecast", "Get weather forecast for a location.", "location", "days", "units"),
		tool("filesystem", "read_file", "Read the contents of a file.", "path", "encoding"),
		tool("filesystem", "write_file", "Write content to a file.", "path", "content", "encoding"),
		tool("filesystem", "list_directory", "List the contents of a directory.", "path", "recursive"),
		tool("database", "query", "Execute a SQL query on the database.", "sql", "parameters"),
		tool("database", "execute", "Execute a SQL statement (INSERT, UPDATE, DELETE) on the database.", "sql",
			"parameters"),
		tool("database", "list_tables", "List all tables in the database."),
	}
}

// idsOf returns the ids of all selected tools: by server, best first.
func idsOf(r Response) []string {
	var ids []string
	for _, g := range r.Servers {
		for _, h := range g.Tools {
			ids = append(ids, h.ID)
		}
	}
	return ids
}

func TestSelectFinds(t *testing.T) {
	s := Build(catalogue())
	for _, c := range []struct {
		query string
		first []string // the best tools, in any order
	}{
		{"Calculate 5 + 3", []string{"calculator/calculate"}},
		{"What will the climate be like in Oslo?", []string{"weather/get_weather", "weather/get_forecast"}},
		{"Query database for users", []string{"database/query"}},
		{"show me what is in the folder", []string{"filesystem/list_directory"}},
		{"multply 4 by 7", []string{"calculator/multiply"}}, // a typing error
		{"save this text to /root/weather/a.txt", []string{"filesystem/write_file"}},
	} {
		got := s.Ranked(c.query, nil, len(c.first))
		slices.Sort(got)
		slices.Sort(c.first)
		if d := cmp.Diff(c.first, got); d != "" {
			t.Errorf("Ranked(%q) (-want +got):\n%s", c.query, d)
		}
	}
}

func TestSelectSeveralQueries(t *testing.T) {
	r, err := Build(catalogue()).Select(Request{Queries: []string{
		"calculate a sum", "weather forecast",
		"zzyzx qwrtp",
	}, Min: 1, Detail: DetailName})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Queries) != 3 || r.Queries[0].Tools[0] != "calculator/add" ||
		r.Queries[1].Tools[0] != "weather/get_forecast" {
		t.Errorf("reports of three queries = %+v, want add and get_forecast first", r.Queries)
	}
	last := r.Queries[2]
	if len(last.Tools) != 0 || last.Confidence != 0 || !slices.Equal(last.UnmatchedTerms, []string{"zzyzx", "qwrtp"}) {
		t.Errorf("report of a meaningless query = %+v, want no tools and both words unmatched", last)
	}
	if r.Available != 11 || r.Share != float64(len(idsOf(r)))/11 {
		t.Errorf("available %d, share %v with %d tools, want 11 and their quotient", r.Available, r.Share,
			len(idsOf(r)))
	}
	if g := r.Servers[0]; g.Tools[0].Score != 1 || g.Tools[0].Signature != "" {
		t.Errorf("first hit = %+v, want score 1 and no signature at level name", g.Tools[0])
	}
	for _, g := range r.Servers {
		if g.Server == "weather" && g.More+len(g.Tools) != 2 {
			t.Errorf("weather shows %d tools and %d more, want 2 in all", len(g.Tools), g.More)
		}
	}
}

// A word is matched if the catalogue has a synonym of it, also if another word of the query has found that first.
func TestSynonymsOfTheSameWord(t *testing.T) {
	tools := append(catalogue(), Tool{Server: "filesystem", Name: "delete", Description: "Delete a file."})
	r, err := Build(tools).Select(Request{Queries: []string{"erase and wipe the disk"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Queries[0].UnmatchedTerms; !slices.Equal(got, []string{"disk"}) {
		t.Errorf("unmatched terms = %q, want disk", got)
	}
	r, err = Build(tools).Select(Request{Queries: []string{"Happy parties, party"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Queries[0].UnmatchedTerms; !slices.Equal(got, []string{"parties"}) {
		t.Errorf("unmatched terms = %q, want the word parties, not its stem", got)
	}
}

func TestSelectDetail(t *testing.T) {
	s := Build(catalogue())
	r, err := s.Select(Request{Queries: []string{"add numbers"}, Detail: DetailFull, Limit: 1, Explain: true})
	if err != nil {
		t.Fatal(err)
	}
	hit := r.Servers[0].Tools[0]
	if hit.ID != "calculator/add" || hit.Definition == nil || len(hit.Definition.Params) != 2 ||
		hit.Signature != "add(a, b)" {
		t.Errorf("full hit = %+v, want add with its definition", hit)
	}
	if hit.Why == nil || !slices.Contains(hit.Why.Terms, "number") || hit.Why.Lexical <= 0 {
		t.Errorf("explanation = %+v, want the word number and a lexical score", hit.Why)
	}
	if _, err := s.Select(Request{Queries: []string{"x"}, Detail: "all"}); err == nil ||
		!strings.Contains(err.Error(), `"all"`) {
		t.Errorf("Select with detail all: error %v, want it to name the level", err)
	}
}

func TestCutOff(t *testing.T) {
	var found []candidate
	for i := range 30 {
		found = append(found, candidate{tool: int32(i), score: 1 - float32(i)/15})
	}
	for _, c := range []struct{ minimum, n, want int }{
		{1, 30, 8},
		{10, 30, 10},
		{99, 30, MaxTools},
		{5, 3, 3},
		{5, 0, 0},
	} {
		if got := len(cutOff(found[:c.n], c.minimum)); got != c.want {
			t.Errorf("cutOff(%d candidates, minimum %d) kept %d, want %d", c.n, c.minimum, got, c.want)
		}
	}
}

func TestSelectReturnsAllowedToolsOnly(t *testing.T) {
	r, err := Build(catalogue()).Select(Request{
		Queries: []string{"get weather"},
		Allow:   func(t *Tool) bool { return t.Name != "get_weather" },
	})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(idsOf(r), "weather/get_weather") || !slices.Contains(idsOf(r), "weather/get_forecast") {
		t.Errorf("selected %v, want get_forecast and not get_weather", idsOf(r))
	}
}

func TestSelectIsDeterministic(t *testing.T) {
	tools := catalogue()
	for i := range 40 {
		tools = append(tools, Tool{
			Server: fmt.Sprintf("clone%d", i%7), Name: fmt.Sprintf("read_file_%d", i),
			Description: "Read the contents of a file.",
		})
	}
	want := Build(tools).Ranked("read the file and get weather for the folder", nil, 30)
	random := rand.New(rand.NewPCG(3, 4))
	for range 5 {
		random.Shuffle(len(tools), func(i, j int) { tools[i], tools[j] = tools[j], tools[i] })
		if d := cmp.Diff(want, Build(tools).Ranked("read the file and get weather for the folder", nil, 30)); d != "" {
			t.Fatalf("another order of the catalogue changed the ranking (-want +got):\n%s", d)
		}
	}
}

func TestSelectWithoutToolsOrWords(t *testing.T) {
	r, err := Build(nil).Select(Request{Queries: []string{"read a file"}})
	if err != nil || r.Available != 0 || len(idsOf(r)) != 0 {
		t.Errorf("Select without tools = %+v, %v, want an empty response and no error", r, err)
	}
	for _, sentence := range []string{"", "   ", "the of and", strings.Repeat("read ", 100_000), "\xff\xfe"} {
		if _, err := Build(catalogue()).Select(Request{Queries: []string{sentence}}); err != nil {
			t.Errorf("Select(%.20q) error = %v, want none", sentence, err)
		}
	}
}

func TestHistoryHelpsSimilarTasksOnly(t *testing.T) {
	s := Build(catalogue())
	history := NewHistory([]Past{
		NewPast("prepare the monday numbers for the board", []string{"database/list_tables", "gone/tool"}),
		NewPast("prepare the tuesday numbers for the board", []string{"database/list_tables"}),
		NewPast("water the plants", nil),
	})
	task := "prepare the friday numbers for the board"
	if got := s.Ranked(task, nil, 1); got[0] == "database/list_tables" {
		t.Fatalf("Ranked(%q) without history = %v, want a different tool than with it", task, got)
	}
	if got := s.Ranked(task, history, 2); !slices.Contains(got, "database/list_tables") {
		t.Errorf("Ranked(%q) with history = %v, want database/list_tables in it", task, got)
	}
	other := "get weather for Paris"
	if d := cmp.Diff(s.Ranked(other, nil, 5), s.Ranked(other, history, 5)); d != "" {
		t.Errorf("history changed the ranking for a different task (-want +got):\n%s", d)
	}
	if got := NewPast("mail bob@example.org about /root/plan.txt for $5", nil).Terms; !slices.Equal(got,
		[]string{"mail", "email", "file", "text", "amount", "currenc"}) {
		t.Errorf("NewPast keeps %q, want no literal values", got)
	}
	if NewHistory(nil) != nil {
		t.Error("NewHistory(nil) = a history, want nil")
	}
}

// TestVotesOfAShortTask checks that the past task with the same few words does not outweigh others without limit.
func TestVotesOfAShortTask(t *testing.T) {
	s := Build(catalogue())
	long := strings.Repeat("prepare the monday numbers for the board and water all plants ", 5)
	history := NewHistory([]Past{
		NewPast("invoices", []string{"database/query"}),
		NewPast(long, []string{"filesystem/read_file"}), NewPast(long, []string{"filesystem/write_file"}),
	})
	got := history.votes(s, NewPast("invoices", nil).Terms)[s.position["database/query"]]
	if got < 1.5 || got > 1.6001 {
		t.Errorf("votes of the task %q for itself = %v, want about 1.6", "invoices", got)
	}
}

// TestRepeatedWordCounts checks that a word's count in a field, which has 16 bits, does not overflow.
func TestRepeatedWordCounts(t *testing.T) {
	for _, n := range []int{1 << 16, 70_000} {
		texts := [][]string{slices.Repeat([]string{"file"}, n), {"file", "path"}, {"mail"}}
		x := newPostings(len(texts), 0, func(d int) []field { return []field{{1, texts[d]}} })
		scores := make([]float32, len(texts))
		x.add(scores, x.ids["file"], 1)
		if scores[0] <= scores[1] || scores[2] != 0 {
			t.Errorf("scores of a text that has the word %d times, once and never = %v, want them to fall", n, scores)
		}
	}
}

func TestLint(t *testing.T) {
	tools := append(catalogue(), Tool{Server: "x", Name: "do"}, Tool{Server: "x", Name: "!!"})
	for i := range 8 {
		tools = append(tools, Tool{
			Server: "many", Name: fmt.Sprintf("zq%cq", 'a'+i),
			Description: "Processes the data.",
		})
	}
	findings := Build(tools).Lint()
	var ids []string
	for _, f := range findings {
		ids = append(ids, f.ID)
	}
	want := []string{"many/zqfq", "many/zqgq", "many/zqhq", "x/!!", "x/do"}
	if d := cmp.Diff(want, ids); d != "" {
		t.Errorf("Lint (-want +got):\n%s", d)
	}
}

func BenchmarkSelect(b *testing.B) {
	for _, n := range []int{500, 10_000} {
		var tools []Tool
		for len(tools) < n {
			for _, t := range catalogue() {
				t.Server = fmt.Sprintf("%s%d", t.Server, len(tools))
				tools = append(tools, t)
			}
		}
		s := Build(tools)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				s.Ranked("Calculate 5 + 3 and get weather for San Francisco", nil, 20)
			}
		})
	}
}
