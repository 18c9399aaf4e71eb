package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor/runner"
)

const (
	// MaxResultBytes bounds a program's structured result, as JSON.
	MaxResultBytes = 960 << 10

	maxCalls      = 64              // calls in progress at once; the runner has the same limit
	maxLocalCalls = 1000            // local calls reported per program; the runner has the same limit
	maxReplyBytes = 16 << 20        // size of a tool's result
	killGrace     = 5 * time.Second // time for the runner to kill its program before the box is destroyed
)

// run runs one program. If ctx ends with a *Failure as its cause, that is the verdict's error; after ErrCancelled, the
// verdict's status is Cancelled; any other cause is returned as an error. After an error or a Dirty verdict, the box is
// destroyed. Otherwise awaitChecked tells what the program has left.
func (r *runnerProcess) run(ctx context.Context, p Program, hooks Hooks) (Verdict, error) {
	err := r.awaitReady(ctx)
	if errors.Is(context.Cause(ctx), ErrCancelled) { // nothing was sent to the box
		e := execution{stopped: Cancelled}
		return e.stoppedVerdict(e.newVerdict()), nil
	}
	keep := false
	defer func() {
		if !keep { // also if a hook panics: the program then still runs
			_ = r.kill() // close returns its error
		}
	}()
	var verdict Verdict
	e := execution{runner: r, program: p, limits: p.Limits.OrDefaults(), hooks: hooks, calls: map[uint64]bool{}}
	switch {
	case err == nil:
		r.busy, r.unchecked = true, true
		verdict, err = e.run(ctx)
	case ctx.Err() != nil:
		verdict, err = e.interrupted(ctx)
	}
	if err != nil {
		return Verdict{}, fmt.Errorf("run program: %w", err)
	}
	keep = !verdict.Dirty
	return verdict, nil
}

// execution is the execution of one program by a runner. Only run's goroutine changes its fields, unless noted.
type execution struct {
	runner  *runnerProcess
	program Program
	limits  Limits
	hooks   Hooks

	work  sync.WaitGroup // messages being written, tool calls in progress, open connections
	conns *conns         // nil if the program has no network access
	mu    sync.Mutex
	calls map[uint64]bool // ids of the calls in progress; guarded by mu

	sent           chan struct{}    // closed once the last message given to send is written; nil before the first
	localCalls     int              // reported so far
	facts          bool             // the runner will send the facts
	started        bool             // no check is outstanding: the program may run, unless it was stopped
	stopped        string           // the status with which the program was stopped; empty if it was not
	blocked        *Failure         // the reason, if stopped is Blocked
	grace          <-chan time.Time // delivers a value when the box must be destroyed; nil until stopped
	stdout, stderr strings.Builder
	truncated      bool
}

// run sends the program, and handles the runner's frames until the program or the box has ended.
func (e *execution) run(ctx context.Context) (Verdict, error) {
	callCtx, endCalls := context.WithCancel(ctx)
	defer e.waitForWork()
	defer endCalls()
	if e.hooks.Network != nil {
		e.conns = newConns(e.runner.send, func(c net.Conn) {
			e.work.Go(func() {
				defer func() {
					if p := recover(); p != nil {
						e.logPanic(callCtx, "Network", p)
						_ = c.Close()
					}
				}()
				e.hooks.Network(callCtx, c)
			})
		})
		defer func() {
			endCalls() // first, so that Network hooks see their context end, not the connection
			e.conns.close()
		}()
	}
	e.start()
	timeout := time.NewTimer(e.limits.Timeout)
	defer timeout.Stop()
	ended := ctx.Done()
	for {
		select {
		case f, ok := <-e.runner.frames:
			if !ok {
				return e.boxEnded(ctx)
			}
			if f.Type == "done" {
				return e.verdict(f), nil
			}
			if err := e.handle(callCtx, f); err != nil {
				return e.protocolError(err), nil
			}
		case <-timeout.C:
			e.stop(Timeout)
		case <-ended:
			if !errors.Is(context.Cause(ctx), ErrCancelled) {
				_ = e.runner.kill() // close returns its error
				return e.interrupted(ctx)
			}
			e.stop(Cancelled)
			ended = nil
		case <-e.grace:
			e.grace = nil
			if e.runner.destroy(true) != nil { // otherwise the frames end
				e.grace = time.After(killGrace)
			}
		}
	}
}

// waitForWork waits for all goroutines of the execution. It destroys the box if that takes too long: the
// runner may have stopped reading.
func (e *execution) waitForWork() {
	finished := make(chan struct{})
	defer close(finished)
	late := time.AfterFunc(killGrace, func() { e.runner.killUntil(finished) })
	defer late.Stop()
	e.work.Wait()
}

// start sends the program.
func (e *execution) start() {
	l := e.limits
	state, content := e.state()
	details, _ := json.Marshal(runner.Details{ // cannot fail: it has only strings and bools
		Env: e.program.Env, State: state, Session: (*runner.Session)(e.program.Session),
	})
	body := slices.Concat([]byte(e.program.Code), e.program.Inputs, content, details)
	e.started = e.hooks.Check == nil
	e.facts = !e.started || e.hooks.Facts != nil
	e.send(runner.Run{
		Type:        "run",
		Size:        len(body),
		Task:        e.program.TaskID,
		Parts:       [4]int{len(e.program.Code), len(e.program.Inputs), len(content), len(details)},
		Facts:       e.facts,
		Wait:        !e.started,
		Network:     e.conns != nil,
		Catalogue:   e.program.Catalogue,
		ResultBytes: MaxResultBytes,
		Limits: runner.Limits{
			Memory:    int64(l.MemoryMB) << 20,
			CPU:       cpuSeconds(l),
			File:      l.WorkspaceMB << 20,
			Files:     l.OpenFiles,
			Processes: l.Processes,
			Output:    l.OutputBytes,
		},
	}, body)
}

// state returns what the runner learns about the state document, and the document's content unless the program's
// process reads the file. Both are nil if there is no state document, or if the code does not contain "state".
func (e *execution) state() (*runner.State, []byte) {
	s := e.program.State
	if s == nil || !strings.Contains(e.program.Code, "state") {
		return nil, nil
	}
	return &runner.State{File: s.File, Content: s.Content != nil, Save: s.Save}, s.Content
}

// send writes a message, after those of earlier calls, without waiting for the runner to read it. It reports no
// error: a write fails only if the runner is gone, and then frames ends, too.
func (e *execution) send(header any, body []byte) {
	earlier, sent := e.sent, make(chan struct{})
	e.sent = sent
	e.work.Go(func() {
		defer close(sent)
		if earlier != nil {
			<-earlier
		}
		_ = e.runner.send(header, body)
	})
}

// stop makes the runner kill the program. Only the first status counts.
func (e *execution) stop(status string) {
	if e.stopped != "" {
		return
	}
	e.stopped = status
	e.grace = time.After(killGrace)
	e.send(runner.Signal{Type: "cancel", Task: e.program.TaskID}, nil)
}

// handle handles a frame of the running program. An error means that the runner violates the protocol.
func (e *execution) handle(ctx context.Context, f runner.Frame) error {
	switch {
	case f.Type == "checked" && e.facts:
		return e.check(f.Body)
	case f.Type == "out": // before the check, these are warnings of the parser
		e.print(f.Stream, f.Body)
		return nil
	case f.Type == "call" && e.started:
		return e.startCall(ctx, f)
	case f.Type == "called" && e.started && e.localCalls < maxLocalCalls:
		e.localCalls++
		if e.hooks.Called != nil {
			e.hooks.Called(LocalCall{Server: f.Server, Tool: f.Tool, MS: f.MS, OK: f.OK})
		}
		return nil
	case e.conns != nil && e.started:
		return e.conns.handle(f)
	}
	return fmt.Errorf("unexpected frame %q", f.Type)
}

// check decodes the facts and passes them to the hook Facts or Check. If Check returns an error, check
// stops the program.
func (e *execution) check(body []byte) error {
	var facts Facts
	if err := json.Unmarshal(body, &facts); err != nil {
		return fmt.Errorf("decode facts: %w", err)
	}
	e.facts = false
	if e.started {
		e.hooks.Facts(facts)
		return nil
	}
	e.started = true
	if e.stopped != "" { // the runner ends the program
		return nil
	}
	err := e.hooks.Check(facts)
	if err == nil {
		e.send(runner.Signal{Type: "go", Task: e.program.TaskID}, nil)
		return nil
	}
	if !errors.As(err, &e.blocked) {
		e.blocked = &Failure{Code: errcode.Blocked, Message: err.Error()}
	}
	e.stop(Blocked)
	return nil
}

// print keeps output up to the limit of its stream, and passes it to the hook Output.
func (e *execution) print(stream string, data []byte) {
	kept := &e.stdout
	if stream == "stderr" {
		kept = &e.stderr
	}
	if room := e.limits.OutputBytes - int64(kept.Len()); int64(len(data)) > room {
		data, e.truncated = data[:room], true
	}
	if len(data) == 0 {
		return
	}
	kept.Write(data)
	if e.hooks.Output != nil {
		e.hooks.Output(stream, data)
	}
}

// startCall makes a tool call in a goroutine and sends the reply.
func (e *execution) startCall(ctx context.Context, f runner.Frame) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.calls[f.ID] || len(e.calls) >= maxCalls {
		return fmt.Errorf("call %d is already in progress, or exceeds the limit of %d calls", f.ID, maxCalls)
	}
	e.calls[f.ID] = true
	e.work.Go(func() {
		result, err := e.callSafely(ctx, Call{ID: f.ID, Server: f.Server, Tool: f.Tool, Hash: f.Hash, Args: f.Body})
		reply, body := replyTo(f.ID, result, err)
		e.mu.Lock()
		delete(e.calls, f.ID) // before the reply, after which the program may make another call
		e.mu.Unlock()
		if ctx.Err() != nil {
			return // the execution is ending; the error must not reach the program before it is stopped
		}
		_ = e.runner.send(reply, body) // a write fails only if the runner is gone, and then frames ends
	})
	return nil
}

// callSafely makes a tool call. A panic in the handler ends neither this process nor the program: the call fails with
// an internal error.
func (e *execution) callSafely(ctx context.Context, call Call) (result CallResult, err error) {
	defer func() {
		if p := recover(); p != nil {
			e.logPanic(ctx, "Call", p)
			fault := errors.New("this call makes the fleet panic, which is a bug: see the fleet's log")
			result, err = CallResult{}, &CallError{Code: errcode.Internal, Err: fault}
		}
	}()
	return e.call(ctx, call)
}

// logPanic logs that the handler of a program's calls or connections panicked with p, and where.
func (e *execution) logPanic(ctx context.Context, what string, p any) {
	if e.hooks.log != nil {
		e.hooks.log.ErrorContext(ctx, "panic in a handler", "handler", what,
			"task_id", e.program.TaskID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}

// call makes a tool call, unless the call is invalid or there are no tools. A result above the limit becomes an
// error.
func (e *execution) call(ctx context.Context, call Call) (CallResult, error) {
	refuse := func(code, reason string) (CallResult, error) {
		return CallResult{}, &CallError{Code: code, Err: errors.New(reason)}
	}
	switch {
	case e.hooks.Call == nil:
		return refuse(errcode.Forbidden, "this task has no tools")
	case call.Server == "" || call.Tool == "":
		return refuse(errcode.BadArguments, "a call must name a server and a tool")
	case !json.Valid(call.Args):
		return refuse(errcode.BadArguments, "the arguments are not JSON")
	}
	result, err := e.hooks.Call(ctx, call)
	if size := len(result.Value) + len(result.Content); err == nil && size > maxReplyBytes {
		return refuse(errcode.ResultTooLarge,
			fmt.Sprintf("the result is %d bytes; the limit is %d", size, maxReplyBytes))
	}
	return result, err
}

// replyTo returns the frame that replies to a call.
func replyTo(id uint64, result CallResult, err error) (runner.Reply, []byte) {
	parts := [3]json.RawMessage{result.Value, result.Content}
	reply := runner.Reply{Type: "reply", ID: id, OK: err == nil}
	if err != nil {
		text, _ := json.Marshal(err.Error()) // cannot fail for a string
		parts = [3]json.RawMessage{text}
		if e, ok := errors.AsType[*CallError](err); ok {
			reply.Code = e.Code
			if len(text)+len(e.Content)+len(e.Structured) <= maxReplyBytes {
				parts[1], parts[2] = e.Content, e.Structured
			}
		}
	}
	for i, part := range parts {
		reply.Parts[i] = len(part)
		reply.Size += len(part)
	}
	return reply, slices.Concat(parts[:]...)
}

// cpuSeconds is the limit of the processor time of each process of a program, which the kernel enforces.
func cpuSeconds(l Limits) int64 { return int64(math.Ceil(l.Timeout.Seconds()*l.CPUs)) + 1 }
