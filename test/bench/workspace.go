package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/codefleet/codefleet/internal/embedded"
)

// Sizes of what is pushed and pulled.
const (
	smallFiles = 10_000
	smallSize  = 1 << 10
	largeSize  = 256 << 20
	veryMany   = 100_000
	idleTasks  = 30
	addedDelay = 20 * time.Millisecond
	slowly     = ", 20 ms a request"
)

// The steps of a round. Each is the name of a series for each tool.
const (
	firstPush  = "first push"
	samePush   = "no-change push"
	onePush    = "1-file push"
	coldPull   = "cold pull"
	samePull   = "no-change pull"
	largePush  = "256 MiB push"
	largeEdit  = "8 bytes of 256 MiB push"
	largePull  = "256 MiB pull"
	idleSeries = "no-change task: codefleet"
	engineOnly = "codefleet, without its program's file"
)

// workspace measures pushes and pulls of a directory beside two other programs made for that: with the same
// tree and the same server, in turns.
func (b *run) workspace(ctx context.Context) (err error) {
	server, err := embedded.StartS3(ctx, embedded.S3Options{
		Dir: b.NewDir(), Addr: "127.0.0.1:0", AccessKey: "bench", SecretKey: "bench-secret", Bucket: "bench",
		NoSync: true, // a flush for each object would slow the tool down most that has an object for each file
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	remote := bucket{"http://" + server.Endpoint(), "bench", "bench", "bench-secret"}
	slow, closeSlow, err := delayed(ctx, remote, addedDelay)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSlow()) }()

	engine := &ours{b: b}
	tools := append([]syncTool{engine}, b.yardsticks(ctx)...)
	if err := b.turns(ctx, "", remote, tools, b.small); err != nil {
		return err
	}
	if err := b.turns(ctx, slowly, slow, tools, b.small); err != nil {
		return err
	}
	if err := b.turns(ctx, "", remote, tools, b.large); err != nil {
		return err
	}
	uploaded, err := b.alone(ctx, remote)
	if err != nil {
		return err
	}
	b.Add("codefleet: start of its process", "ms", engine.starts...)
	b.Summarise()
	b.judge(tools, uploaded)
	return nil
}

// sizes are those of the trees; tests use smaller ones.
type sizes struct {
	small int   // files
	large int64 // bytes
	many  int   // files
}

// step is one thing that each tool does in its turn.
type step struct {
	what string
	do   func(context.Context, syncTool) (float64, error)
	then func() error // before the next step, not measured; may be nil
}

// turns measures each step with each tool in turn; each round begins with another tool.
func (b *run) turns(ctx context.Context, suffix string, remote bucket, tools []syncTool,
	steps func(dir string) ([]step, error),
) error {
	for round := range b.N {
		dir := b.NewDir()
		all, err := steps(dir)
		if err != nil {
			return err
		}
		for _, t := range tools {
			if err := t.begin(ctx, remote, filepath.Base(dir)); err != nil {
				return fmt.Errorf("%s: %w", t.name(), err)
			}
		}
		for _, s := range all {
			for i := range tools {
				t := tools[(i+round)%len(tools)]
				b.Progress(fmt.Sprintf("workspace: %s%s, round %d of %d, %s", s.what, suffix, round+1, b.N, t.name()))
				took, err := s.do(ctx, t)
				if err != nil {
					return fmt.Errorf("%s%s: %s: %w", s.what, suffix, t.name(), err)
				}
				b.Add(s.what+suffix+": "+t.name(), "ms", took)
			}
			if s.then != nil {
				if err := s.then(); err != nil {
					return err
				}
			}
		}
		for _, t := range tools {
			peak, err := t.end()
			if err != nil {
				return fmt.Errorf("%s: %w", t.name(), err)
			}
			about := fmt.Sprintf("peak memory of %s and after%s: ", all[0].what, suffix)
			b.Add(about+t.name(), "MB", peak)
			if o, ok := t.(*ours); ok {
				b.Add(about+engineOnly, "MB", o.engine)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

func push(dir string) func(context.Context, syncTool) (float64, error) {
	return func(ctx context.Context, t syncTool) (float64, error) { return t.push(ctx, dir) }
}

// pull fills a directory for each tool below dir.
func pull(dir string, cold bool) func(context.Context, syncTool) (float64, error) {
	return func(ctx context.Context, t syncTool) (float64, error) {
		own := filepath.Join(dir, "pulled by "+t.name())
		if cold {
			if err := os.MkdirAll(own, 0o755); err != nil {
				return 0, err
			}
		}
		return t.pull(ctx, own, cold)
	}
}

// small returns the steps with many small files.
func (b *run) small(dir string) ([]step, error) {
	tree := filepath.Join(dir, "tree")
	edit := func() error {
		return os.WriteFile(filepath.Join(tree, "d07", "f00007"), []byte("changed in "+dir), 0o600)
	}
	return []step{
		{what: firstPush, do: push(tree)},
		{what: samePush, do: push(tree), then: edit},
		{what: onePush, do: push(tree)},
		{what: coldPull, do: pull(dir, true)},
		{what: samePull, do: pull(dir, false)},
	}, fillSmall(tree, b.sizes.small, smallSize)
}

// large returns the steps with one large file.
func (b *run) large(dir string) ([]step, error) {
	tree := filepath.Join(dir, "tree")
	return []step{
		{what: largePush, do: push(tree), then: func() error { return edit8(filepath.Join(tree, "large")) }},
		{what: largeEdit, do: push(tree)},
		{what: largePull, do: pull(dir, true)},
	}, fillLarge(tree, b.sizes.large)
}

// alone measures what has no yardstick: a task that changes nothing, and the upload of one changed file of
// 100,000.
func (b *run) alone(ctx context.Context, remote bucket) (uploaded float64, err error) {
	dir := b.NewDir()
	defer os.RemoveAll(dir)
	e, err := b.startEngine(ctx, remote)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	idle, many := filepath.Join(dir, "idle"), filepath.Join(dir, "many")
	if err := errors.Join(fillSmall(idle, b.sizes.small, smallSize), fillSmall(many, b.sizes.many, 100)); err != nil {
		return 0, err
	}
	b.Progress("workspace: tasks that change nothing")
	if _, err := e.call("push", "idle", idle); err != nil {
		return 0, err
	}
	for range idleTasks {
		took, err := e.call("task", "idle", idle)
		if err != nil {
			return 0, err
		}
		b.Add(idleSeries, "ms", took)
	}
	b.Progress(fmt.Sprintf("workspace: one of %d files", b.sizes.many))
	if _, err := e.call("push", "many", many); err != nil {
		return 0, err
	}
	b.Note("codefleet: first push of %d files uploaded %d KiB in %d requests, at most %.0f MB resident", b.sizes.many,
		e.last.Up>>10, e.last.Requests, e.last.Peak)
	if err := os.WriteFile(filepath.Join(many, "d42", "f00042"), []byte("changed"), 0o600); err != nil {
		return 0, err
	}
	took, err := e.call("push", "many", many)
	b.Note("codefleet: 1 of %d files: %.0f ms, %d bytes in %d requests", b.sizes.many, took, e.last.Up, e.last.Requests)
	return float64(e.last.Up) / 1024, err
}

// judge computes the numbers: each step divided by the faster yardstick.
func (b *run) judge(tools []syncTool, uploaded float64) {
	steps := []string{firstPush, samePush, onePush, coldPull, samePull}
	for _, s := range steps {
		steps = append(steps, s+slowly)
	}
	for i, what := range append(steps, largePush, largeEdit, largePull) {
		best := ""
		for _, t := range tools[1:] {
			if name := what + ": " + t.name(); best == "" || b.Median(name) < b.Median(best) {
				best = name
			}
		}
		if best != "" {
			b.AtMost("N9"+string(rune('a'+i)), what+" ÷ "+best[len(what)+2:],
				b.Median(what+": codefleet")/b.Median(best), 1, "×")
		}
	}
	if yardstick := b.Median(firstPush + ": rclone sync"); yardstick > 0 {
		b.AtMost("N9r", firstPush+" ÷ rclone sync", b.Median(firstPush+": codefleet")/yardstick, 0.05, "×")
	}
	b.AtMost("N9s", "peak memory of the engine, 10,000 files",
		b.Median("peak memory of "+firstPush+" and after: "+engineOnly), 64, "MB")
	b.AtMost("N9t", "peak memory of the engine, 256 MiB",
		b.Median("peak memory of "+largePush+" and after: "+engineOnly), 64, "MB")
	b.AtMost("N9u", "upload of 1 changed file of 100,000", uploaded, 64, "KiB")
	b.AtMost("N9v", "no-change task: conditional GET and scan of 10,000 files", b.Median(idleSeries), 30, "ms")
}

// fillSmall writes n files of random content into a hundred directories.
func fillSmall(dir string, n, size int) error {
	const dirs = 100
	random := rand.NewChaCha8([32]byte{1})
	content := make([]byte, size)
	for i := range n {
		sub := filepath.Join(dir, fmt.Sprintf("d%02d", i%dirs))
		if i < dirs {
			if err := os.MkdirAll(sub, 0o755); err != nil {
				return err
			}
		}
		_, _ = random.Read(content) // never fails
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%05d", i)), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func fillLarge(dir string, size int64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "large"))
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{2}), size)
	return errors.Join(err, f.Close())
}

// edit8 changes 8 bytes in the middle of a file.
func edit8(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.WriteAt([]byte("8 bytes!"), info.Size()/2)
	}
	return errors.Join(err, f.Close())
}
