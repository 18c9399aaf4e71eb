package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/bench"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/test/selectioneval"
)

// goal is the target of a metric for a data set, as a percentage: for the local ranking, and for the ranking with
// history.
type goal struct {
	metric  string
	value   func(selectioneval.Metrics) float64
	local   float64
	history float64 // 0 means no target
}

func recall5(m selectioneval.Metrics) float64  { return m.Recall5 }
func recall10(m selectioneval.Metrics) float64 { return m.Recall10 }

// goals contains the goals of each data set. They apply to the whole set, because in a sample of 20 questions, a single
// question would count 5 percentage points.
var goals = map[string][]goal{
	"livemcpbench":       {{"R@5", recall5, 41, 43}, {"R@10", recall10, 49, 54}},
	"livemcpbench-steps": {{"R@5", recall5, 71, 0}},
	"mcpbench":           {{"R@10", recall10, 64, 70}},
	"mcpproxy-golden":    {{"R@5", recall5, 82, 0}},
	"metatool":           {{"R@5", recall5, 69, 80}},
	"metatool-multi":     {{"R@5", recall5, 73, 84}},
	"sealtools":          {{"R@5", recall5, 84, 84}, {"R@10", recall10, 93, 0}},
	"mcptoolbench":       {{"R@5", recall5, 99, 0}},
	"apigen":             {{"R@5", recall5, 84, 84}},
	"ultratool":          {{"R@10", recall10, 85, 90}},
}

// The data set and the goal for the first sub-query of a task, which should find one of the task's tools among the
// first three.
const (
	firstSet  = "livemcpbench-route"
	firstGoal = 72
)

// selection measures the quality of the selection, and how long it and the preparation of prompts take. It starts no
// fleet.
func (b *run) selection(ctx context.Context) error {
	if b.data == "" {
		b.Note("the data sets and N11 were not measured: --data is not set")
	} else if err := b.dataSets(ctx); err != nil {
		return err
	}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	b.Summarise()
	return nil
}

func (b *run) dataSets(ctx context.Context) error {
	b.Progress("selection: data sets in " + b.data)
	report, err := selectioneval.Run(ctx, b.data, 10_000, 50_000)
	if err != nil {
		return err
	}
	table := bench.Table{
		Title: "Recall of the relevant tools among the first 5 and 10, in percent",
		Columns: []string{
			"data set", "tools", "questions", "local @5", "@10", "with history @5", "@10",
			"hybrid (fake model) @5", "@10",
		},
	}
	for _, s := range report.Sets {
		table.Rows = append(table.Rows, row(s.Name, strconv.Itoa(s.Tools), strconv.Itoa(s.Questions), s.Columns))
		b.compare(s)
	}
	table.Rows = append(table.Rows, row("mean", "", "", report.Macro))
	b.Tables = append(b.Tables, table)
	for _, n := range report.Notes {
		b.Note("%s", n)
	}
	b.scales(report.Scale)
	return b.promptTools()
}

// promptTools measures which tools are in the prompt for each question. As for a task, they are selected for each
// clause and their number is limited.
func (b *run) promptTools() error {
	sets, err := selectioneval.LoadAll(b.data)
	if err != nil {
		return err
	}
	table := bench.Table{
		Title:   "In the prompt: the share of the tools that the question needs, in percent, and the number of tools",
		Columns: []string{"data set", "share %", "tools"},
	}
	for _, set := range sets {
		prepare := preparer(catalogueOf(set))
		share, prompted := 0.0, 0.0
		for _, q := range set.Queries {
			request, err := prepare(q.Text)
			if err != nil {
				return err
			}
			var ids []string
			for _, t := range request.Tools {
				ids = append(ids, t.Server+"/"+t.Name)
			}
			share, prompted = share+q.Share(ids), prompted+float64(len(ids))
		}
		n := float64(max(1, len(set.Queries)))
		table.Rows = append(table.Rows, []string{
			set.Name, fmt.Sprintf("%.1f", 100*share/n), fmt.Sprintf("%.1f", prompted/n),
		})
	}
	b.Tables = append(b.Tables, table)
	return nil
}

// catalogueOf returns a data set's catalogue as a fleet would have it.
func catalogueOf(set selectioneval.Set) *tools.Listing {
	var list []tools.Tool
	for _, t := range set.Tools {
		properties, names := map[string]any{}, []string{}
		for _, p := range t.Params {
			property := map[string]any{"description": p.Description}
			if len(p.Enum) > 0 {
				property["enum"] = p.Enum
			}
			properties[p.Name], names = property, append(names, p.Name+": str")
		}
		schema, _ := json.Marshal(map[string]any{"type": "object", "properties": properties}) // strings only
		list = append(list, tools.Tool{
			Server: t.Server, Name: t.Name, State: tools.Local, Description: t.Description, InputSchema: schema,
			Signature: t.Name + "(" + strings.Join(names, ", ") + ")",
			About:     tools.About{Title: t.ServerTitle, Description: t.ServerDescription},
		})
	}
	return tools.NewListing(list)
}

func row(name, tools, questions string, c selectioneval.Columns) []string {
	out := []string{name, tools, questions}
	for _, m := range []selectioneval.Metrics{c.Local, c.History, c.Hybrid} {
		out = append(out, fmt.Sprintf("%.1f", 100*m.Recall5), fmt.Sprintf("%.1f", 100*m.Recall10))
	}
	return out
}

// compare adds a set's figures and their goals.
func (b *run) compare(s selectioneval.SetReport) {
	for _, g := range goals[s.Name] {
		b.AtLeast(s.Name+" "+g.metric, "local", percent(g.value(s.Local)), g.local)
		if g.history > 0 {
			b.AtLeast(s.Name+" "+g.metric+" history", "with the tenant's history", percent(g.value(s.History)),
				g.history)
		}
	}
	if s.Name == firstSet {
		b.AtLeast(s.Name+" Hit@3", fmt.Sprintf("local, the first sub-query of each of %d tasks", s.Firsts),
			percent(s.FirstHit3), firstGoal)
	}
}

// percent rounds to a tenth, which is finer than any goal.
func percent(share float64) float64 { return math.Round(1000*share) / 10 }

// scales adds N11: the time of a selection with all signals among 10,000 and 50,000 tools.
func (b *run) scales(all []selectioneval.Scale) {
	targets := []float64{5, 20}
	for i, s := range all {
		name := fmt.Sprintf("select of %d tools", s.Tools)
		b.Add(name, "ms", s.Samples...)
		b.Add(name+", no embeddings", "ms", s.Local...)
		b.Add(fmt.Sprintf("index %d tools", s.Tools), "ms", s.BuildMS)
		b.Summarise()
		b.AtMost(fmt.Sprintf("N11 %dk", s.Tools/1000),
			name+" by words, vectors, history and embeddings (512 dimensions)",
			b.Median(name), targets[i], "ms")
		if i == len(all)-1 {
			b.AtMost("N11 index", fmt.Sprintf("index of %d tools", s.Tools),
				s.BuildMS/float64(time.Second/time.Millisecond), 5, "s")
		}
	}
}
