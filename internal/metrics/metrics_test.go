package metrics_test

import (
	"flag"
	"fmt"
	"go/ast"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/metrics"
	"github.com/codefleet/codefleet/internal/sourcetest"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

// TestDocument compares docs/metrics.md with the table.
func TestDocument(t *testing.T) {
	const file = "../../docs/metrics.md"
	want := document(t)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s differs from the table: run go test ./internal/metrics -update", file)
	}
}

// TestTable checks that every variable of table.go is in Table, once, with a help text and a unit.
func TestTable(t *testing.T) {
	names := map[string]bool{}
	for _, m := range metrics.Table {
		if names[m.Name] || !strings.HasSuffix(m.Help, ".") || m.Kind == "" ||
			m.Unit != metrics.Seconds && !regexp.MustCompile(`^\{[a-z]+\}$`).MatchString(m.Unit) {
			t.Errorf("row = %+v, want a new name, a kind, a unit and a sentence of help", m)
		}
		names[m.Name] = true
	}
	_, tree := sourcetest.Parse(t, sourcetest.File{Path: "internal/metrics/table.go"}, 0)
	declared := 0
	for n := range ast.Preorder(tree) {
		if l, ok := n.(*ast.CompositeLit); ok {
			if name, ok := l.Type.(*ast.Ident); ok && name.Name == "Metric" {
				declared++
			}
		}
	}
	if declared != len(metrics.Table) {
		t.Errorf("Table has %d metrics, want the %d that table.go declares", len(metrics.Table), declared)
	}
}

// TestWrongKind checks that creating an instrument whose kind differs from the table's is an error.
func TestWrongKind(t *testing.T) {
	i := metrics.New(nil)
	i.Counter(metrics.TasksSubmitted)
	if err := i.Err(); err != nil {
		t.Fatal(err)
	}
	i.Counter(metrics.TaskRun)
	const want = "create metric codefleet.task.run: the table declares a histogram, not a counter"
	if err := i.Err(); err == nil || err.Error() != want {
		t.Errorf("Err() = %v, want %s", err, want)
	}
}

// TestInstrumentsAreCreatedHere fails when another package creates an instrument itself.
func TestInstrumentsAreCreatedHere(t *testing.T) {
	method := regexp.MustCompile(`^(Int64|Float64)(Observable)?(Counter|UpDownCounter|Histogram|Gauge)$`)
	for _, f := range sourcetest.GoFiles(t) {
		if f.Test || f.Package == "internal/metrics" {
			continue
		}
		set, tree := sourcetest.Parse(t, f, 0)
		for n := range ast.Preorder(tree) {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				continue
			}
			if s, ok := call.Fun.(*ast.SelectorExpr); ok && method.MatchString(s.Sel.Name) {
				t.Errorf("%s: %s: declare the metric in internal/metrics", set.Position(call.Pos()), s.Sel.Name)
			}
		}
	}
}

// groups are the sections of docs/metrics.md, with the prefix of their metrics' names.
var groups = []struct{ prefix, title string }{
	{"codefleet.task", "Tasks"},
	{"codefleet.backlog", "Backlog"},
	{"codefleet.fleet", "Workers"},
	{"codefleet.queue", "Queue"},
	{"codefleet.automation", "Automation"},
	{"codefleet.pool", "Boxes"},
	{"codefleet.tools", "Tools"},
}

func document(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(`# Metrics

<!-- Written by go test ./internal/metrics -update. Change internal/metrics/table.go instead. -->

With ` + "`telemetry.metrics`, `codefleet up` and ingest serve these metrics at `/metrics` of `http.addr`" + `, for tokens with
the scope ` + "`operator`; a worker does at `/metrics` of `telemetry.addr`" + `. The format is Prometheus's. Metrics of the Go
runtime and the process, and ` + "`codefleet_build_info`" + `, are served, too.

Processes of the HTTP interface read the metrics of backlog, workers and queue from the queue, at most every five
seconds. Each of these processes reports all of them, so a query takes the maximum, not the sum. While the queue does
not respond, they are absent. [Operations](operations.md) has the alerts.
`)
	documented := map[string]bool{}
	for _, group := range groups {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | instrument | unit | meaning | attributes |\n|---|---|---|---|---|\n",
			group.title)
		for _, m := range metrics.Table {
			if strings.HasPrefix(m.Name, group.prefix) {
				documented[m.Name] = true
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n",
					m.Prometheus(), m.Kind, strings.Trim(m.Unit, "{}"), m.Help, attributes(m))
			}
		}
	}
	for _, m := range metrics.Table {
		if !documented[m.Name] {
			t.Errorf("%s is in no group: add its prefix to groups", m.Name)
		}
	}
	return b.String()
}

func attributes(m metrics.Metric) string {
	var list []string
	for _, a := range m.Attributes {
		text := fmt.Sprintf("`%s`: %s", a.Name, a.Meaning)
		if len(a.Values) > 0 {
			text += " (`" + strings.Join(slices.Clone(a.Values), "`, `") + "`)"
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}
