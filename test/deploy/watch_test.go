package deploy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/metrics"
	"github.com/codefleet/codefleet/internal/sourcetest"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/internal/up"
	"github.com/codefleet/codefleet/internal/up/uptest"
)

func TestMain(m *testing.M) {
	embedded.S3Main()
	os.Exit(m.Run())
}

// alert is a rule of alerts.yml.
type alert struct {
	Alert, Expr string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alert } }
	if err := yaml.Unmarshal(read(t, composeDir(t)+"/alerts.yml"), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 10 {
		t.Fatalf("alerts.yml has %d alerts, want at least 10", len(all))
	}
	return all
}

// dashboard is the part of Grafana's JSON that has an effect here.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Panels        []struct {
		ID          int
		Type, Title string
		Datasource  struct{ Type, UID string }
		GridPos     struct{ H, W, X, Y int }
		Targets     []struct{ RefID, Expr, LegendFormat string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal(read(t, composeDir(t)+"/grafana/codefleet.json"), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func composeDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(sourcetest.Root(t), "deploy", "compose")
}

// expressions returns all queries of the alerts and the dashboard, by what uses them.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, a := range alerts(t) {
		all["alert "+a.Alert] = a.Expr
	}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			all["panel "+p.Title+" "+target.RefID] = target.Expr
		}
	}
	return all
}

var (
	selector = regexp.MustCompile(`\b((?:codefleet|up\b|process)\w*)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	grouping = regexp.MustCompile(`by \(([^)]*)\)`)
)

// TestQueriesMatchTable checks the metrics, labels and values of each query against the table of metrics.
func TestQueriesMatchTable(t *testing.T) {
	table := map[string]metrics.Metric{}
	for _, m := range metrics.Table {
		table[m.Prometheus()] = m
		if m.Kind == metrics.Histogram {
			table[m.Prometheus()+"_bucket"] = m
		}
	}
	for user, expr := range expressions(t) {
		labels := map[string]bool{"instance": true, "job": true, "le": strings.Contains(expr, "_bucket")}
		for _, s := range selector.FindAllStringSubmatch(expr, -1) {
			m, ok := table[s[1]]
			if !ok && s[1] != "up" && s[1] != "process_resident_memory_bytes" {
				t.Errorf("%s uses the metric %s, which is not in the table", user, s[1])
			}
			values := map[string][]string{"instance": nil, "job": nil, "le": nil}
			for _, a := range m.Attributes {
				labels[a.Name], values[a.Name] = true, a.Values
			}
			for _, l := range matcher.FindAllStringSubmatch(s[2], -1) {
				known, ok := values[l[1]]
				if !ok {
					t.Errorf("%s selects %s by %s, which is not one of its attributes", user, s[1], l[1])
				}
				if known != nil && !slices.Contains(known, l[3]) {
					t.Errorf("%s selects %s by %s %s, want one of %v", user, s[1], l[1], l[3], known)
				}
			}
		}
		for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
			for name := range strings.SplitSeq(g[1], ",") {
				if name = strings.TrimSpace(name); !labels[name] {
					t.Errorf("%s groups by %s, which none of its metrics has", user, name)
				}
			}
		}
	}
}

// TestDashboard checks the structure of the dashboard: panels have a title, a query and a place of their own.
func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	if d.UID != "codefleet" || d.Title == "" || d.SchemaVersion < 36 || len(d.Panels) < 20 {
		t.Errorf("dashboard %q %q of schema %d has %d panels, want codefleet with at least 20",
			d.UID, d.Title, d.SchemaVersion, len(d.Panels))
	}
	var sources struct {
		Datasources []struct{ UID, Type, URL string }
	}
	if err := yaml.Unmarshal(read(t, composeDir(t)+"/grafana/datasource.yaml"), &sources); err != nil {
		t.Fatal(err)
	}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 ||
			p.Datasource.UID != sources.Datasources[0].UID || p.Datasource.Type != sources.Datasources[0].Type {
			t.Errorf("panel %d %q: want its own id, a query, a place within 24 columns, and the data source",
				p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" {
					t.Fatalf("panels %q and %q overlap", other, p.Title)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
	}
}

// TestRunbooks checks that each alert names its section of docs/operations.md, and that there are no others.
func TestRunbooks(t *testing.T) {
	text := string(read(t, filepath.Join(sourcetest.Root(t), "docs", "operations.md")))
	var want, got []string
	for _, a := range alerts(t) {
		want = append(want, a.Alert)
		if r := a.Annotations["runbook"]; r != "docs/operations.md#"+strings.ToLower(a.Alert) ||
			a.Annotations["summary"] == "" || a.Labels["severity"] == "" {
			t.Errorf("%s has the runbook %q, want its section, a summary and a severity", a.Alert, r)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### (Codefleet\w+)$`).FindAllStringSubmatch(text, -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("docs/operations.md has the runbooks %v, want those of the alerts %v", got, want)
	}
}

// prometheusTool returns the path of prometheus or promtool in the directory CODEFLEET_TEST_PROMETHEUS.
func prometheusTool(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("CODEFLEET_TEST_PROMETHEUS")
	if dir == "" {
		if os.Getenv("CODEFLEET_TEST_NO_SKIP") != "" {
			t.Fatal("CODEFLEET_TEST_PROMETHEUS is not set, want the directory of prometheus and promtool")
		}
		t.Skip("set CODEFLEET_TEST_PROMETHEUS to the directory of prometheus and promtool: make test-alerts")
	}
	return filepath.Join(dir, name)
}

// TestAlertRules runs the tests of the alerts in testdata with Prometheus' own tool.
func TestAlertRules(t *testing.T) {
	for _, args := range [][]string{
		{"check", "rules", composeDir(t) + "/alerts.yml"}, {"test", "rules", "testdata/alerts.test.yml"},
	} {
		if out, err := exec.Command(prometheusTool(t, "promtool"), args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// TestAlertsHaveCases checks that TestAlertRules has a case for each alert.
func TestAlertsHaveCases(t *testing.T) {
	text := string(read(t, "testdata/alerts.test.yml"))
	for _, a := range alerts(t) {
		if !strings.Contains(text, `{alertname="`+a.Alert+`"}`) {
			t.Errorf("testdata/alerts.test.yml has no case in which %s fires", a.Alert)
		}
	}
}

// TestQueriesOnPrometheus scrapes a fleet without a worker and evaluates all queries.
func TestQueriesOnPrometheus(t *testing.T) {
	program := prometheusTool(t, "prometheus")
	tel, err := telemetry.Setup(t.Context(), telemetry.Options{Service: "codefleet-up", Metrics: true})
	if err != nil {
		t.Fatal(err)
	}
	tel.Logger = slog.New(slog.DiscardHandler)
	fleet, c := uptest.Start(t, up.Options{Config: uptest.Config(t), Telemetry: tel})
	if _, err := c.Submit(t.Context(), client.Submission{Task: client.Task{Code: "print(1)"}}); err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(fleet.File.URL)
	if err != nil {
		t.Fatal(err)
	}
	base := startPrometheus(t, program, target.Host, fleet.File.Token)
	const queued = `max by (pool, priority) (codefleet_backlog_tasks{state="queued"})`
	await(t, func() (string, bool) {
		got, err := query(base, queued)
		return fmt.Sprint(got, err), err == nil && len(got) == 1 && got[0] == "1"
	}, "one queued task")
	for user, expr := range expressions(t) {
		if _, err := query(base, expr); err != nil {
			t.Errorf("%s: %s: %v", user, expr, err)
		}
	}
	await(t, func() (string, bool) {
		got, err := query(base, `ALERTS{alertname="CodefleetNoWorkers", alertstate="pending"}`)
		return fmt.Sprint(got, err), err == nil && len(got) == 1
	}, "the alert CodefleetNoWorkers to be pending")
}

// startPrometheus runs Prometheus with the rules of the deployment until the test ends, and returns its address.
func startPrometheus(t *testing.T, program, target, token string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	dir := t.TempDir()
	conf := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n"+
		"- {job_name: codefleet-interfaces, authorization: {credentials: %q}, static_configs: [{targets: [%q]}]}\n",
		composeDir(t)+"/alerts.yml", token, target)
	if err := os.WriteFile(dir+"/prometheus.yml", []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "--config.file="+dir+"/prometheus.yml",
		"--storage.tsdb.path="+dir+"/data", "--web.listen-address="+addr)
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return "http://" + addr
}

// query returns the values of an expression.
func query(base, expr string) (values []string, err error) {
	resp, err := http.Get(base + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var out struct {
		Status, Error string
		Data          struct{ Result []struct{ Value []any } }
	}
	if err := json.Unmarshal(body, &out); err != nil {
		return nil, err
	}
	if out.Status != "success" {
		return nil, errors.New(out.Error)
	}
	for _, r := range out.Data.Result {
		values = append(values, fmt.Sprint(r.Value[1]))
	}
	return values, nil
}

// await waits until ok returns true. It fails the test after a minute.
func await(t *testing.T, ok func() (got string, done bool), want string) {
	t.Helper()
	limit, every := time.After(time.Minute), time.NewTicker(100*time.Millisecond)
	defer every.Stop()
	for {
		got, done := ok()
		if done {
			return
		}
		select {
		case <-every.C:
		case <-limit:
			t.Fatalf("got %s after a minute, want %s", got, want)
		}
	}
}
