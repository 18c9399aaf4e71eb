// Package bench measures what the fleet promises, on the machine it runs on, against yardsticks
// taken in the same run: the samples of a number and of its yardstick alternate, so that a machine
// whose speed drifts drifts for both. It reports; it never judges a run as failed.
package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what one scenario found: the shape of `codefleet bench -o json`.
type Report struct {
	Scenario   string               `json:"scenario"`
	Commit     string               `json:"commit"`
	Machine    Machine              `json:"machine"`
	Numbers    map[string]Number    `json:"numbers"`
	Yardsticks map[string]Quantiles `json:"yardsticks"`
	Samples    map[string][]float64 `json:"samples"`
	Notes      []string             `json:"notes,omitempty"`
}

// Machine is where the numbers were taken.
type Machine struct {
	Cores    int    `json:"cores"`
	MemoryMB int    `json:"memory_mb"`
	Kernel   string `json:"kernel"`
}

// Number is one promise and what was found. Met says whether Value is within Target.
type Number struct {
	Value  float64 `json:"value"`
	Target float64 `json:"target"`
	Unit   string  `json:"unit"`
	Met    bool    `json:"met"`
}

// Quantiles sum up the samples of one series.
type Quantiles struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	Unit string  `json:"unit"`
}

func newReport(scenario string) *Report {
	return &Report{
		Scenario: scenario, Commit: commit(), Machine: thisMachine(),
		Numbers: map[string]Number{}, Yardsticks: map[string]Quantiles{}, Samples: map[string][]float64{},
	}
}

// add keeps a series of samples and sums it up.
func (r *Report) add(name, unit string, samples []float64) {
	r.Samples[name] = samples
	r.Yardsticks[name] = Quantiles{P50: quantile(samples, 0.5), P99: quantile(samples, 0.99), Unit: unit}
}

// atMost records a number that should not exceed its target.
func (r *Report) atMost(id string, value, target float64, unit string) {
	r.Numbers[id] = Number{Value: value, Target: target, Unit: unit, Met: value <= target}
}

// atLeast records a number that should not fall below its target.
func (r *Report) atLeast(id string, value, target float64, unit string) {
	r.Numbers[id] = Number{Value: value, Target: target, Unit: unit, Met: value >= target}
}

// p50 is the median of a series.
func (r *Report) p50(name string) float64 { return r.Yardsticks[name].P50 }

// Text writes the report for a person: numbers, then series, each with a bar of its spread.
func (r *Report) Text(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "%s\tcommit %s\t%d cores, %d MB, Linux %s\n\n", r.Scenario, r.Commit, r.Machine.Cores, r.Machine.MemoryMB, r.Machine.Kernel)
	for _, id := range sortedKeys(r.Numbers) {
		n := r.Numbers[id]
		verdict := "met"
		if !n.Met {
			verdict = "not met"
		}
		fmt.Fprintf(tw, "%s\t%.4g %s\ttarget %.4g\t%s\n", id, n.Value, n.Unit, n.Target, verdict)
	}
	fmt.Fprintln(tw)
	var top float64
	for _, q := range r.Yardsticks {
		if q.Unit == "ms" {
			top = max(top, q.P99)
		}
	}
	for _, name := range sortedKeys(r.Yardsticks) {
		q := r.Yardsticks[name]
		fmt.Fprintf(tw, "%s\tp50 %.2f %s\tp99 %.2f\tn=%d\t%s\n", name, q.P50, q.Unit, q.P99, len(r.Samples[name]), bar(q, top))
	}
	for _, n := range r.Notes {
		fmt.Fprintln(tw, n)
	}
	return tw.Flush()
}

// bar draws the median as a solid line and the way to the 99th percentile as dots.
func bar(q Quantiles, top float64) string {
	if q.Unit != "ms" || top <= 0 {
		return ""
	}
	const width = 40
	solid := int(math.Round(q.P50 / top * width))
	return strings.Repeat("█", solid) + strings.Repeat("·", max(0, int(math.Round(q.P99/top*width))-solid))
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// quantile is the value below which the share p of the samples lies (nearest rank).
func quantile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(samples))
	return s[max(0, int(math.Ceil(p*float64(len(s))))-1)]
}

// series is one thing to measure: a call that takes one sample.
type series struct {
	name string
	take func(context.Context) (time.Duration, error)
}

// interleave takes n samples of each series in turn, after one of each that does not count.
func (r *Report) interleave(ctx context.Context, n int, progress func(done, of int), all ...series) error {
	got := make([][]float64, len(all))
	for i := range n + 1 {
		for k, s := range all {
			d, err := s.take(ctx)
			if err != nil {
				return fmt.Errorf("%s, sample %d: %w", s.name, i, err)
			}
			if i > 0 {
				got[k] = append(got[k], float64(d.Microseconds())/1000)
			}
		}
		progress(i, n)
	}
	for k, s := range all {
		r.add(s.name, "ms", got[k])
	}
	return nil
}

func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return "unknown"
}

func thisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU()}
	if data, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(data))
	}
	if data, err := os.ReadFile("/proc/meminfo"); err == nil {
		if f := strings.Fields(string(data)); len(f) > 1 {
			kb, _ := strconv.Atoi(f[1])
			m.MemoryMB = kb / 1024
		}
	}
	return m
}
