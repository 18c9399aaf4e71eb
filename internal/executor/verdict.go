package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/codefleet/codefleet/internal/errcode"
	wire "github.com/codefleet/codefleet/internal/executor/runner"
)

const (
	exitLost   = 121     // child.py: the end could not be reported
	exitKilled = 128 + 9 // by SIGKILL
)

// base is what all verdicts share.
func (t *task) base() Verdict {
	return Verdict{
		Result:    json.RawMessage("null"),
		Output:    strings.ToValidUTF8(t.output.String(), "\uFFFD"),
		Stderr:    strings.ToValidUTF8(t.stderr.String(), "\uFFFD"),
		Truncated: t.truncated,
	}
}

func (v Verdict) end(status string, f *Failure) Verdict {
	v.Status, v.Error = status, f
	return v
}

// verdict reads the end that the runner reports. The program may have written all of it but "how"
// and what was used.
func (t *task) verdict(done wire.Frame) Verdict {
	v := t.base()
	v.CPUMS, v.PeakMemoryMB = done.CPUMS, float64(done.PeakKB)/1024
	v.Truncated = v.Truncated || done.Dropped > 0
	switch {
	case done.How == "cancelled":
		return t.ended(v)
	case done.How == "channel":
		return v.end(Failed, channelBroken())
	case done.How == "exit":
		if done.OOM { // its limit was above what the box has
			v.Dirty = true
			return v.end(Failed, t.boxOutOfMemory())
		}
		return exited(v, done.Code, done.Signal)
	case done.Error != nil:
		f := Failure(*done.Error)
		if f.Code == errcode.MemoryLimit {
			f.Message, f.Hint = memoryMessage(t.limits), "ask for more memory, or work on smaller pieces"
		}
		return v.end(Failed, &f)
	case len(done.Body) == 0:
		return v.end(Succeeded, nil)
	case len(done.Body) > MaxResultBytes || !json.Valid(done.Body):
		return v.end(Failed, channelBroken())
	}
	v.Result = done.Body
	return v.end(Succeeded, nil)
}

// ended is the verdict on a program that we had killed.
func (t *task) ended(v Verdict) Verdict {
	switch t.stopped {
	case Blocked:
		return v.end(Blocked, t.blocked)
	case Cancelled:
		return v.end(Cancelled, &Failure{Code: errcode.Cancelled, Message: "the program was cancelled"})
	case Timeout:
		return v.end(Timeout, &Failure{
			Code:    errcode.Timeout,
			Message: fmt.Sprintf("the program did not end within %s", t.limits.Timeout),
			Hint:    "ask for a longer timeout, or do less in one task",
		})
	}
	v.Dirty = true // nobody asked for it
	return v.end(Failed, channelBroken())
}

// exited is the verdict on a program that ended without a report: with a code, or by a signal.
func exited(v Verdict, code int, signal string) Verdict {
	switch {
	case signal == "SIGXCPU":
		return v.end(Failed, &Failure{Code: errcode.CPULimit, Message: "the program used up its processor time"})
	case signal != "":
		return v.end(Failed, &Failure{Code: errcode.Signal, Message: "the program was killed by " + signal})
	case code == exitLost:
		return v.end(Failed, channelBroken())
	case code != 0:
		return v.end(Failed, &Failure{
			Code:    errcode.ExitCode,
			Message: fmt.Sprintf("the program ended with exit code %d", code),
		})
	}
	return v.end(Succeeded, nil) // os._exit(0)
}

// died is the verdict on a program whose box ended under it, or the error that made us end the box.
func (t *task) died(ctx context.Context) (Verdict, error) {
	r := t.runner
	v := t.base()
	v.Dirty = true
	switch {
	case t.stopped != "":
		return t.ended(v), nil
	case errors.Is(r.err, wire.ErrFrame):
		return t.broken(r.err), nil
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrCancelled):
		return Verdict{}, context.Cause(ctx)
	case r.outOfMemory():
		return v.end(Failed, t.boxOutOfMemory()), nil
	}
	message := fmt.Sprintf("the sandbox ended with code %d while the program ran", r.code)
	if _, ok := r.box.(OOMReporter); r.destroyed() || ok && r.guest.Split { // out of the program's reach
		return Verdict{}, fmt.Errorf("%w: %s%s", ErrSandboxDied, message, r.stderr.note())
	}
	return v.end(Failed, &Failure{Code: errcode.SandboxDied, Message: message, Cause: strings.TrimPrefix(r.stderr.note(), ": ")}), nil
}

func (t *task) boxOutOfMemory() *Failure {
	return &Failure{Code: errcode.MemoryLimit, Message: memoryMessage(t.limits) + "; the whole sandbox was ended"}
}

// broken ends the box, and is the verdict on a program whose runner does not keep to the protocol.
func (t *task) broken(err error) Verdict {
	_ = t.runner.kill() // now, so that nothing that is being written to it blocks for ever
	v := t.base()
	v.Dirty = true
	f := channelBroken()
	f.Cause = err.Error()
	return v.end(Failed, f)
}

func (r *runner) outOfMemory() bool {
	if c, ok := r.box.(OOMReporter); ok {
		return c.OutOfMemory()
	}
	return r.code == exitKilled
}

func channelBroken() *Failure {
	return &Failure{
		Code:    errcode.ChannelBroken,
		Message: "the program closed or disturbed the channel that its result travels on",
		Hint:    "a program leaves descriptors alone that it has not opened",
	}
}

func memoryMessage(l Limits) string {
	return fmt.Sprintf("the program needed more than %d MB of memory", l.MemoryMB)
}
