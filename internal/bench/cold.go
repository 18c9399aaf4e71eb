package bench

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/executor"
)

// cold measures the first result of a fleet on empty data, and the making of a sandbox, each beside
// the engine alone.
func (b *bench) cold(ctx context.Context) (err error) {
	imports, err := runnerImports()
	if err != nil {
		return err
	}
	oneByOne := plan{samples: b.n, inRow: 1}
	up := series{"up to first result", "ms", b.firstResult}
	engine := timed("runsc do python -c", func(ctx context.Context) error { return b.runEngine(ctx, program, "42\n") })
	if err := b.sideBySide(ctx, oneByOne, up, engine); err != nil {
		return err
	}
	b.atMost("N4", "up to first result ÷ runsc do python -c", b.p50(up.name)/b.p50(engine.name), 3, "×")

	dir := b.newDir()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	c, err := b.Settings(dir)
	if err != nil {
		return err
	}
	driver, err := assembly.Driver(c, filepath.Join(dir, "g"), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	first, err := executor.NewSingle(ctx, driver, executor.Spec{Name: "first", Owner: "bench", Workspace: dir})
	if err != nil {
		return errors.Join(err, driver.Close())
	}
	defer func() { err = errors.Join(err, first.Close(context.WithoutCancel(ctx)), driver.Close()) }()
	box := series{"box with runner", "ms", func(ctx context.Context) (sample, error) { return makeBox(ctx, first, dir) }}
	engine = timed("runsc do python -c imports", func(ctx context.Context) error { return b.runEngine(ctx, imports, "") })
	err = b.sideBySide(ctx, oneByOne, box, engine)
	b.atMost("N5", "box with runner ÷ runsc do python -c imports", b.p50(box.name)/b.p50(engine.name), 1.1, "×")
	return err
}

// firstResult starts `up` on empty data and runs one task. What ends it again does not count.
func (b *bench) firstResult(ctx context.Context) (s sample, err error) {
	data := b.newDir()
	defer os.RemoveAll(data)
	began := time.Now()
	u, err := b.startUp(ctx, data)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, u.stop()) }()
	ready := since(began)
	o, err := client.ReadFleetFile(u.Fleet)
	if err != nil {
		return s, err
	}
	c, err := client.New(ctx, o)
	if err != nil {
		return s, err
	}
	defer c.Close()
	_, err = must(ctx, c, client.Submission{Task: client.Task{Code: program}}, "42\n")
	return sample{since(began), map[string]float64{"ready": ready}}, err
}

// makeBox makes a box with its runner ready, as a pool does that has made one. What ends it again does not count.
func makeBox(ctx context.Context, first *executor.Single, dir string) (sample, error) {
	workspace, err := os.MkdirTemp(dir, "ws")
	if err != nil {
		return sample{}, err
	}
	defer os.RemoveAll(workspace)
	began := time.Now()
	s, err := first.Another(ctx, executor.Spec{Name: "b", Owner: "bench", Workspace: workspace})
	if err != nil {
		return sample{}, err
	}
	took := since(began)
	return sample{value: took}, s.Close(context.WithoutCancel(ctx))
}
