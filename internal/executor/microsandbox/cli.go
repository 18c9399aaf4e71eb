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

// maxOutput is how many bytes of each output stream are kept.
const maxOutput = 1 << 20

// msb runs an msb command and returns its output. It limits how many run at once, because all of them open the
// same database.
func (d *Driver) msb(ctx context.Context, timeout time.Duration, args ...string) ([]byte, error) {
	slots := d.calls
	if args[0] == "pull" || args[0] == "load" {
		slots = d.fetches
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	late := fmt.Errorf("it did not end within %s", timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, late)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.opts.Msb, args...)
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + d.home, "MSB_HOME=" + d.home, "TMPDIR=" + d.home,
		"NO_COLOR=1", "TERM=dumb",
	}
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second // the sandbox's process may have inherited the pipes
	var stdout, stderr capped
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if err == nil {
		return stdout.buffer.Bytes(), nil
	}
	return nil, d.callError(ctx, args[0], err, stderr.buffer.String())
}

// callError distinguishes a missing or crashing msb from one that reports an error.
func (d *Driver) callError(ctx context.Context, command string, err error, stderr string) error {
	message := errorLine(stderr)
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("msb %s: %w", command, cause)
	}
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
		return &executor.HostError{
			Reason: executor.ReasonEngineMissing, Err: fmt.Errorf("msb not found at %s", d.opts.Msb),
			Fix: "npm install --prefix DIR @superradcompany/microsandbox-linux-x64-gnu@" + Version +
				", then set execution.msb to its bin/msb",
		}
	case errors.As(err, &exit) && (crashed(exit) || exit.ExitCode() == rustPanic):
		return &executor.HostError{
			Reason: executor.ReasonEngineCrashed, Err: fmt.Errorf("msb %s crashed: %w: %.400s", command, err, message),
			Fix: "reinstall version " + Version + " of msb; " +
				"it also needs the system's certificates (apt-get install ca-certificates)",
		}
	case errors.As(err, &exit):
		return fmt.Errorf("msb %s: %w: %.800s", command, err, message)
	}
	return &executor.HostError{
		Reason: executor.ReasonEngineCrashed, Err: fmt.Errorf("run msb %s: %w", command, err),
		Fix: "check that " + d.opts.Msb + " is an executable for this machine",
	}
}

// errorLine returns the text of the first line of msb's output that begins with "error: ", or the whole output.
func errorLine(stderr string) string {
	for line := range strings.Lines(stderr) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "error: "); ok {
			return text
		}
	}
	return strings.TrimSpace(stderr)
}

// rustPanic is the exit code of a Rust process that panicked.
const rustPanic = 101

func crashed(exit *exec.ExitError) bool {
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}

// capped keeps the first maxOutput bytes written to it. It does not embed its buffer, whose ReadFrom io.Copy would use.
type capped struct{ buffer bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	if room := maxOutput - c.buffer.Len(); room > 0 {
		c.buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}
