// Package bench measures what the fleet promises, on the machine it runs on, beside yardsticks that
// are taken in the same run: the samples of a number and of its yardstick alternate, so that a machine
// whose speed drifts drifts for both. It reports numbers and never fails because of one.
//
// Each scenario is a file. It adds series of samples to a [Report] and draws its numbers from them.
// To add one that users run on their hosts: write the file, name it in Scenarios, describe it in
// docs/benchmarks.md. Comparisons that only we run are scenarios of test/bench, which uses this package.
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

// Options of Run. Settings and Program are required.
type Options struct {
	Scenario string // empty: all
	Runs     int    // samples of each series; 0: by scenario

	// Settings returns the user's settings, for a fleet whose data is in the given directory. It is
	// called for each fleet, which then changes them.
	Settings func(data string) (*config.Config, error)
	Program  string   // path of codefleet, for fleets in separate processes
	Args     []string // of `codefleet up`, beside its addresses and its data
	Version  string   // of codefleet, for builds that do not know their commit

	Progress func(what string) // is called with what is being measured; may be nil
}

// A Scenario measures some of the numbers.
type Scenario struct {
	Name      string
	Samples   int // of each series, unless Options say otherwise
	NoSandbox bool
	Measure   func(*Bench, context.Context) error
}

// Scenarios are those that a user measures on his host.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "cold", Samples: 10, Measure: (*Bench).cold},
		{Name: "warm", Samples: 200, Measure: (*Bench).warm},
		{Name: "overhead", Samples: 200, Measure: (*Bench).overhead},
		{Name: "throughput", Samples: 5, Measure: (*Bench).throughput},
		{Name: "tools", Samples: 20, Measure: (*Bench).brokered},
		{Name: "memory", Samples: 3, Measure: (*Bench).memory},
	}
}

// Names returns the names of scenarios, in their order.
func Names(list []Scenario) []string {
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.Name
	}
	return names
}

// Run measures one scenario of a list, or all. Whatever it starts has ended, and what it wrote is
// removed, when it returns, also when ctx ends early.
func Run(ctx context.Context, o Options, list []Scenario) ([]*Report, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	var reports []*Report
	for _, s := range list {
		if o.Scenario != "" && o.Scenario != s.Name {
			continue
		}
		r, err := o.run(ctx, s)
		if err != nil {
			return reports, fmt.Errorf("measure %s: %w", s.Name, cmp.Or(context.Cause(ctx), err))
		}
		reports = append(reports, r)
	}
	if len(reports) == 0 {
		return nil, fmt.Errorf("no scenario %q: want one of %q", o.Scenario, Names(list))
	}
	return reports, nil
}

// Bench is one scenario being measured.
type Bench struct {
	Options
	*Report
	N     int    // samples of each series
	dir   string // of everything on disk; its path is short, because sockets lie below
	runsc string // the engine
	dirs  int    // directories in dir
}

func (o Options) run(ctx context.Context, s Scenario) (*Report, error) {
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

func (b *Bench) findEngine() error {
	c, err := b.Settings(b.dir)
	if err == nil {
		b.runsc, err = sandbox.Runsc(c)
	}
	return err
}

// NewDir returns the path of a new directory of the scenario, which it does not create.
func (b *Bench) NewDir() string {
	b.dirs++
	return filepath.Join(b.dir, strconv.Itoa(b.dirs))
}

// A Series is one thing to measure.
type Series struct {
	Name, Unit string
	Measure    func(context.Context) (Sample, error) // once
}

// A Sample is one measurement. Its parts are series, too, by their names.
type Sample struct {
	Value float64
	Parts map[string]float64
}

// A Plan says how series are measured side by side: InRow times the first, then the second, and so on,
// and again. The first turn of each does not count.
type Plan struct {
	Samples int           // of each series
	InRow   int           // at least 1
	Every   time.Duration // from one arrival to the next; 0: back to back
}

// Spaced is the arrival of single tasks, so far apart that one has ended before the next one arrives.
func Spaced(n int) Plan { return Plan{Samples: n, InRow: 10, Every: 30 * time.Millisecond} }

// SideBySide measures the series as planned and adds them to the report.
func (b *Bench) SideBySide(ctx context.Context, p Plan, all ...Series) error {
	p.InRow = min(p.InRow, p.Samples)
	var arrive <-chan time.Time
	if p.Every > 0 {
		ticker := time.NewTicker(p.Every)
		defer ticker.Stop()
		arrive = ticker.C
	}
	for done := -p.InRow; done < p.Samples; done += p.InRow {
		b.Progress(fmt.Sprintf("%s: %d of %d", b.Report.Scenario, max(done, 0), p.Samples))
		for _, s := range all {
			for range min(p.InRow, p.Samples-max(done, 0)) {
				if arrive != nil {
					<-arrive
				}
				got, err := s.Measure(ctx)
				if err != nil {
					return fmt.Errorf("%s: %w", s.Name, err)
				}
				if done >= 0 {
					b.count(s, got)
				}
			}
		}
	}
	b.Summarise()
	return nil
}

// count adds a sample and its parts to their series.
func (b *Bench) count(s Series, got Sample) {
	b.Add(s.Name, s.Unit, got.Value)
	for part, value := range got.Parts {
		b.Add(s.Name+" · "+part, s.Unit, value)
	}
}

// Timed is a series of the time, in milliseconds, that a call takes.
func Timed(name string, call func(context.Context) error) Series {
	return Series{name, "ms", func(ctx context.Context) (Sample, error) {
		began := time.Now()
		err := call(ctx)
		return Sample{Value: Since(began)}, err
	}}
}

// Since returns the milliseconds since a time.
func Since(t time.Time) float64 { return float64(time.Since(t).Microseconds()) / 1000 }
