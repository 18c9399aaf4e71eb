package microsandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
)

// outputKept bounds what is kept of what msb prints.
const outputKept = 1 << 20

// msb runs one command of the program and returns what it printed. Few run at a time: each opens the
// same database.
func (d *Driver) msb(ctx context.Context, timeout time.Duration, args ...string) ([]byte, error) {
	turns := d.calls
	if args[0] == "pull" || args[0] == "load" {
		turns = d.gets
	}
	select {
	case turns <- struct{}{}:
		defer func() { <-turns }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("msb %s did not end within %s", args[0], timeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, d.opts.Msb, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + d.home, "MSB_HOME=" + d.home, "TMPDIR=" + d.home, "NO_COLOR=1", "TERM=dumb"}
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second // the sandbox's own process may have inherited the pipes
	var stdout, stderr capped
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if err == nil {
		return stdout.Bytes(), nil
	}
	return nil, d.callError(ctx, args[0], err, stderr.String())
}

// callError tells a program that is not there, or that breaks, from one that says no.
func (d *Driver) callError(ctx context.Context, command string, err error, said string) error {
	said = complaint(said)
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("msb %s: %w", command, cause)
	}
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
		return &executor.HostError{
			Reason: executor.ReasonEngineMissing, Err: fmt.Errorf("no program msb at %s", d.opts.Msb),
			Fix: "npm install --prefix DIR @superradcompany/microsandbox-linux-x64-gnu@" + Version + ", then set execution.msb to its bin/msb",
		}
	case errors.As(err, &exit) && (crashed(exit) || exit.ExitCode() == rustPanic):
		return &executor.HostError{
			Reason: executor.ReasonEngineCrashed, Err: fmt.Errorf("msb %s crashed: %w: %.400s", command, err, said),
			Fix: "install version " + Version + " of msb again; it also needs the system's certificates (apt-get install ca-certificates)",
		}
	case errors.As(err, &exit):
		return fmt.Errorf("msb %s: %w: %.800s", command, err, said)
	}
	return &executor.HostError{
		Reason: executor.ReasonEngineCrashed, Err: fmt.Errorf("msb %s cannot be run: %w", command, err),
		Fix: "check that " + d.opts.Msb + " is a program for this machine",
	}
}

// complaint is the line of what msb printed that says what is wrong, else all of it.
func complaint(said string) string {
	for line := range strings.Lines(said) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "error: "); ok {
			return text
		}
	}
	return strings.TrimSpace(said)
}

// rustPanic is the exit code of a program that gave up on itself.
const rustPanic = 101

func crashed(exit *exec.ExitError) bool {
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}

// capped keeps the beginning of what is written to it.
type capped struct{ bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	if room := outputKept - c.Len(); room > 0 {
		c.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}
