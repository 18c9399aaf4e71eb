package selectioneval

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/selection"
	"github.com/codefleet/codefleet/internal/selection/terms"
)

// Report contains the figures of Run.
type Report struct {
	Sets  []SetReport
	Macro Columns // the mean over the sets
	Scale []Scale
	Notes []string
}

// Columns contains the metrics of each way to rank a set's tools.
type Columns struct {
	Local   Metrics
	History Metrics // nine tenths of the questions are the history for the others
	Hybrid  Metrics // with a fake embedder: it tests the fusion, not the quality of a model
}

// SetReport contains the figures of one data set.
type SetReport struct {
	Name      string
	Tools     int
	Questions int
	Columns
	Firsts    int     // number of questions that are the first sub-query of a task
	FirstHit3 float64 // Hit@3 of these questions
}

// Scale contains the times for one size of the catalogue.
type Scale struct {
	Tools   int
	BuildMS float64
	Samples []float64 // ms, by words, vectors, history and embeddings
	Local   []float64 // ms, without embeddings
}

const (
	depth = 50 // length of a measured ranking
	folds = 10 // parts for the cross-validation
)

// Run measures all data sets below dir, sorted by name, and the times for catalogues of the given sizes, which are made
// of the sets' tools. It skips directories without a catalogue.
func Run(ctx context.Context, dir string, sizes ...int) (Report, error) {
	report := Report{Notes: []string{
		"hybrid uses a deterministic fake embedding model: it tests the fusion, not the quality of a model",
		"history is cross-validated: a question's history excludes its task; the relevant tools count as used",
	}}
	sets, err := LoadAll(dir)
	if err != nil {
		return Report{}, err
	}
	for _, set := range sets {
		r, err := measureSet(ctx, set)
		if err != nil {
			return Report{}, fmt.Errorf("data set %s: %w", set.Name, err)
		}
		report.Sets = append(report.Sets, r)
		weight := 1 / float64(len(sets))
		report.Macro.Local.add(r.Local, weight)
		report.Macro.History.add(r.History, weight)
		report.Macro.Hybrid.add(r.Hybrid, weight)
	}
	for _, n := range sizes {
		scale, err := measureScale(ctx, sets, n)
		if err != nil {
			return Report{}, err
		}
		report.Scale = append(report.Scale, scale)
	}
	return report, ctx.Err()
}

// LoadAll reads all data sets below dir, sorted by name. It returns an error if there are none.
func LoadAll(dir string) ([]Set, error) {
	catalogues, err := filepath.Glob(filepath.Join(dir, "*", "catalogue.jsonl"))
	if err != nil {
		return nil, err
	}
	if len(catalogues) == 0 {
		return nil, fmt.Errorf("no data set in %s: %w", dir, os.ErrNotExist)
	}
	slices.Sort(catalogues)
	var sets []Set
	for _, c := range catalogues {
		set, err := Load(filepath.Dir(c))
		if err != nil {
			return nil, err
		}
		sets = append(sets, set)
	}
	return sets, nil
}

func measureSet(ctx context.Context, set Set) (SetReport, error) {
	r := SetReport{Name: set.Name, Tools: len(set.Tools), Questions: len(set.Queries)}
	index := selection.Build(set.Tools)
	hybrid := selection.NewHybrid(index, fakeEmbedder{256}, selection.HybridOptions{Deadline: time.Minute})
	if err := hybrid.Load(ctx, index); err != nil {
		return r, err
	}
	histories := foldHistories(set.Queries)
	weight := 1 / float64(max(1, len(set.Queries)))
	firstHits := 0.0
	for _, q := range set.Queries {
		local := measure(q, index.Ranked(q.Text, nil, depth))
		r.Local.add(local, weight)
		r.History.add(measure(q, index.Ranked(q.Text, histories[fold(q)], depth)), weight)
		response, err := hybrid.Select(ctx,
			selection.Request{Queries: []string{q.Text}, Detail: selection.DetailName, Min: selection.MaxTools})
		if err != nil {
			return r, err
		}
		r.Hybrid.add(measure(q, response.Queries[0].Tools), weight)
		if q.Task != "" && strings.HasSuffix(q.ID, "-1") {
			r.Firsts, firstHits = r.Firsts+1, firstHits+local.Hit3
		}
	}
	if r.Firsts > 0 {
		r.FirstHit3 = firstHits / float64(r.Firsts)
	}
	return r, ctx.Err()
}

// foldHistories returns for each fold the history that consists of all other folds.
func foldHistories(queries []Query) [folds]*selection.History {
	var past [folds][]selection.Past
	for _, q := range queries {
		for f := range folds {
			if f != fold(q) {
				past[f] = append(past[f], selection.NewPast(q.Text, q.Relevant))
			}
		}
	}
	var histories [folds]*selection.History
	for f := range folds {
		histories[f] = selection.NewHistory(past[f])
	}
	return histories
}

// fold returns a question's fold. It is the same for all questions of a task, because none of them may be in the
// history for another one.
func fold(q Query) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(cmp.Or(q.Task, q.ID)))
	return int(h.Sum32() % folds)
}

// measureScale measures how long it takes to build the index of n tools, and to select tools for the sets' questions.
func measureScale(ctx context.Context, sets []Set, n int) (Scale, error) {
	var questions []string
	var past []selection.Past
	for _, set := range sets {
		for _, q := range set.Queries {
			questions = append(questions, q.Text)
			past = append(past, selection.NewPast(q.Text, q.Relevant))
		}
	}
	tools := repeated(sets, n)
	begin := time.Now()
	index := selection.Build(tools)
	s := Scale{Tools: index.Len(), BuildMS: milliseconds(time.Since(begin))}
	hybrid := selection.NewHybrid(index, fakeEmbedder{scaleDimensions},
		selection.HybridOptions{Deadline: time.Minute, Cache: selection.NewMemoryCache(2 * n)})
	if err := hybrid.Load(ctx, index); err != nil {
		return Scale{}, err
	}
	history := selection.NewHistory(past)
	const samples = 400
	for i := range samples {
		r := selection.Request{Queries: []string{questions[i*len(questions)/samples]}, History: history}
		begin := time.Now()
		if _, err := index.Select(r); err != nil {
			return Scale{}, err
		}
		s.Local = append(s.Local, milliseconds(time.Since(begin)))
		begin = time.Now()
		if _, err := hybrid.Select(ctx, r); err != nil {
			return Scale{}, err
		}
		s.Samples = append(s.Samples, milliseconds(time.Since(begin)))
	}
	return s, ctx.Err()
}

// repeated returns n tools: the sets' tools, and then the same tools with other server names and descriptions.
func repeated(sets []Set, n int) []selection.Tool {
	var tools []selection.Tool
	for round := 0; len(tools) < n; round++ {
		for _, set := range sets {
			for _, t := range set.Tools {
				if round > 0 {
					t.Server = fmt.Sprintf("%s-%d", t.Server, round)
					t.Description += fmt.Sprintf(" (edition %d)", round)
				}
				t.Server = set.Name + "-" + t.Server
				tools = append(tools, t)
			}
		}
	}
	return tools[:n]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// scaleDimensions is the length of the vectors that docs/generation.md recommends.
const scaleDimensions = 512

// fakeEmbedder is a deterministic embedder without a model. It hashes each stem to a component of the vector.
type fakeEmbedder struct{ dimensions int }

func (e fakeEmbedder) Model() (string, int) { return "fake", e.dimensions }

func (e fakeEmbedder) Embed(_ context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	last := uint32(e.dimensions - 1)
	for i, s := range texts {
		out[i] = make([]float32, e.dimensions)
		out[i][last] = 0.1 // so that no vector is zero
		for _, term := range terms.Query(s) {
			h := fnv.New32a()
			_, _ = h.Write([]byte(term))
			out[i][h.Sum32()%last]++
		}
	}
	return out, nil
}
