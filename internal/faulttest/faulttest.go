// Package faulttest runs the parts of a fleet as processes of their own and hurts them, by a seed:
// kill -9, SIGSTOP, restart. A test binary is its own fleet: it re-executes itself in a role.
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
)

const roleVariable = "FAULTTEST_ROLE"

// Role is what a process of the test does. It calls ready once it works, and returns when ctx ends,
// which it does when the test is gone.
type Role func(ctx context.Context, ready func()) error

// Main runs the role that this process was started in, or else the tests (m is the *testing.M, or wraps
// it). It does not return.
func Main(m interface{ Run() int }, roles map[string]Role) {
	name, started := os.LookupEnv(roleVariable)
	if !started {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // the parent holds the other end, so it ends with the parent however that ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := roles[name](ctx, func() { fmt.Println("ready") }); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Getenv is a variable of this process: one that Start was given, or of the tests' own environment.
func Getenv(name string) string { return os.Getenv(name) }

// Process is a role at work. Its methods may be called from several goroutines.
type Process struct {
	tb   testing.TB
	role string
	env  []string

	mu     sync.Mutex
	cmd    *exec.Cmd
	stdin  io.Closer
	closed bool
}

// Start runs a role, given variables as in os/exec, until the test ends. It returns when the role is
// ready.
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
	p.cmd = exec.Command(exe, "-test.run=^$") //nolint:noctx // it outlives contexts and is killed by name
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
		return fmt.Errorf("start %s: it says %q: %w", p.role, line, errors.Join(err, p.kill()))
	}
	return nil
}

// kill ends the process at once, stopped or not, and reaps it.
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

// Stop asks the process to end, as a role does when the test is gone, and waits for it. A process
// that does not end in time is killed. The error says what is wrong with how it ended. Nothing is
// done to it any more, and nothing is done to one that has ended.
func (p *Process) Stop(patience time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	if err := p.stdin.Close(); err != nil {
		return fmt.Errorf("stop %s: %w", p.role, err)
	}
	late := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("stop %s: %w", p.role, err)
	}
	return nil
}

// PID is the process's id; another one after a restart.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Continue undoes a SIGSTOP that the process has sent to itself.
func (p *Process) Continue() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// Killed waits until the process has been ended by SIGKILL without any help of the test's. Nothing
// is done to it any more.
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
	return fmt.Errorf("%s ended, and not by SIGKILL: %w", p.role, cmp.Or(err, errors.New("exit code 0")))
}

func (p *Process) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if err := p.kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.tb.Errorf("end %s: %v", p.role, err)
	}
}

// KillAndRestart is kill -9 and a new start.
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

// Freeze returns a fault that stops the process for between least and most, and lets it go on.
func (p *Process) Freeze(least, most time.Duration) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, rng *rand.Rand) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.closed {
			return nil
		}
		if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			return fmt.Errorf("stop %s: %w", p.role, err)
		}
		pause(ctx, least+time.Duration(rng.Int64N(int64(most-least)+1)))
		return p.cmd.Process.Signal(syscall.SIGCONT)
	}
}

// Fault is something to do to a fleet. Faults happen as often as their weights say.
type Fault struct {
	Name   string
	Weight int
	Do     func(context.Context, *rand.Rand) error
}

// Storm does one fault after another, a random time around every apart, until ctx ends, and returns
// how often each happened. A fault that takes long does not hold up the next.
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
	for pause(ctx, every/2+time.Duration(rng.Int64N(int64(every)))) {
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

// pause waits and reports whether ctx let it.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
