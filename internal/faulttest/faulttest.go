// Package faulttest runs the parts of a fleet as separate processes and injects faults into them: kill -9, SIGSTOP,
// restarts and lost disks. A seed determines the order of the faults. Each process executes the test binary again, in a
// role. A Relay injects faults into connections.
//
//	func TestMain(m *testing.M) { faulttest.Main(m, map[string]faulttest.Role{"worker": worker}) }
//
//	p := faulttest.Start(t, "worker", "NAME=w1")
//	faulttest.InjectRandomly(ctx, t, seed, every, faulttest.Fault{Weight: 3, Do: p.KillAndRestart}, …)
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
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/clock"
)

const roleVariable = "FAULTTEST_ROLE"

// Role is the main function of a process. It calls ready when it is ready, and returns when ctx ends: when Stop or
// Restart end it, or the process of the test exits. At the end of the test, a process that still runs is killed.
type Role func(ctx context.Context, ready func()) error

// Main runs the role in which Start started this process, or else m, a *testing.M or a wrapper of one. It does not
// return.
func Main(m interface{ Run() int }, roles map[string]Role) {
	name, started := os.LookupEnv(roleVariable)
	if !started {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends when the parent closes the other end, or exits
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := roles[name](ctx, func() { fmt.Println("ready") }); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Process is a process that runs a role. It is safe for concurrent use, except that PID and Continue must not be called
// while a fault restarts the process.
type Process struct {
	tb   testing.TB
	role string
	env  []string

	mu     sync.Mutex
	cmd    *exec.Cmd
	stdin  io.Closer
	closed bool
}

// Start runs a role until the test ends, with additional environment variables (NAME=value). It returns when the role
// is ready.
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
	p.cmd = exec.Command(exe, "-test.run=^$") //nolint:noctx // close kills it
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

// kill kills the process, even if it is stopped, and waits for it. It returns an error if the process has failed by
// itself.
func (p *Process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	err := p.cmd.Wait()
	if byKill(err) {
		return nil
	}
	return err
}

// byKill reports whether SIGKILL ended the process whose Wait returned err.
func byKill(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signal() == syscall.SIGKILL
}

// Stop ends the context of the role and waits until the process exits; after the timeout it kills the process. It
// returns an error unless the process has exited successfully. Later faults have no effect. A second call does nothing.
func (p *Process) Stop(timeout time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	if err := p.end(timeout); err != nil {
		return fmt.Errorf("stop %s: %w", p.role, err)
	}
	return nil
}

// end ends the context of the role and waits until the process exits; after the limit it kills the process.
func (p *Process) end(limit time.Duration) error {
	process := p.cmd.Process // the timer must not kill its successor
	late := time.AfterFunc(limit, func() { _ = process.Kill() })
	defer late.Stop()
	return errors.Join(p.stdin.Close(), p.cmd.Wait())
}

// PID returns the process id, which changes with each restart.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Continue continues a process that has sent SIGSTOP to itself.
func (p *Process) Continue() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// Killed waits until the process has ended, and returns an error unless SIGKILL ended it. Later faults have no effect.
func (p *Process) Killed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	err := p.cmd.Wait()
	if byKill(err) {
		return nil
	}
	return fmt.Errorf("%s was not killed: %w", p.role, cmp.Or(err, errors.New("exit code 0")))
}

func (p *Process) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.cmd == nil || p.cmd.Process == nil {
		return // it was not started
	}
	if err := p.kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.tb.Errorf("end %s: %v", p.role, err)
	}
}

// ErrBusy is returned by a fault that was not injected, because another fault of the process was in progress, or the
// process had ended. Faults of a process do not wait for each other: they could queue up, and the process would then
// spend all its time in faults.
var ErrBusy = errors.New("another fault of the process is in progress")

// inject calls do while no other fault of the process is in progress, or returns ErrBusy.
func (p *Process) inject(do func() error) error {
	if !p.mu.TryLock() {
		return ErrBusy
	}
	defer p.mu.Unlock()
	if p.closed {
		return ErrBusy
	}
	return do()
}

// KillAndRestart is a fault that kills the process with SIGKILL and starts it again.
func (p *Process) KillAndRestart(context.Context, *rand.Rand) error {
	return p.inject(func() error {
		if err := p.kill(); err != nil {
			return fmt.Errorf("kill %s: %w", p.role, err)
		}
		return p.start()
	})
}

// Outage returns a fault that kills the process with SIGKILL, removes the directories, as if the host had lost its
// disk, and starts the process again after a random time between shortest and longest.
func (p *Process) Outage(shortest, longest time.Duration, dirs ...string) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, rng *rand.Rand) error {
		return p.inject(func() error {
			if err := p.kill(); err != nil {
				return fmt.Errorf("kill %s: %w", p.role, err)
			}
			for _, dir := range dirs {
				if err := os.RemoveAll(dir); err != nil {
					return fmt.Errorf("remove the disk of %s: %w", p.role, err)
				}
			}
			_ = clock.Sleep(ctx, between(shortest, longest, rng))
			return p.start()
		})
	}
}

// Restart returns a fault that restarts the process as a rolling restart does: it ends the role's context, waits until
// the process has exited, and starts it again. A process that has not exited after limit is killed, which is an error.
func (p *Process) Restart(limit time.Duration) func(context.Context, *rand.Rand) error {
	return func(context.Context, *rand.Rand) error {
		return p.inject(func() error {
			if err := p.end(limit); err != nil {
				return fmt.Errorf("restart %s: %w", p.role, err)
			}
			return p.start()
		})
	}
}

func between(shortest, longest time.Duration, rng *rand.Rand) time.Duration {
	return shortest + time.Duration(rng.Int64N(int64(longest-shortest)+1))
}

// Freeze returns a fault that stops the process for a random time between shortest and longest, and then continues it.
func (p *Process) Freeze(shortest, longest time.Duration) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, rng *rand.Rand) error {
		return p.inject(func() error {
			if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				return fmt.Errorf("stop %s: %w", p.role, err)
			}
			_ = clock.Sleep(ctx, between(shortest, longest, rng))
			return p.cmd.Process.Signal(syscall.SIGCONT)
		})
	}
}

// Fault is a fault to inject. InjectRandomly chooses faults in proportion to their weights.
type Fault struct {
	Name   string
	Weight int
	Do     func(context.Context, *rand.Rand) error
}

// InjectRandomly injects faults until ctx ends, and returns how often it injected each. The intervals are random; every
// is their mean. It does not wait for a fault before it injects the next. A fault that returns ErrBusy does not count.
func InjectRandomly(
	ctx context.Context, tb testing.TB, seed uint64, every time.Duration, faults ...Fault,
) map[string]int {
	tb.Helper()
	rng := rand.New(rand.NewPCG(seed, seed))
	var weighted []Fault
	for _, f := range faults {
		weighted = append(weighted, slices.Repeat([]Fault{f}, f.Weight)...)
	}
	counts := map[string]int{}
	var mu sync.Mutex // protects counts
	var wg sync.WaitGroup
	for clock.Sleep(ctx, every/2+time.Duration(rng.Int64N(int64(every)))) == nil {
		f, faultRNG := weighted[rng.IntN(len(weighted))], rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
		wg.Go(func() {
			err := f.Do(ctx, faultRNG)
			if errors.Is(err, ErrBusy) {
				return
			}
			if err != nil {
				tb.Errorf("%s: %v", f.Name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			counts[f.Name]++
		})
	}
	wg.Wait()
	return counts
}

// MeasureLag begins to measure for how long this process does not get a processor, and returns a function that ends the
// measurement and returns the sum. Tests of time limits subtract it. Delays below 10 ms do not count.
func MeasureLag() (end func() time.Duration) {
	const tick, normal = 5 * time.Millisecond, 10 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	sum := make(chan time.Duration)
	go func() {
		var lag time.Duration
		for ctx.Err() == nil {
			began := time.Now()
			<-time.After(tick)
			if late := time.Since(began) - tick; late >= normal {
				lag += late
			}
		}
		sum <- lag
	}()
	return func() time.Duration {
		cancel()
		return <-sum
	}
}
