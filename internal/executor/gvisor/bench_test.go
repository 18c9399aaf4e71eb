package gvisor_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
)

// runnerModules are what the runner imports, for the yardstick of a cold start.
const runnerModules = "import ast, atexit, ctypes, gc, json, linecache, math, os, random, resource, select, signal, site, socket, sys, threading, traceback, types"

func median(samples []time.Duration) float64 {
	slices.Sort(samples)
	return float64(samples[len(samples)/2].Microseconds()) / 1000
}

// BenchmarkColdBox makes a box with its runner ready, and beside it lets the engine run
// Python with the same imports once: N5 is the ratio.
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
		cmd := exec.CommandContext(b.Context(), runsc, "--network=none", "--ignore-cgroups", "do", "/usr/bin/python3", "-c", runnerModules)
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

// BenchmarkWarmRun runs a program in a warm box of a pool, 5 ms apart and back to back,
// beside the interpreter on the host.
func BenchmarkWarmRun(b *testing.B) {
	for name, gap := range map[string]time.Duration{"spaced": 5 * time.Millisecond, "closed": 0} {
		b.Run(name, func(b *testing.B) {
			p := startPool(b, newDriver(b), executor.PoolOptions{MinReady: 1, Max: 1})
			var leased, python []time.Duration
			i := 0
			for b.Loop() {
				<-time.After(gap)
				began := time.Now()
				l := lease(b, p, "tenant", executor.Limits{})
				if v := run(b, l, "print(6*7)"); v.Output != "42\n" {
					b.Fatalf("%+v", v)
				}
				l.Release()
				leased = append(leased, time.Since(began))
				if i++; i%4 == 0 {
					began = time.Now()
					if err := exec.CommandContext(b.Context(), "/usr/bin/python3", "-c", "print(6*7)").Run(); err != nil {
						b.Fatal(err)
					}
					python = append(python, time.Since(began))
				}
			}
			b.ReportMetric(median(leased), "ms-task")
			if len(python) > 0 {
				b.ReportMetric(median(python), "ms-python")
			}
		})
	}
}

// BenchmarkIdleMemory reports what an idle box uses: of its cgroup, and of the memory
// that the host has left. It is N6 and has nothing to do with time.
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
			s, err := executor.NewSingle(b.Context(), spy, executor.Spec{Name: "w" + string(rune('0'+i)), Owner: "bench", Workspace: workspace(b)})
			if err != nil {
				b.Fatal(err)
			}
			singles = append(singles, s)
		}
		var cgroups float64
		for _, box := range spy.boxes {
			stats, err := box.(executor.Stater).Stats(b.Context())
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

// available is the memory that the host could still give, in MB.
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
	b.Fatal("no MemAvailable")
	return 0
}

// boxSpy keeps the boxes that its driver makes.
type boxSpy struct {
	executor.Driver
	boxes []executor.Box
}

func (s *boxSpy) Create(ctx context.Context, spec executor.Spec) (executor.Box, error) {
	box, err := s.Driver.Create(ctx, spec)
	s.boxes = append(s.boxes, box)
	return box, err
}
