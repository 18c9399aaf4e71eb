package bench

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
)

// cold measures the time to the first result of a fleet on empty data, and the time to create a box, each beside the
// engine alone.
func (b *Bench) cold(ctx context.Context) (err error) {
	imports, err := runnerImports()
	if err != nil {
		return err
	}
	oneByOne := Plan{Samples: b.N, PerTurn: 1}
	up := Series{"up to first result", "ms", b.firstResult}
	engine := Timed("runsc do python -c",
		func(ctx context.Context) error { return b.RunEngine(ctx, SmallestProgram, SmallestOutput) })
	if err := b.SideBySide(ctx, oneByOne, up, engine); err != nil {
		return err
	}
	b.AtMost("N4", "up to first result ÷ runsc do python -c", b.Median(up.Name)/b.Median(engine.Name), 3, "×")

	c, driver, err := b.newDriver()
	if err != nil {
		return err
	}
	first, err := executor.NewSingle(ctx, driver, executor.Spec{Name: "first", Owner: "bench", Workspace: c.Data})
	if err != nil {
		return errors.Join(err, driver.Close())
	}
	defer func() { err = errors.Join(err, first.Close(context.WithoutCancel(ctx)), driver.Close()) }()
	box := Series{
		"box with runner", "ms", func(ctx context.Context) (Sample, error) { return makeBox(ctx, first, c.Data) },
	}
	engine = Timed("runsc do python -c imports",
		func(ctx context.Context) error { return b.RunEngine(ctx, imports, "") })
	err = b.SideBySide(ctx, oneByOne, box, engine)
	b.AtMost("N5", "box with runner ÷ runsc do python -c imports", b.Median(box.Name)/b.Median(engine.Name), 1.1, "×")
	return err
}

// firstResult measures the start of `codefleet up` on empty data and one task. It does not measure the stop.
func (b *Bench) firstResult(ctx context.Context) (s Sample, err error) {
	data := b.NewDir()
	defer os.RemoveAll(data)
	began := time.Now()
	u, err := b.startUp(ctx, data)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, u.Stop()) }()
	ready := Since(began)
	c, err := Connect(ctx, u.Fleet)
	if err != nil {
		return s, err
	}
	defer c.Close()
	err = runSmallest(ctx, c)
	return Sample{Since(began), map[string]float64{"ready": ready}}, err
}

// makeBox measures the creation of a box with a ready runner, in the way a pool creates all boxes after its first one.
func makeBox(ctx context.Context, first *executor.Single, dir string) (Sample, error) {
	workspace, err := os.MkdirTemp(dir, "ws")
	if err != nil {
		return Sample{}, err
	}
	defer os.RemoveAll(workspace)
	began := time.Now()
	s, err := first.Another(ctx, executor.Spec{Name: "b", Owner: "bench", Workspace: workspace})
	if err != nil {
		return Sample{}, err
	}
	took := Since(began)
	return Sample{Value: took}, s.Close(context.WithoutCancel(ctx))
}
