package bench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/codefleet/codefleet/internal/executor/gvisor"
)

// Report is the result of one scenario. `codefleet bench -o json` prints it.
type Report struct {
	Scenario   string               `json:"scenario"`
	Commit     string               `json:"commit"`
	Machine    Machine              `json:"machine"`
	Numbers    map[string]Number    `json:"numbers"`
	Yardsticks map[string]Quantiles `json:"yardsticks"` // of every series by name, also of those that are no yardsticks
	Samples    map[string][]float64 `json:"samples"`
	Tables     []Table              `json:"tables,omitempty"`
	Notes      []string             `json:"notes,omitempty"` // remarks, and what was not measured
}

// Table contains figures that are not series. The first column names the row.
type Table struct {
	Title   string     `json:"title"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

// Machine describes where the numbers were measured.
type Machine struct {
	Cores    int    `json:"cores"`
	MemoryMB int    `json:"memory_mb"`
	Kernel   string `json:"kernel"`
	// HugePages is the kernel's setting for 64 KiB pages in shared memory, or "" if the kernel has no such setting.
	HugePages string `json:"huge_pages"`
}

// Number is a promise and its measured value. Met reports whether Value is within Target.
type Number struct {
	Value  float64 `json:"value"`
	Target float64 `json:"target"`
	Unit   string  `json:"unit"`
	Met    bool    `json:"met"`
	What   string  `json:"what"`
}

// Quantiles summarise the samples of one series.
type Quantiles struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	Mean float64 `json:"mean"`
	Unit string  `json:"unit"`
}

func newReport(scenario, version string) *Report {
	return &Report{
		Scenario: scenario, Commit: cmp.Or(commit(), version, "unknown"), Machine: thisMachine(),
		Numbers: map[string]Number{}, Yardsticks: map[string]Quantiles{}, Samples: map[string][]float64{},
	}
}

// Add adds samples to a series. Summarise computes its quantiles.
func (r *Report) Add(name, unit string, samples ...float64) {
	r.Samples[name] = append(r.Samples[name], samples...)
	r.Yardsticks[name] = Quantiles{Unit: unit}
}

// Summarise computes the quantiles of all series.
func (r *Report) Summarise() {
	for name, samples := range r.Samples {
		r.Yardsticks[name] = Quantiles{
			P50: Quantile(samples, 0.5), P99: Quantile(samples, 0.99), Mean: mean(samples),
			Unit: r.Yardsticks[name].Unit,
		}
	}
}

// Median returns the median of a series, as of the last Summarise.
func (r *Report) Median(name string) float64 { return r.Yardsticks[name].P50 }

// AtMost records a number that should not exceed its target.
func (r *Report) AtMost(id, what string, value, target float64, unit string) {
	r.Numbers[id] = Number{Value: value, Target: target, Unit: unit, Met: value <= target, What: what}
}

// AtLeast records a percentage that should not fall below its target.
func (r *Report) AtLeast(id, what string, value, target float64) {
	r.Numbers[id] = Number{Value: value, Target: target, Unit: "%", Met: value >= target, What: what}
}

// Note adds a remark.
func (r *Report) Note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Text writes the report for people: the numbers, the tables, the series, each with a bar of its spread, and the notes.
func (r *Report) Text(w io.Writer) error {
	fmt.Fprintf(w, "%s · commit %s · %d cores, %d MB, Linux %s, huge pages %s\n\n", r.Scenario, r.Commit,
		r.Machine.Cores, r.Machine.MemoryMB, r.Machine.Kernel, cmp.Or(r.Machine.HugePages, "none"))
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, id := range slices.Sorted(maps.Keys(r.Numbers)) {
		n := r.Numbers[id]
		met := "met"
		if !n.Met {
			met = "not met"
		}
		fmt.Fprintf(tw, "%s\t%.3g %s\ttarget %.3g\t%s\t%s\n", id, n.Value, n.Unit, n.Target, met, n.What)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, t := range r.Tables {
		fmt.Fprintf(w, "\n%s\n", t.Title)
		fmt.Fprintln(tw, strings.Join(t.Columns, "\t"))
		for _, row := range t.Rows {
			fmt.Fprintln(tw, strings.Join(row, "\t"))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	top := map[string]float64{} // the longest bar, by unit
	for _, q := range r.Yardsticks {
		top[q.Unit] = max(top[q.Unit], q.P99)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Yardsticks)) {
		q := r.Yardsticks[name]
		fmt.Fprintf(tw, "%s\tp50 %.2f\tp99 %.2f\tmean %.2f %s\tn=%d\t%s\n", name, q.P50, q.P99, q.Mean, q.Unit,
			len(r.Samples[name]), bar(q, top[q.Unit]))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, n := range r.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	return nil
}

// bar draws the median as a solid line, and dots from there to the 99th percentile. A bar of full length stands
// for top.
func bar(q Quantiles, top float64) string {
	if top <= 0 {
		return ""
	}
	const width = 40
	solid := int(math.Round(q.P50 / top * width))
	return strings.Repeat("█", solid) + strings.Repeat("·", max(0, int(math.Round(q.P99/top*width))-solid))
}

// Quantile returns the p-quantile of the samples, by the nearest-rank method, or 0 without samples.
func Quantile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(samples))
	return s[max(0, int(math.Ceil(p*float64(len(s))))-1)]
}

func mean(samples []float64) float64 { return sum(samples) / float64(max(1, len(samples))) }

// commit returns the commit from which this program was built, or "" if it is unknown.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return ""
}

func thisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), MemoryMB: int(memoryField("MemTotal")), HugePages: gvisor.HugePages()}
	if data, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(data))
	}
	return m
}

// loadAverage returns the load average of the last minute, or "unknown".
func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(data)); err == nil && len(f) > 0 {
		return f[0]
	}
	return "unknown"
}

// memoryField returns the value of a line of /proc/meminfo in MB, or 0 if there is no such line.
func memoryField(name string) float64 { return Kilobytes("/proc/meminfo", name) / 1024 }

// Kilobytes returns the value of a line "name: 123 kB" in a file, or 0 if there is no such line.
func Kilobytes(file, name string) float64 {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name+":" {
			kb, _ := strconv.ParseFloat(f[1], 64) // 0 if it is not a number
			return kb
		}
	}
	return 0
}

// WriteJSON writes the reports as an array. If one is true, it writes only the first report, as an object.
func WriteJSON(w io.Writer, reports []*Report, one bool) error {
	var v any = reports
	if one {
		v = reports[0]
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// WriteText writes the reports for people.
func WriteText(w io.Writer, reports []*Report) error {
	for i, r := range reports {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := r.Text(w); err != nil {
			return err
		}
	}
	return nil
}
