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

// The sizes of the trees, and other parameters.
const (
	smallFiles    = 10_000
	smallSize     = 1 << 10   // bytes
	largeSize     = 256 << 20 // bytes
	manyFiles     = 100_000
	idleTasks     = 30 // tasks that change nothing
	addedDelay    = 20 * time.Millisecond
	delayedSuffix = ", 20 ms per request"
)

// The steps of a round, and other parts of the names of series.
const (
	firstPush         = "first push"
	samePush          = "no-change push"
	onePush           = "1-file push"
	coldPull          = "cold pull"
	samePull          = "no-change pull"
	largePush         = "256 MiB push"
	largeEdit         = "8 bytes of 256 MiB push"
	largePull         = "256 MiB pull"
	idleSeries        = "no-change task: codefleet"
	withoutExecutable = "codefleet, without the pages of its executable"
)

// workspace measures pushes and pulls of a directory beside rclone and restic, with the same tree and the same server,
// in turns.
func (b *run) workspace(ctx context.Context) (err error) {
	server, err := embedded.StartS3(ctx, embedded.S3Options{
		Dir: b.NewDir(), Addr: "127.0.0.1:0", AccessKey: "bench", SecretKey: "bench-secret", Bucket: "bench",
		NoSync: true, // a flush for each object would slow down rclone most, which has an object for each file
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	remote := bucket{"http://" + server.Endpoint(), "bench", "bench", "bench-secret"}
	slow, closeSlow, err := startDelay(ctx, remote, addedDelay)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSlow()) }()

	e := &codefleetTool{b: b}
	tools := append([]syncTool{e}, b.yardsticks(ctx)...)
	if err := b.turns(ctx, "", remote, tools, b.small); err != nil {
		return err
	}
	if err := b.turns(ctx, delayedSuffix, slow, tools, b.small); err != nil {
		return err
	}
	if err := b.turns(ctx, "", remote, tools, b.large); err != nil {
		return err
	}
	uploaded, err := b.alone(ctx, remote)
	if err != nil {
		return err
	}
	b.Add("codefleet: start of its process", "ms", e.starts...)
	b.Summarise()
	b.addNumbers(tools, uploaded)
	return nil
}

// sizes are the sizes of the trees. Tests use smaller ones.
type sizes struct {
	small int   // files in the tree of small files
	large int64 // bytes of the large file
	many  int   // files in the tree of which one file changes
}

// step is a measured operation.
type step struct {
	name  string
	run   func(context.Context, syncTool) (float64, error)
	after func() error // prepares the next step; it is not measured and may be nil
}

// turns measures each step with each tool in turn. Each round begins with another tool.
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
				b.Progress(fmt.Sprintf("workspace: %s%s, round %d of %d, %s", s.name, suffix, round+1, b.N, t.name()))
				took, err := s.run(ctx, t)
				if err != nil {
					return fmt.Errorf("%s%s: %s: %w", s.name, suffix, t.name(), err)
				}
				b.Add(s.name+suffix+": "+t.name(), "ms", took)
			}
			if s.after != nil {
				if err := s.after(); err != nil {
					return err
				}
			}
		}
		for _, t := range tools {
			peak, err := t.end()
			if err != nil {
				return fmt.Errorf("%s: %w", t.name(), err)
			}
			series := fmt.Sprintf("peak memory of %s and after%s: ", all[0].name, suffix)
			b.Add(series+t.name(), "MB", peak)
			if e, ok := t.(*codefleetTool); ok {
				b.Add(series+withoutExecutable, "MB", e.withoutExecutable)
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

// pull pulls into a directory below dir, a different one for each tool.
func pull(dir string, cold bool) func(context.Context, syncTool) (float64, error) {
	return func(ctx context.Context, t syncTool) (float64, error) {
		target := filepath.Join(dir, "pulled by "+t.name())
		if err := os.MkdirAll(target, 0o755); err != nil {
			return 0, err
		}
		return t.pull(ctx, target, cold)
	}
}

// small returns the steps with many small files.
func (b *run) small(dir string) ([]step, error) {
	tree := filepath.Join(dir, "tree")
	edit := func() error {
		return os.WriteFile(filepath.Join(tree, "d07", "f00007"), []byte("changed in "+dir), 0o600)
	}
	return []step{
		{name: firstPush, run: push(tree)},
		{name: samePush, run: push(tree), after: edit},
		{name: onePush, run: push(tree)},
		{name: coldPull, run: pull(dir, true)},
		{name: samePull, run: pull(dir, false)},
	}, fillSmall(tree, b.sizes.small, smallSize)
}

// large returns the steps with one large file.
func (b *run) large(dir string) ([]step, error) {
	tree := filepath.Join(dir, "tree")
	return []step{
		{name: largePush, run: push(tree), after: func() error { return edit8(filepath.Join(tree, "large")) }},
		{name: largeEdit, run: push(tree)},
		{name: largePull, run: pull(dir, true)},
	}, fillLarge(tree, b.sizes.large)
}

// alone measures what has no yardstick: a task that changes nothing, and the upload of one changed file of 100,000.
func (b *run) alone(ctx context.Context, remote bucket) (uploaded float64, err error) {
	dir := b.NewDir()
	defer os.RemoveAll(dir)
	e, err := b.startWorkspaceChild(ctx, remote)
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

// addNumbers adds the numbers N9a to N9v with their targets to the report. For each step the number is the time
// divided by the faster yardstick's.
func (b *run) addNumbers(tools []syncTool, uploaded float64) {
	steps := []string{firstPush, samePush, onePush, coldPull, samePull}
	for _, s := range steps {
		steps = append(steps, s+delayedSuffix)
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
	b.AtMost("N9s", "peak memory of the process, 10,000 files",
		b.Median("peak memory of "+firstPush+" and after: "+withoutExecutable), 64, "MB")
	b.AtMost("N9t", "peak memory of the process, 256 MiB",
		b.Median("peak memory of "+largePush+" and after: "+withoutExecutable), 64, "MB")
	b.AtMost("N9u", "upload of 1 changed file of 100,000", uploaded, 64, "KiB")
	b.AtMost("N9v", "no-change task: conditional GET and scan of 10,000 files", b.Median(idleSeries), 30, "ms")
}

// fillSmall writes n files with random content to a hundred directories.
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
