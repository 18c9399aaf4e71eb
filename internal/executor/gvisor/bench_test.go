package gvisor_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/executor"
)

// runnerModules are the costly imports of the runner. Importing them is the yardstick for a cold start.
const runnerModules = "import ast, atexit, ctypes, gc, json, linecache, math, os, random, resource, select, signal, " +
	"site, socket, sys, threading, traceback, types"

func median(samples []time.Duration) float64 {
	slices.Sort(samples)
	return float64(samples[len(samples)/2].Microseconds()) / 1000
}

// BenchmarkColdBox creates a box with its runner. As a yardstick, it runs Python with the same imports in a sandbox of
// the engine. N5 is the ratio of the two times.
func BenchmarkColdBox(b *testing.B) {
	d := newDriver(b)
	runsc, ws := engine(b), workspace(b)
	var ours, theirs []time.Duration
	for b.Loop() {
		began := time.Now()
		s, err := executor.NewSingle(b.Context(), d, executor.Spec{Name: "w0", Owner: "bench", Workspace: ws})
		if err != nil {
			b.Fatal(err)
		}
		ours = append(ours, time.Since(began))
		if err := s.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
		began = time.Now()
		cmd := exec.CommandContext(b.Context(), runsc, "--network=none", "--ignore-cgroups", "do", "/usr/bin/python3",
			"-c", runnerModules)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		theirs = append(theirs, time.Since(began))
	}
	box, yardstick := median(ours), median(theirs)
	b.ReportMetric(box, "ms-box")
	b.ReportMetric(yardstick, "ms-yardstick")
	b.ReportMetric(box/yardstick, "N5")
}

// BenchmarkPreloadedBox creates preloaded boxes in turn by a boot, by a boot that takes a snapshot, and from that
// snapshot, and runs a program that uses the modules in each. CODEFLEET_BENCH_PRELOAD names the modules, and
// CODEFLEET_BENCH_IMAGE a root file system that has them.
func BenchmarkPreloadedBox(b *testing.B) {
	preload := benchPreload()
	spy := &boxSpy{Driver: newDriver(b)}
	spec := executor.Spec{
		Name: "w0", Owner: "bench", Workspace: workspace(b), Image: os.Getenv("CODEFLEET_BENCH_IMAGE"),
	}
	code := "import " + strings.Join(preload, ",") + "\nprint(6*7)"
	dir := shortDir(b)
	var boots, saves, restores []sample
	for b.Loop() {
		began := time.Now()
		box, err := executor.NewPreloaded(b.Context(), spy, spec, preload, "")
		boots = append(boots, measureBox(b, spy, box, err, began, code))
		began = time.Now()
		saved, err := executor.NewPreloaded(b.Context(), spy, spec, preload,
			filepath.Join(dir, strconv.Itoa(len(saves))))
		saves = append(saves, measureBox(b, spy, saved, err, began, code))
		began = time.Now()
		box, err = saved.Another(b.Context(), spec)
		restores = append(restores, measureBox(b, spy, box, err, began, code))
		if !box.Restored() {
			b.Fatal("Restored() = false, want true")
		}
	}
	for name, samples := range map[string][]sample{"boot": boots, "save": saves, "restore": restores} {
		b.ReportMetric(medianOf(samples, func(s sample) float64 { return s.created }), "ms-"+name)
		b.ReportMetric(medianOf(samples, func(s sample) float64 { return s.first }), "ms-first-"+name)
		b.ReportMetric(medianOf(samples, func(s sample) float64 { return s.second }), "ms-second-"+name)
		b.ReportMetric(medianOf(samples, func(s sample) float64 { return s.idle }), "MB-idle-"+name)
		b.ReportMetric(medianOf(samples, func(s sample) float64 { return s.used }), "MB-used-"+name)
		b.ReportMetric(medianOf(samples, func(s sample) float64 { return s.cpu }), "ms-cpu-"+name)
	}
}

// sample is the measurements of one box.
type sample struct {
	created float64 // ms until the box was created
	first   float64 // ms until its first result
	second  float64 // ms for its second result
	idle    float64 // MB of memory before its first program
	used    float64 // MB of memory after its second program
	cpu     float64 // ms of processor time until the box was created
}

func medianOf(samples []sample, value func(sample) float64) float64 {
	var values []float64
	for _, s := range samples {
		values = append(values, value(s))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func measureBox(b *testing.B, spy *boxSpy, s *executor.Single, err error, began time.Time, code string) (m sample) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	m.created = ms(began)
	reporter := spy.boxes[len(spy.boxes)-1].(executor.StatsReporter)
	stats := func() executor.Stats {
		stats, err := reporter.Stats(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		return stats
	}
	before := stats()
	m.idle, m.cpu = before.MemoryMB, before.CPUMS
	for _, elapsed := range []*float64{&m.first, &m.second} {
		began := time.Now()
		if v, err := s.Run(b.Context(), executor.Program{TaskID: "t", Code: code}, executor.Hooks{}); err != nil ||
			v.Output != "42\n" {
			b.Fatalf("Run() = %+v, %v, want the output 42", v, err)
		}
		*elapsed = ms(began)
	}
	m.first += m.created
	m.used = stats().MemoryMB
	if err := s.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	return m
}

func ms(since time.Time) float64 { return float64(time.Since(since).Microseconds()) / 1000 }

// BenchmarkChangeOfTenants runs tasks of 12 tenants in a pool of at most 3 preloaded boxes, so that each task needs a
// new box. It alternates between a pool that boots boxes and a pool that restores them.
func BenchmarkChangeOfTenants(b *testing.B) {
	preload := benchPreload()
	root := executor.Root{Preload: preload, Image: os.Getenv("CODEFLEET_BENCH_IMAGE")}
	rates := map[string][]float64{}
	pools := map[string]*executor.Pool{}
	for name, d := range map[string]executor.Driver{"boot": bootOnly{newDriver(b)}, "restore": newDriver(b)} {
		prepare := func(context.Context) (executor.Root, error) { return root, nil }
		pools[name] = startPool(b, d, executor.PoolOptions{
			MinReady: 1, Max: 3, DiskMB: 32, Environments: []executor.Environment{{Prepare: prepare}},
		})
	}
	for b.Loop() {
		for name, p := range pools {
			began := time.Now()
			var group errgroup.Group
			group.SetLimit(3)
			for i := range 12 {
				group.Go(func() error {
					box, err := p.Acquire(b.Context(), executor.Key{Tenant: strconv.Itoa(i)}, executor.Limits{}, nil)
					if err != nil {
						return err
					}
					defer box.Release()
					_, err = box.Run(b.Context(),
						executor.Program{TaskID: "t", Code: "import " + strings.Join(preload, ",")}, executor.Hooks{})
					return err
				})
			}
			if err := group.Wait(); err != nil {
				b.Fatal(err)
			}
			rates[name] = append(rates[name], 12/time.Since(began).Seconds())
		}
	}
	for name, values := range rates {
		slices.Sort(values)
		b.ReportMetric(values[len(values)/2], "tasks/s-"+name)
	}
}

// bootOnly is a driver without snapshots.
type bootOnly struct{ executor.Driver }

func (d bootOnly) Create(ctx context.Context, spec executor.Spec) (executor.Box, error) {
	box, err := d.Driver.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return struct {
		executor.Box
		executor.Limiter
		executor.GuestReporter
	}{box, box.(executor.Limiter), box.(executor.GuestReporter)}, nil
}

// benchPreload returns the modules in CODEFLEET_BENCH_PRELOAD, or slow modules of the standard library.
func benchPreload() []string {
	return strings.Split(cmp.Or(os.Getenv("CODEFLEET_BENCH_PRELOAD"),
		"asyncio,decimal,email,http.client,logging,sqlite3,ssl,unittest,xml.dom"), ",")
}

// BenchmarkWarmRun runs a program repeatedly in a warm box of a pool, at intervals of 5 ms and without intervals. For
// comparison it also runs the program in the host's interpreter.
func BenchmarkWarmRun(b *testing.B) {
	for name, interval := range map[string]time.Duration{"spaced": 5 * time.Millisecond, "back-to-back": 0} {
		b.Run(name, func(b *testing.B) {
			p := startPool(b, newDriver(b), executor.PoolOptions{MinReady: 1, Max: 1})
			var tasks, python []time.Duration
			i := 0
			for b.Loop() {
				<-time.After(interval)
				began := time.Now()
				box := acquire(b, p, "tenant", executor.Limits{})
				if v := run(b, box, "print(6*7)"); v.Output != "42\n" {
					b.Fatalf("run = %+v, want the output 42", v)
				}
				box.Release()
				tasks = append(tasks, time.Since(began))
				if i++; i%4 == 0 {
					began = time.Now()
					if err := exec.CommandContext(b.Context(), "/usr/bin/python3", "-c",
						"print(6*7)").Run(); err != nil {
						b.Fatal(err)
					}
					python = append(python, time.Since(began))
				}
			}
			b.ReportMetric(median(tasks), "ms-task")
			if len(python) > 0 {
				b.ReportMetric(median(python), "ms-python")
			}
		})
	}
}

// BenchmarkJudged compares a program that is not judged with one that is judged while it runs and one that is judged
// before it runs. The three take turns.
func BenchmarkJudged(b *testing.B) {
	const code = "import json, math\nrows = [{'n': n, 'r': math.sqrt(n)} for n in range(9)]\n" +
		"print(json.dumps(rows)[:9])"
	p := startPool(b, newDriver(b), executor.PoolOptions{MinReady: 1, Max: 1})
	modes := []struct {
		name  string
		hooks executor.Hooks
		times []time.Duration
	}{
		{name: "ms-off"},
		{name: "ms-advise", hooks: executor.Hooks{Facts: func(executor.Facts) {}}},
		{name: "ms-strict", hooks: executor.Hooks{Check: func(executor.Facts) error { return nil }}},
	}
	for b.Loop() {
		for i := range modes {
			m := &modes[i]
			<-time.After(60 * time.Millisecond) // until the next child is ready
			began := time.Now()
			box := acquire(b, p, "tenant", executor.Limits{})
			v, err := box.Run(b.Context(), executor.Program{TaskID: "t", Code: code}, m.hooks)
			if err != nil || v.Status != executor.Succeeded {
				b.Fatalf("%s: %+v, %v", m.name, v, err)
			}
			box.Release()
			m.times = append(m.times, time.Since(began))
		}
	}
	for _, m := range modes {
		b.ReportMetric(median(m.times), m.name)
	}
}

// BenchmarkIdleMemory reports the memory of an idle box (N6): the memory charged to its cgroup, and the decrease of
// the host's available memory.
func BenchmarkIdleMemory(b *testing.B) {
	const boxes = 10
	d := newDriver(b)
	if _, err := d.Probe(b.Context()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		before := available(b)
		spy := &boxSpy{Driver: d}
		var singles []*executor.Single
		for i := range boxes {
			s, err := executor.NewSingle(b.Context(), spy,
				executor.Spec{Name: "w" + string(rune('0'+i)), Owner: "bench", Workspace: workspace(b)})
			if err != nil {
				b.Fatal(err)
			}
			singles = append(singles, s)
		}
		var cgroups float64
		for _, box := range spy.boxes {
			stats, err := box.(executor.StatsReporter).Stats(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			cgroups += stats.MemoryMB
		}
		b.ReportMetric(cgroups/boxes, "MB-charged/box")
		b.ReportMetric((before-available(b))/boxes, "MB-available/box")
		for _, s := range singles {
			if err := s.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// available returns the available memory of the host, in MB.
func available(b *testing.B) float64 {
	b.Helper()
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(info)) {
		var kb float64
		if _, err := fmt.Sscanf(line, "MemAvailable: %f kB", &kb); err == nil {
			return kb / 1024
		}
	}
	b.Fatal("/proc/meminfo has no MemAvailable")
	return 0
}

// boxSpy keeps the boxes that its driver creates.
type boxSpy struct {
	executor.Driver
	boxes []executor.Box
}

func (s *boxSpy) Create(ctx context.Context, spec executor.Spec) (executor.Box, error) {
	box, err := s.Driver.Create(ctx, spec)
	s.boxes = append(s.boxes, box)
	return box, err
}
