package selectioneval

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestMeasure(t *testing.T) {
	approximately := cmpopts.EquateApprox(0, 0.001)
	ranked := []string{"a", "b", "c", "d", "e", "f"}
	for _, c := range []struct {
		name  string
		query Query
		want  Metrics
	}{
		{"first", Query{Relevant: []string{"a"}}, Metrics{1, 1, 1, 1, 1, 1, 1}},
		{"one of two, sixth", Query{Relevant: []string{"f", "z"}}, Metrics{0, 0, 0.5, 0, 0, 0.218, 0.167}},
		{
			"interchangeable",
			Query{Relevant: []string{"b", "d"}, Groups: [][]string{{"d", "b"}}},
			Metrics{0, 1, 1, 1, 1, 0.631, 0.5},
		},
		{
			"graded",
			Query{Relevant: []string{"a", "b"}, Grades: map[string]float64{"b": 2, "a": 1}},
			Metrics{0.5, 1, 1, 1, 1, 0.860, 1},
		},
		{"nothing found", Query{Relevant: []string{"z"}}, Metrics{}},
	} {
		if d := cmp.Diff(c.want, measure(c.query, ranked), approximately); d != "" {
			t.Errorf("%s: metrics (-want +got):\n%s", c.name, d)
		}
		if got := c.query.Share(ranked); got != c.want.Recall10 {
			t.Errorf("%s: Share = %v, want the recall, %v", c.name, got, c.want.Recall10)
		}
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	if _, err := Run(t.Context(), dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Run on an empty directory: error %v, want fs.ErrNotExist", err)
	}
	var catalogue, queries strings.Builder
	for i, word := range []string{"giraffe", "violin", "harbour", "volcano", "tennis"} {
		fmt.Fprintf(&catalogue, `{"server": "s", "tool": "%s_tool", "description": "About the %s."}`+"\n", word, word)
		fmt.Fprintf(&queries, `{"id": "q%d", "query": "tell me about a %s", "relevant": ["s/%s_tool"]}`+"\n", i, word,
			word)
	}
	for name, text := range map[string]string{
		"catalogue.jsonl": catalogue.String(),
		"queries.jsonl":   queries.String(),
	} {
		path := filepath.Join(dir, "set", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	report, err := Run(t.Context(), dir, 100)
	if err != nil {
		t.Fatal(err)
	}
	set := report.Sets[0]
	if set.Name != "set" || set.Tools != 5 || set.Questions != 5 || set.Local.Recall1 != 1 ||
		set.History.Recall1 != 1 || set.Hybrid.Recall1 != 1 {
		t.Errorf("report = %+v, want recall 1 of five questions in every column", set)
	}
	if s := report.Scale[0]; s.Tools != 100 || slices.Min(s.Samples) <= 0 || s.BuildMS <= 0 {
		t.Errorf("scale = %+v, want 100 tools and positive times", s)
	}
	if err := os.WriteFile(filepath.Join(dir, "set", "queries.jsonl"), []byte("{}\n{x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), dir); err == nil {
		t.Error("Run on an invalid file = nil error, want an error")
	}
}
