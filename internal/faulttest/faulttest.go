// Package faulttest runs the parts of a fleet as separate processes and injects faults into them at random, by a seed:
// kill -9, SIGSTOP, restart. The processes are the test binary itself, which is executed again in a role.
//
//	func TestMain(m *testing.M) { faulttest.Main(m, map[string]faulttest.Role{"worker": worker}) }
//
//	p := faulttest.Start(t, "worker", "NAME=w1")
//	faulttest.Storm(ctx, t, rng, every, faulttest.Fault{Weight: 3, Do: p.KillAndRestart}, …)
package faulttest

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/clock"
)

const roleVariable = "FAULTTEST_ROLE"

// Role is the main function of a process. It calls ready when it is ready, and returns when ctx ends, which happens
// when the test ends.
type Role func(ctx context.Context, ready func()) error

// Main runs the role in which this process was started, or else the tests of m, a *testing.M or a wrapper of one. It
// does not return.
func Main(m interface{ Run() int }, roles map[string]Role) {
	name, started := os.LookupEnv(roleVariable)
	if !started {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with the parent, which holds the other end
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := roles[name](ctx, func() { fmt.Println("ready") }); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Getenv returns an environment variable: of Start, or of the tests.
func Getenv(name string) string { return os.Getenv(name) }

// Process is a process that runs a role. It is safe for concurrent use.
type Process struct {
	tb   testing.TB
	role string
	env  []string

	mu     sync.Mutex
	cmd    *exec.Cmd
	stdin  io.Closer
	closed bool
}

// Start runs a role until the test ends, with environment variables as for os/exec. It returns when the role is ready.
func Start(tb testing.TB, role string, env ...string) *Process {
	tb.Helper()
	p := &Process{tb: tb, role: role, env: env}
	tb.Cleanup(p.close)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.start(); err != nil {
		tb.Fatal(err)
	}
	return p
}

func (p *Process) start() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	p.cmd = exec.Command(exe, "-test.run=^$") //nolint:noctx // it outlives contexts, close kills it
	p.cmd.Env = append(append(os.Environ(), roleVariable+"="+p.role), p.env...)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.role, err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		return fmt.Errorf("start %s: output %q: %w", p.role, line, errors.Join(err, p.kill()))
	}
	return nil
}

// kill kills the process, stopped or not, and reaps it.
func (p *Process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	var exit *exec.ExitError
	if err := p.cmd.Wait(); !errors.As(err, &exit) {
		return err
	}
	return nil
}

// Stop tells the process to end and waits for that; after the timeout it kills the process. The error says how the
// process failed. Faults after Stop have no effect.
func (p *Process) Stop(timeout time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	if err := p.stdin.Close(); err != nil {
		return fmt.Errorf("stop %s: %w", p.role, err)
	}
	late := time.AfterFunc(timeout, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("stop %s: %w", p.role, err)
	}
	return nil
}

// PID returns the process id, which a restart changes.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Continue ends a SIGSTOP that the process has sent to itself.
func (p *Process) Continue() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// Killed waits until SIGKILL from outside of the test has ended the process. Faults after that have no effect.
func (p *Process) Killed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	err := p.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
			return nil
		}
	}
	return fmt.Errorf("%s ended, but not by SIGKILL: %w", p.role, cmp.Or(err, errors.New("exit code 0")))
}

func (p *Process) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if err := p.kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.tb.Errorf("end %s: %v", p.role, err)
	}
}

// KillAndRestart kills the process with SIGKILL and starts it again.
func (p *Process) KillAndRestart(context.Context, *rand.Rand) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	if err := p.kill(); err != nil {
		return fmt.Errorf("kill %s: %w", p.role, err)
	}
	return p.start()
}

// Freeze returns a fault that stops the process for a time from shortest to longest, and then continues it.
func (p *Process) Freeze(shortest, longest time.Duration) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, rng *rand.Rand) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.closed {
			return nil
		}
		if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			return fmt.Errorf("stop %s: %w", p.role, err)
		}
		_ = clock.Sleep(ctx, shortest+time.Duration(rng.Int64N(int64(longest-shortest)+1)))
		return p.cmd.Process.Signal(syscall.SIGCONT)
	}
}

// Fault is a fault to inject. A Storm chooses faults in proportion to their weights.
type Fault struct {
	Name   string
	Weight int
	Do     func(context.Context, *rand.Rand) error
}

// Storm injects faults at random intervals around every until ctx ends, and returns how often it injected each. It
// does not wait for a fault before it injects the next.
func Storm(ctx context.Context, tb testing.TB, seed uint64, every time.Duration, faults ...Fault) map[string]int {
	tb.Helper()
	rng := rand.New(rand.NewPCG(seed, seed))
	var lots []Fault
	for _, f := range faults {
		for range f.Weight {
			lots = append(lots, f)
		}
	}
	counts := map[string]int{}
	var wg sync.WaitGroup
	defer wg.Wait()
	for clock.Sleep(ctx, every/2+time.Duration(rng.Int64N(int64(every)))) == nil {
		f, own := lots[rng.IntN(len(lots))], rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
		counts[f.Name]++
		wg.Go(func() {
			if err := f.Do(ctx, own); err != nil {
				tb.Errorf("%s: %v", f.Name, err)
			}
		})
	}
	return counts
}
