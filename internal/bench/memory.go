package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
)

// readyBoxes is the number of boxes that a worker keeps ready by default.
const readyBoxes = 3

// memory measures the memory of an idle fleet.
func (b *Bench) memory(ctx context.Context) error {
	workerPath, hasWorker := b.beside("worker")
	for i := range b.N {
		b.Progress(fmt.Sprintf("memory: %d of %d", i, b.N))
		if err := b.boxMemory(ctx); err != nil {
			return err
		}
		if err := b.upMemory(ctx, workerPath, hasWorker); err != nil {
			return err
		}
	}
	b.Summarise()
	box := "box, charged to its cgroup"
	if b.Median(box) == 0 { // not known: the cgroups have no memory controller
		box = "box, by MemAvailable"
	}
	b.AtMost("N6b", box, b.Median(box), 35, "MB")
	if hasWorker {
		b.AtMost("N6w", "worker process, resident", b.Median("worker"), 120, "MB")
	} else {
		b.Note("N6w was not measured: the binary `worker` is not beside codefleet (run make build)")
	}
	b.AtMost("N6u", "up and 3 boxes", b.Median("up, whole"), 350, "MB")
	return nil
}

// boxMemory creates idle boxes and adds samples: their average by MemAvailable, and what each one's cgroup is charged.
func (b *Bench) boxMemory(ctx context.Context) (err error) {
	const boxes = 5
	c, driver, err := b.newDriver()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.Close()) }()
	recorder := &boxRecorder{Driver: driver}
	first, err := executor.NewSingle(ctx, recorder, executor.Spec{Name: "first", Owner: "bench", Workspace: c.Data})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, first.Close(context.WithoutCancel(ctx))) }()
	before := memoryField("MemAvailable")
	for i := range boxes {
		workspace := filepath.Join(c.Data, "ws"+strconv.Itoa(i))
		if err := os.MkdirAll(workspace, 0o755); err != nil {
			return err
		}
		s, err := first.Another(ctx, executor.Spec{Name: strconv.Itoa(i), Owner: "bench", Workspace: workspace})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	}
	b.Add("box, by MemAvailable", "MB", (before-memoryField("MemAvailable"))/boxes)
	for _, box := range recorder.boxes[1:] {
		reporter, ok := box.(executor.StatsReporter)
		if !ok {
			return fmt.Errorf("boxes of %T do not report their memory", driver)
		}
		stats, err := reporter.Stats(ctx)
		if err != nil {
			return err
		}
		b.Add("box, charged to its cgroup", "MB", stats.MemoryMB)
	}
	return nil
}

// boxRecorder is a driver that records the boxes that it creates.
type boxRecorder struct {
	executor.Driver
	boxes []executor.Box
}

// Create implements executor.Driver.
func (r *boxRecorder) Create(ctx context.Context, spec executor.Spec) (executor.Box, error) {
	box, err := r.Driver.Create(ctx, spec)
	if err == nil {
		r.boxes = append(r.boxes, box)
	}
	return box, err
}

// upMemory measures `codefleet up` with its boxes, and a worker process that joins it.
func (b *Bench) upMemory(ctx context.Context, workerPath string, hasWorker bool) (err error) {
	data := b.NewDir()
	u, err := b.startUp(ctx, data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, u.Stop()) }()
	if err := awaitWorkers(ctx, u.Fleet, 1); err != nil { // up is ready with its first box
		return err
	}
	whole, err := treeMemory(u.PID())
	if err != nil {
		return err
	}
	b.Add("up, whole", "MB", whole)
	b.Add("up, its own process", "MB", Resident(u.PID()))
	if !hasWorker {
		return nil
	}
	joined, err := StartChild(ctx, b.NewDir(), nil, workerPath, "--fleet", u.Fleet)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, joined.Stop()) }()
	if err := awaitWorkers(ctx, u.Fleet, 2); err != nil {
		return err
	}
	b.Add("worker", "MB", Resident(joined.PID()))
	return nil
}

// awaitWorkers waits, for at most a minute, until the wanted number of workers have their boxes ready.
func awaitWorkers(ctx context.Context, fleetFile string, want int) error {
	c, err := Connect(ctx, fleetFile)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		f, err := c.Fleet(ctx)
		if err != nil {
			return err
		}
		ready := 0
		for _, w := range f.Workers {
			if w.Boxes["ready"] >= readyBoxes {
				ready++
			}
		}
		if ready >= want {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %d workers: %w", want, context.Cause(ctx))
		}
	}
}

// Resident returns the resident memory of a process in MB, or 0 if it has ended.
func Resident(pid int) float64 {
	return Kilobytes(filepath.Join("/proc", strconv.Itoa(pid), "status"), "VmRSS") / 1024
}

// treeMemory returns the memory of a process and its descendants in MB. For a box it counts, once, what the control
// group is charged. For any other process it counts the proportional set size (PSS), so that the pages that processes
// share are counted once.
func treeMemory(root int) (float64, error) {
	pids, err := processTree(root)
	if err != nil {
		return 0, err
	}
	total, counted := 0.0, map[string]bool{}
	for _, pid := range pids {
		proc := filepath.Join("/proc", strconv.Itoa(pid))
		file := boxChargeFile(proc)
		if file == "" {
			total += Kilobytes(filepath.Join(proc, "smaps_rollup"), "Pss") / 1024
			continue
		}
		if counted[file] {
			continue
		}
		counted[file] = true
		var bytes float64
		text, err := os.ReadFile(file)
		if err == nil {
			_, err = fmt.Sscan(string(text), &bytes)
		}
		if err != nil {
			return 0, fmt.Errorf("read the memory of a box: %w", err)
		}
		total += bytes / (1 << 20)
	}
	return total, nil
}

// boxChargeFile returns the path of the file with the memory charge of a process's box, or "" if the process is not in
// a box. proc is the process's directory below /proc.
func boxChargeFile(proc string) string {
	text, err := os.ReadFile(filepath.Join(proc, "cgroup"))
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(string(line)), ":", 3) // hierarchy:controllers:path
		if len(f) < 3 || !strings.HasPrefix(f[2], "/codefleet/") {
			continue
		}
		switch f[1] {
		case "":
			return filepath.Join("/sys/fs/cgroup", f[2], "memory.current")
		case "memory":
			return filepath.Join("/sys/fs/cgroup/memory", f[2], "memory.usage_in_bytes")
		}
	}
	return ""
}
