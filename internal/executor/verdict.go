package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor/runner"
)

const (
	signalUnreported = "signal 62" // UNREPORTED in child.py: the program's end could not be reported
	exitKilled       = 128 + 9     // by SIGKILL
)

// newVerdict returns a verdict with the fields that all verdicts share.
func (e *execution) newVerdict() Verdict {
	return Verdict{
		Result:    json.RawMessage("null"),
		Output:    strings.ToValidUTF8(e.stdout.String(), "\uFFFD"),
		Stderr:    strings.ToValidUTF8(e.stderr.String(), "\uFFFD"),
		Truncated: e.truncated,
	}
}

func (v Verdict) with(status string, f *Failure) Verdict {
	v.Status, v.Error = status, f
	return v
}

// verdict translates the runner's "done" frame. The program may have forged its error, result, checkpoint and
// StateSaved; the other fields are the runner's own.
func (e *execution) verdict(done runner.Frame) Verdict {
	v := e.newVerdict()
	v.CPUMS, v.PeakMemoryMB = done.CPUMS, float64(done.PeakKB)/1024
	v.Truncated = v.Truncated || done.Dropped > 0
	message, cause, kept, result := done.Split()
	v.Checkpoint, v.StateSaved = checkpoint(kept), done.StateSaved
	var failure *Failure
	if f := done.Error; f != nil {
		failure = &Failure{Code: f.Code, Message: message, Cause: cause, Hint: f.Hint, Line: f.Line}
	}
	v = e.withOutcome(v, done, failure, result)
	if done.OOM || e.runner.killedForMemory() {
		v.Dirty = true
		if v.Status == Failed && mayFollowKill(v.Error.Code) {
			v.Error = e.memoryFailure(v.Error)
		}
	}
	return v
}

// checkpoint returns a checkpoint that the program reports, or nil unless it is a JSON object of at most MaxCheckpoint
// bytes that is valid as a result.
func checkpoint(reported []byte) json.RawMessage {
	if len(reported) > MaxCheckpoint || !bytes.HasPrefix(reported, []byte("{")) || !validResult(reported) {
		return nil
	}
	return reported
}

// mayFollowKill reports whether a failure with this code may have been caused by the kill of a process: the program,
// one of its children, or a process of the engine that executes them.
func mayFollowKill(code string) bool {
	return code == errcode.Signal || code == errcode.ExitCode || code == errcode.Exception
}

// withOutcome adds the program's outcome in the "done" frame to v: its failure, if it has one, or its result.
func (e *execution) withOutcome(v Verdict, done runner.Frame, failure *Failure, result []byte) Verdict {
	switch {
	case done.How == "cancelled":
		return e.stoppedVerdict(v)
	case done.How == "channel":
		return v.with(Failed, channelBroken())
	case done.How == "exit":
		return exitVerdict(v, done.Code, done.Signal, cpuSeconds(e.limits))
	case failure != nil:
		if failure.Code == errcode.MemoryLimit {
			failure.Message = memoryMessage(e.limits)
			failure.Hint = "ask for more memory in limits.memory_mb, or work on smaller pieces"
		}
		return v.with(Failed, failure)
	case len(result) == 0:
		return v.with(Succeeded, nil)
	case !validResult(result):
		return v.with(Failed, channelBroken())
	}
	v.Result = result
	return v.with(Succeeded, nil)
}

// stoppedVerdict adds to v why the host stopped the program. If the host did not stop it, the channel is broken.
func (e *execution) stoppedVerdict(v Verdict) Verdict {
	switch e.stopped {
	case Blocked:
		return v.with(Blocked, e.blocked)
	case Cancelled:
		return v.with(Cancelled, &Failure{Code: errcode.Cancelled, Message: "the program was cancelled"})
	case Timeout:
		return v.with(Timeout, &Failure{
			Code:    errcode.Timeout,
			Message: fmt.Sprintf("the program did not end within %s", e.limits.Timeout),
			Hint:    "ask for a longer timeout, or do less in one task",
		})
	}
	v.Dirty = true // the runner reports a cancellation that was not requested
	return v.with(Failed, channelBroken())
}

// exitVerdict returns the verdict on a program that exited without a report. cpuSeconds is its limit.
func exitVerdict(v Verdict, code int, signal string, cpuSeconds int64) Verdict {
	switch {
	case signal == "SIGXCPU" && v.CPUMS > float64(cpuSeconds-1)*1000: // the kernel's clock is coarse
		return v.with(Failed, &Failure{Code: errcode.CPULimit, Message: "the program used up its processor time"})
	case signal == signalUnreported:
		return v.with(Failed, channelBroken())
	case signal != "":
		return v.with(Failed, &Failure{Code: errcode.Signal, Message: "the program was killed by " + signal})
	case code != 0:
		message := fmt.Sprintf("the program ended with exit code %d", code)
		return v.with(Failed, &Failure{Code: errcode.ExitCode, Message: message})
	}
	return v.with(Succeeded, nil) // os._exit(0)
}

// boxEnded returns the verdict on a program whose box ended, or an error if the program is not the cause.
func (e *execution) boxEnded(ctx context.Context) (Verdict, error) {
	r := e.runner
	v := e.newVerdict()
	v.Dirty = true
	switch {
	case e.stopped != "":
		return e.stoppedVerdict(v), nil
	case errors.Is(r.err, runner.ErrFrame):
		return e.protocolError(r.err), nil
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrCancelled):
		return e.interrupted(ctx)
	case r.outOfMemory():
		return v.with(Failed, e.boxOutOfMemory()), nil
	}
	message := fmt.Sprintf("the sandbox ended with code %d while the program ran", r.code)
	// A program cannot end the box itself if it runs as a different user from the runner.
	if _, ok := r.box.(OOMReporter); r.wasKilled() || ok && r.guest.SeparateUser {
		return Verdict{}, fmt.Errorf("%w: %s%s", ErrSandboxDied, message, r.stderr.suffix())
	}
	cause := strings.TrimPrefix(r.stderr.suffix(), ": ")
	return v.with(Failed, &Failure{Code: errcode.SandboxDied, Message: message, Cause: cause}), nil
}

// interrupted returns the verdict on a program that was ended because of a *Failure, which is the cause of ctx.
// It returns any other cause as an error.
func (e *execution) interrupted(ctx context.Context) (Verdict, error) {
	failure, ok := errors.AsType[*Failure](context.Cause(ctx))
	if !ok {
		return Verdict{}, context.Cause(ctx)
	}
	v := e.newVerdict()
	v.Dirty = true
	return v.with(Failed, failure), nil
}

func (e *execution) boxOutOfMemory() *Failure {
	return &Failure{Code: errcode.MemoryLimit, Message: memoryMessage(e.limits) + "; the whole sandbox was ended"}
}

// memoryFailure replaces the failure of a program after the kernel has killed a process in its box for lack of
// memory. The box may run out of memory before the program reaches its own limit.
func (e *execution) memoryFailure(original *Failure) *Failure {
	f := e.boxOutOfMemory()
	f.Line, f.Cause = original.Line, original.Cause
	return f
}

// protocolError destroys the box, and returns the verdict on a program whose runner violates the protocol.
func (e *execution) protocolError(err error) Verdict {
	_ = e.runner.kill() // first, because it unblocks pending writes
	v := e.newVerdict()
	v.Dirty = true
	f := channelBroken()
	f.Cause = err.Error()
	return v.with(Failed, f)
}

// outOfMemory reports whether a box that has ended had too little memory.
func (r *runnerProcess) outOfMemory() bool {
	_, reports := r.box.(OOMReporter)
	return r.killedForMemory() || !reports && r.code == exitKilled
}

// killedForMemory reports whether the host's kernel has killed a process of the box for lack of memory. If the box is
// alive, this was a process of the program, or one that the engine needs to execute it.
func (r *runnerProcess) killedForMemory() bool {
	reporter, ok := r.box.(OOMReporter)
	return ok && reporter.OutOfMemory()
}

func channelBroken() *Failure {
	return &Failure{
		Code:    errcode.ChannelBroken,
		Message: "the program closed or disturbed the channel that its result travels on",
		Hint:    "do not close or use file descriptors that the program has not opened",
	}
}

func memoryMessage(l Limits) string {
	return fmt.Sprintf("the program needed more than %d MB of memory", l.MemoryMB)
}
