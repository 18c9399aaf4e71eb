// Package bench measures what the fleet promises, on the machine it runs on, against yardsticks
// taken in the same run: the samples of a number and of its yardstick alternate, so that a machine
// whose speed drifts drifts for both. It reports; it never judges a run as failed.
//
// Each scenario is a file. It adds series of samples to a [Report] and draws its numbers from them.
// To add one: write the file, name it in scenarios, describe it in docs/benchmarks.md.
package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/config"
)

// Options of Run. Settings and Program are required.
type Options struct {
	Scenario string // empty: all
	Runs     int    // of each series; 0: by scenario
	Data     string // directory of the selection's data sets; empty: what needs them is not measured
	Plots    string // directory that plots are written to; empty: none are

	Sustain time.Duration // of the arrivals of first-answer; 0: 10 s

	// Settings are those of the user, for a fleet whose data is in the given directory. They are
	// asked for anew for each fleet, which changes them.
	Settings func(data string) (*config.Config, error)
	Program  string   // path of codefleet, for fleets that are processes of their own
	Args     []string // of `codefleet up`, beside its addresses and its data
	Version  string   // of codefleet, for builds that do not know their commit

	Progress func(what string) // hears what is being measured; may be nil
}

// A scenario measures some of the numbers.
type scenario struct {
	name    string
	samples int // of each series, when nobody asks for another count
	measure func(*bench, context.Context) error
	plain   bool // runs no sandbox
}

var scenarios = []scenario{
	{"cold", 10, (*bench).cold, false},
	{"warm", 200, (*bench).warm, false},
	{"overhead", 200, (*bench).overhead, false},
	{"throughput", 5, (*bench).throughput, false},
	{"tools", 20, (*bench).brokered, false},
	{"memory", 3, (*bench).memory, false},
	{"workspace", 5, (*bench).workspace, true},
	{"selection", 200, (*bench).selection, true},
	{"mcp", 100, (*bench).mcp, false},
	{"first-answer", 100, (*bench).firstAnswer, false},
}

// Scenarios are the names of what can be measured.
func Scenarios() []string {
	names := make([]string, len(scenarios))
	for i, s := range scenarios {
		names[i] = s.name
	}
	return names
}

// Run measures one scenario, or all. Whatever it starts has ended, and what it wrote is removed,
// when it returns, also when ctx ends early.
func Run(ctx context.Context, o Options) ([]*Report, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	var reports []*Report
	for _, s := range scenarios {
		if o.Scenario != "" && o.Scenario != s.name {
			continue
		}
		r, err := o.run(ctx, s)
		if err != nil {
			return reports, fmt.Errorf("measure %s: %w", s.name, cmp.Or(context.Cause(ctx), err))
		}
		reports = append(reports, r)
	}
	if len(reports) == 0 {
		return nil, fmt.Errorf("no scenario %q: there are %q", o.Scenario, Scenarios())
	}
	return reports, nil
}

// bench is one scenario being measured.
type bench struct {
	Options
	*Report
	n     int    // samples of each series
	dir   string // of everything on disk; short, because sockets lie below
	runsc string // the engine
	made  int    // directories in dir
	sizes sizes  // of what the scenario workspace pushes
}

func (o Options) run(ctx context.Context, s scenario) (*Report, error) {
	dir, err := os.MkdirTemp("", "cfb")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	b := &bench{Options: o, Report: newReport(s.name, o.Version), n: cmp.Or(o.Runs, s.samples), dir: dir, sizes: sizes{smallFiles, largeSize, veryMany}}
	if err := b.findEngine(s); err != nil {
		return nil, err
	}
	before := loadAverage()
	if err := s.measure(b, ctx); err != nil {
		return nil, err
	}
	b.note("load average %s before, %s after", before, loadAverage())
	return b.Report, nil
}

func (b *bench) findEngine(s scenario) error {
	if s.plain {
		return nil
	}
	c, err := b.Settings(b.dir)
	if err == nil {
		b.runsc, err = assembly.Runsc(c)
	}
	return err
}

// newDir is a fresh directory of the scenario.
func (b *bench) newDir() string {
	b.made++
	return filepath.Join(b.dir, strconv.Itoa(b.made))
}

// A series is one thing to measure.
type series struct {
	name, unit string
	take       func(context.Context) (sample, error) // measures once
}

// A sample is one measurement. Its parts are added up by name, as series of their own.
type sample struct {
	value float64
	parts map[string]float64
}

// A plan says how several series are taken side by side: so many in a row of the first, then of the
// second, and so on, and again. The first turn of each does not count.
type plan struct {
	samples int           // of each series
	inRow   int           // at least 1
	every   time.Duration // from one arrival to the next; 0: back to back
}

// spaced is the arrival of single tasks, such that one has ended before the next one comes.
func spaced(n int) plan { return plan{samples: n, inRow: 10, every: 30 * time.Millisecond} }

// sideBySide takes the series as planned and adds them to the report.
func (b *bench) sideBySide(ctx context.Context, p plan, all ...series) error {
	p.inRow = min(p.inRow, p.samples)
	var arrive <-chan time.Time
	if p.every > 0 {
		ticker := time.NewTicker(p.every)
		defer ticker.Stop()
		arrive = ticker.C
	}
	for done := -p.inRow; done < p.samples; done += p.inRow {
		b.Progress(fmt.Sprintf("%s: %d of %d", b.Report.Scenario, max(done, 0), p.samples))
		for _, s := range all {
			for range min(p.inRow, p.samples-max(done, 0)) {
				if arrive != nil {
					<-arrive
				}
				got, err := s.take(ctx)
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				if done >= 0 {
					b.count(s, got)
				}
			}
		}
	}
	b.sumUp()
	return nil
}

// count adds a sample and its parts to their series.
func (b *bench) count(s series, got sample) {
	b.add(s.name, s.unit, got.value)
	for part, value := range got.parts {
		b.add(s.name+" · "+part, s.unit, value)
	}
}

// timed is a series of the time, in milliseconds, that a call takes.
func timed(name string, call func(context.Context) error) series {
	return series{name, "ms", func(ctx context.Context) (sample, error) {
		began := time.Now()
		err := call(ctx)
		return sample{value: since(began)}, err
	}}
}

// since is in milliseconds.
func since(t time.Time) float64 { return float64(time.Since(t).Microseconds()) / 1000 }
