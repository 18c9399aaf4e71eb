package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/bench"
	"github.com/codefleet/codefleet/internal/config"
)

// jsonProgram is the program that published comparisons of hosted sandboxes use. It prints jsonOutput.
const (
	jsonProgram = `import json, sys; print(json.dumps({"x": 6 * 7}))`
	jsonOutput  = `{"x": 42}` + "\n"
)

// bursts are numbers of simultaneous callers.
var bursts = []int{4, 8, 16, 24, 50}

const (
	// sustainOther is how long each of the other contenders gets programs at most. They keep no state between programs,
	// so more time would show nothing new.
	sustainOther = time.Minute
	sustainShare = 0.8 // rate of arrivals, as a share of the rate at which boxes are created
	refillTasks  = 24  // number of tasks with which that rate is measured
	fastMS       = 500 // a response within this time feels immediate
)

// contender is a way to run a program.
type contender struct {
	name string
	run  func(context.Context) error
}

// firstAnswer measures how long an agent waits from its request to the program's output: with one caller at a time,
// with many at once, and with tasks at a steady rate. Each is measured beside other ways to run a program.
func (b *run) firstAnswer(ctx context.Context) (err error) {
	c, stop, err := b.StartClient(ctx, func(*config.Config) {})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	all := append([]contender{
		{"codefleet", func(ctx context.Context) error { return runJSONTask(ctx, c) }},
	}, b.otherContenders()...)
	if err := b.oneAfterTheOther(ctx, all); err != nil {
		return err
	}
	if err := b.manyAtOnce(ctx, all); err != nil {
		return err
	}
	if err := b.sustained(ctx, all[1:]); err != nil {
		return err
	}
	b.addLatencyTable(all)
	return b.plotLatencies(all)
}

// otherContenders returns contenders that start a sandbox or an interpreter for each program.
func (b *run) otherContenders() []contender {
	contenders := []contender{
		{"runsc do", func(ctx context.Context) error { return b.RunEngine(ctx, jsonProgram, jsonOutput) }},
		{"python -c", func(ctx context.Context) error {
			return bench.Expect(exec.CommandContext(ctx, bench.Python(), "-c", jsonProgram), jsonOutput)
		}},
	}
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		b.Note("bubblewrap was not measured: it is not installed (run apt-get install bubblewrap)")
		return contenders
	}
	return append(contenders, contender{"bubblewrap", func(ctx context.Context) error {
		args := []string{"--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"}
		for _, dir := range []string{"/usr", "/lib", "/lib64", "/bin"} {
			if _, err := os.Stat(dir); err == nil {
				args = append(args, "--ro-bind", dir, dir)
			}
		}
		return bench.Expect(exec.CommandContext(ctx, bwrap, append(args, bench.Python(), "-c", jsonProgram)...),
			jsonOutput)
	}})
}

// runJSONTask runs the program in the fleet.
func runJSONTask(ctx context.Context, c *client.Client) error {
	_, err := bench.RunTask(ctx, c, client.Submission{Task: client.Task{Code: jsonProgram}}, jsonOutput)
	return err
}

// oneAfterTheOther measures one program at a time for each contender, in turns.
func (b *run) oneAfterTheOther(ctx context.Context, all []contender) error {
	var list []bench.Series
	for _, c := range all {
		list = append(list, bench.Timed("sequential · "+c.name, c.run))
	}
	if err := b.SideBySide(ctx, bench.Plan{Samples: b.N, PerTurn: min(5, b.N)}, list...); err != nil {
		return err
	}
	b.AtMost("F1", "sequential: codefleet ÷ python -c",
		b.Median("sequential · codefleet")/b.Median("sequential · python -c"), 0.8, "×")
	return nil
}

// manyAtOnce measures each size of burst twice for each contender, in turns.
func (b *run) manyAtOnce(ctx context.Context, all []contender) error {
	for _, size := range bursts {
		for range 2 {
			for _, c := range all {
				b.Progress(fmt.Sprintf("first-answer: %d at once, %s", size, c.name))
				arrivals := make(chan time.Time, size)
				for range size {
					arrivals <- time.Now()
				}
				close(arrivals)
				if err := b.runArrivals(ctx, fmt.Sprintf("burst %02d · %s", size, c.name), c, arrivals); err != nil {
					return err
				}
			}
		}
	}
	b.Summarise()
	largest := fmt.Sprintf("burst %02d · ", bursts[len(bursts)-1])
	b.AtMost("F2", "p99 of the largest burst: codefleet ÷ runsc do",
		b.Yardsticks[largest+"codefleet"].P99/b.Yardsticks[largest+"runsc do"].P99, 1, "×")
	return nil
}

// runArrivals runs a program for each arrival, and adds the times from arrival to output.
func (b *run) runArrivals(ctx context.Context, name string, c contender, arrivals <-chan time.Time) error {
	var mu sync.Mutex
	var failed error
	var running sync.WaitGroup
	for arrived := range arrivals {
		running.Go(func() {
			err := c.run(ctx)
			took := bench.Since(arrived)
			mu.Lock()
			defer mu.Unlock()
			if failed = errors.Join(failed, err); err == nil {
				b.Add(name, "ms", took)
			}
		})
	}
	running.Wait()
	if failed != nil {
		return fmt.Errorf("%s: %w", name, failed)
	}
	return ctx.Err()
}

// sustained submits tasks at a steady rate to a fleet whose boxes serve one task each, so that it must create boxes
// fast enough. The other contenders get the same rate for at most a minute.
func (b *run) sustained(ctx context.Context, others []contender) (err error) {
	c, stop, err := b.StartClient(ctx, func(c *config.Config) { c.Execution.Reuse = "never" })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	fleet := contender{"codefleet, a new box each", func(ctx context.Context) error { return runJSONTask(ctx, c) }}
	refill, err := b.refillRate(ctx, fleet)
	if err != nil {
		return err
	}
	const rounds = 2
	every := time.Duration(float64(time.Second) / (refill * sustainShare))
	for range rounds {
		for i, c := range append([]contender{fleet}, others...) {
			turn := b.sustain / rounds
			if i > 0 {
				turn = min(turn, sustainOther/rounds)
			}
			b.Progress(fmt.Sprintf("first-answer: %.1f tasks per second for %s, %s", refill*sustainShare, turn, c.name))
			if err := b.runArrivals(ctx, "sustained · "+c.name, c, pace(ctx, every, turn)); err != nil {
				return err
			}
		}
	}
	b.Summarise()
	fast := 0
	times := b.Samples["sustained · "+fleet.name]
	for _, ms := range times {
		if ms <= fastMS {
			fast++
		}
	}
	b.AtLeast("F3", fmt.Sprintf("sustained: responses within %d ms", fastMS),
		100*float64(fast)/float64(max(1, len(times))), 99)
	b.Note("sustained: a new box for each task; the fleet creates and uses %.1f boxes per second; tasks arrived at "+
		"%.0f %% of that rate for %s", refill, 100*sustainShare, b.sustain)
	return nil
}

// refillRate returns the tasks per second of a fleet that needs a new box for each task.
func (b *run) refillRate(ctx context.Context, fleet contender) (float64, error) {
	b.Progress("first-answer: rate at which boxes are created")
	got, err := bench.Rate("", 4, refillTasks,
		func(ctx context.Context, _ int) error { return fleet.run(ctx) }).Measure(ctx)
	return got.Value, err
}

// pace sends arrivals at a fixed interval for a time. It does not wait until they are received.
func pace(ctx context.Context, every, lasting time.Duration) <-chan time.Time {
	out := make(chan time.Time, lasting/every+1)
	go func() {
		defer close(out)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for end := time.Now().Add(lasting); time.Now().Before(end); {
			select {
			case t := <-tick.C:
				out <- t
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// addLatencyTable adds the series as a table, in the shape in which such figures are published.
func (b *run) addLatencyTable(all []contender) {
	t := bench.Table{Title: "First answer, ms", Columns: []string{
		"arrivals", "contender", "responses", "p50", "p95", "p99",
	}}
	row := func(mode, name string) {
		s := b.Samples[mode+" · "+name]
		if len(s) == 0 {
			return
		}
		cells := []string{mode, name, strconv.Itoa(len(s))}
		for _, p := range []float64{0.5, 0.95, 0.99} {
			cells = append(cells, fmt.Sprintf("%.0f", bench.Quantile(s, p)))
		}
		t.Rows = append(t.Rows, cells)
	}
	modes := []string{"sequential"}
	for _, size := range bursts {
		modes = append(modes, fmt.Sprintf("burst %02d", size))
	}
	for _, mode := range append(modes, "sustained") {
		row(mode, "codefleet, a new box each")
		for _, c := range all {
			row(mode, c.name)
		}
	}
	b.Tables = append(b.Tables, t)
}

// plotLatencies draws the medians and 99th percentiles by the number of simultaneous callers, if plots are wanted.
func (b *run) plotLatencies(all []contender) error {
	if b.plots == "" {
		return nil
	}
	p := plot{Title: "First answer: callers at once → ms (line: median, band: to the 99th percentile)"}
	for _, size := range append([]int{1}, bursts...) {
		p.X = append(p.X, strconv.Itoa(size))
	}
	for _, c := range all {
		l := line{Name: c.name}
		for _, size := range append([]int{1}, bursts...) {
			name := fmt.Sprintf("burst %02d · %s", size, c.name)
			if size == 1 {
				name = "sequential · " + c.name
			}
			q := b.Yardsticks[name]
			l.Points = append(l.Points, q.P50)
			l.High = append(l.High, q.P99)
		}
		p.Lines = append(p.Lines, l)
	}
	if err := os.MkdirAll(b.plots, 0o755); err != nil {
		return err
	}
	var svg strings.Builder
	if err := p.write(&svg); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.plots, "first-answer.svg"), []byte(svg.String()), 0o644)
}
