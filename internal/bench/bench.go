// Package bench measures what the fleet promises, on the machine on which it runs. A number may have a yardstick, which
// is measured in the same run. The samples of the two alternate, so that a change of the machine's speed affects both.
// A missed target is reported; it is not an error.
//
// Each scenario has its own file. A scenario adds series of samples to a [Report] and computes its numbers from them.
// To add a scenario that users can run on their hosts, write the file, name the scenario in Scenarios, and
// describe it in docs/benchmarks.md. Comparisons that only this project runs are scenarios of test/bench, which uses
// this package.
package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/codefleet/codefleet/internal/assembly/sandbox"
	"github.com/codefleet/codefleet/internal/config"
)

// Options are the options of Run. Settings and Program are required.
type Options struct {
	Scenario string // empty means all scenarios
	Runs     int    // samples of each series; 0 means the scenario's default

	// Settings returns a copy of the user's settings, for a fleet with its data in the given directory. The caller may
	// change the copy.
	Settings func(data string) (*config.Config, error)
	Program  string   // path of codefleet, for fleets in separate processes
	Args     []string // additional arguments of `codefleet up`
	Version  string   // codefleet's version, for builds that do not know their commit

	Progress func(what string) // receives what is being measured; may be nil

	growthStep int // commits of one sample of the scenario growth
}

// A Scenario measures some numbers.
type Scenario struct {
	Name      string
	Samples   int  // default number of samples of each series
	NoSandbox bool // the scenario does not need the sandbox engine
	Measure   func(*Bench, context.Context) error
}

// Scenarios returns the scenarios that users run on their hosts.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "cold", Samples: 10, Measure: (*Bench).cold},
		{Name: "warm", Samples: 200, Measure: (*Bench).warm},
		{Name: "overhead", Samples: 200, Measure: (*Bench).overhead},
		{Name: "throughput", Samples: 5, Measure: (*Bench).throughput},
		{Name: "tools", Samples: 20, Measure: (*Bench).brokered},
		{Name: "memory", Samples: 3, Measure: (*Bench).memory},
		{Name: "growth", Samples: 12, NoSandbox: true, Measure: (*Bench).growth},
		{Name: "fairness", Samples: 100, NoSandbox: true, Measure: (*Bench).fairness},
		{Name: "workflow", Samples: 100, Measure: (*Bench).workflow},
		{Name: "growth-queue", Samples: 20, Measure: (*Bench).growthQueue},
		{Name: "page", Samples: 20, Measure: (*Bench).page},
		{Name: "scale", Samples: 20, Measure: (*Bench).scale},
	}
}

// Names returns the names of scenarios.
func Names(list []Scenario) []string {
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.Name
	}
	return names
}

// Run measures one scenario of a list, or all of them. After an error, it also returns the reports of the scenarios
// before. When it returns, all processes that it started have ended and all files that it wrote are removed, even if
// ctx ended early.
func Run(ctx context.Context, o Options, list []Scenario) ([]*Report, error) {
	var reports []*Report
	for _, s := range list {
		if o.Scenario != "" && o.Scenario != s.Name {
			continue
		}
		r, err := o.run(ctx, s)
		if err != nil {
			return reports, err
		}
		reports = append(reports, r)
	}
	if len(reports) == 0 {
		return nil, fmt.Errorf("unknown scenario %q: want one of %q", o.Scenario, Names(list))
	}
	return reports, nil
}

// Bench measures one scenario.
type Bench struct {
	Options
	*Report
	N     int    // samples of each series
	dir   string // contains all files; its path is short, because paths of sockets must be short
	runsc string // path of the sandbox engine
	dirs  int    // number of paths that NewDir has returned
}

// run measures one scenario, with its files in a new directory.
func (o Options) run(ctx context.Context, s Scenario) (_ *Report, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("measure %s: %w", s.Name, cmp.Or(context.Cause(ctx), err))
		}
	}()
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	dir, err := os.MkdirTemp("", "cfb")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	b := &Bench{Options: o, Report: newReport(s.Name, o.Version), N: cmp.Or(o.Runs, s.Samples), dir: dir}
	if !s.NoSandbox {
		if err := b.findEngine(); err != nil {
			return nil, err
		}
	}
	before := loadAverage()
	if err := s.Measure(b, ctx); err != nil {
		return nil, err
	}
	b.Note("load average %s before, %s after", before, loadAverage())
	return b.Report, nil
}

// findEngine sets the path of the sandbox engine from the user's settings.
func (b *Bench) findEngine() error {
	c, err := b.Settings(b.dir)
	if err == nil {
		b.runsc, err = sandbox.Runsc(c)
	}
	return err
}

// NewDir returns an unused path for a directory. It does not create the directory.
func (b *Bench) NewDir() string {
	b.dirs++
	return filepath.Join(b.dir, strconv.Itoa(b.dirs))
}

// A Series says how to take the samples of one quantity.
type Series struct {
	Name, Unit string
	Measure    func(context.Context) (Sample, error) // takes one sample
}

// A Sample is one measurement. The parts of a sample, such as the stages of a task, are added to series of their own.
type Sample struct {
	Value float64
	Parts map[string]float64 // by name
}

// A Plan determines how series are measured side by side. In each turn, PerTurn samples are taken of the first
// series, then of the second one, and so on. The samples of the first turn are dropped.
type Plan struct {
	Samples int           // number of samples of each series
	PerTurn int           // at least 1
	Every   time.Duration // interval between two samples; 0 means back to back
}

// Spaced returns a plan for n tasks at intervals that are long enough for each task to end before the next one arrives.
func Spaced(n int) Plan { return Plan{Samples: n, PerTurn: 10, Every: 30 * time.Millisecond} }

// SideBySide measures the series by a plan and adds them to the report.
func (b *Bench) SideBySide(ctx context.Context, p Plan, all ...Series) error {
	p.PerTurn = min(p.PerTurn, p.Samples)
	var arrive <-chan time.Time
	if p.Every > 0 {
		ticker := time.NewTicker(p.Every)
		defer ticker.Stop()
		arrive = ticker.C
	}
	for done := -p.PerTurn; done < p.Samples; done += p.PerTurn { // done is negative in the first turn
		b.Progress(fmt.Sprintf("%s: %d of %d", b.Report.Scenario, max(done, 0), p.Samples))
		for _, s := range all {
			for range min(p.PerTurn, p.Samples-max(done, 0)) {
				if arrive != nil {
					<-arrive
				}
				got, err := s.Measure(ctx)
				if err != nil {
					return fmt.Errorf("%s: %w", s.Name, err)
				}
				if done >= 0 {
					b.addSample(s, got)
				}
			}
		}
	}
	b.Summarise()
	return nil
}

// addSample adds a sample and its parts to their series.
func (b *Bench) addSample(s Series, got Sample) {
	b.Add(s.Name, s.Unit, got.Value)
	for part, value := range got.Parts {
		b.Add(s.Name+" · "+part, s.Unit, value)
	}
}

// Timed returns a series of the times, in milliseconds, that a call takes.
func Timed(name string, call func(context.Context) error) Series {
	return Series{name, "ms", func(ctx context.Context) (Sample, error) {
		began := time.Now()
		err := call(ctx)
		return Sample{Value: Since(began)}, err
	}}
}

// Since returns the milliseconds since a time.
func Since(t time.Time) float64 { return float64(time.Since(t).Microseconds()) / 1000 }
