package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
	wire "github.com/codefleet/codefleet/internal/executor/runner"
)

const (
	// MaxResultBytes bounds the structured result of a program, as JSON.
	MaxResultBytes = 960 << 10

	maxCalls  = 64              // under way at once; the runner holds the program to it
	maxCalled = 1000            // reports of calls in the box; the runner holds the program to it
	maxReply  = 16 << 20        // bytes of a tool's result
	killGrace = 5 * time.Second // for a runner to kill its program, before the box is destroyed
)

// run runs one program. After an error, and after a verdict that is Dirty, the box is destroyed.
func (r *runner) run(ctx context.Context, p Program, hooks Hooks) (Verdict, error) {
	err := r.awaitReady(ctx)
	if errors.Is(context.Cause(ctx), ErrCancelled) { // the box has not heard of it
		t := task{stopped: Cancelled}
		return t.ended(t.base()), nil
	}
	var verdict Verdict
	if err == nil {
		r.busy = true
		t := task{runner: r, program: p, limits: p.Limits.OrDefaults(), hooks: hooks, calls: map[uint64]bool{}}
		verdict, err = t.run(ctx)
	}
	if err != nil || verdict.Dirty {
		_ = r.kill() // close tells
	}
	if err != nil {
		return Verdict{}, fmt.Errorf("run program: %w", err)
	}
	return verdict, nil
}

// task is one program on its way through a runner. Its fields are owned by the goroutine of run.
type task struct {
	runner  *runner
	program Program
	limits  Limits
	hooks   Hooks

	work  sync.WaitGroup // messages being written, calls being made and connections being answered
	links *links         // connections; nil: the program may make none
	mu    sync.Mutex
	calls map[uint64]bool // being made; guarded by mu

	reported       int              // calls in the box
	started        bool             // the program may run
	stopped        string           // the status that we ended it with
	blocked        *Failure         // why, when that is Blocked
	grace          <-chan time.Time // when to give up on the runner; nil until stopped
	output, stderr strings.Builder
	truncated      bool
}

func (t *task) run(ctx context.Context) (Verdict, error) {
	calls, endCalls := context.WithCancel(ctx)
	defer t.settle()
	defer endCalls()
	if t.hooks.Network != nil {
		t.links = newLinks(t.runner.send, func(conn net.Conn) {
			t.work.Go(func() { t.hooks.Network(calls, conn) })
		})
		defer func() {
			endCalls() // first: whoever answers a connection sees that the run ended, and not the program
			t.links.close()
		}()
	}
	t.start()
	timeout := time.NewTimer(t.limits.Timeout)
	defer timeout.Stop()
	ended := ctx.Done()
	for {
		select {
		case f, ok := <-t.runner.frames:
			if !ok {
				return t.died(ctx)
			}
			if f.Type == "done" {
				return t.verdict(f), nil
			}
			if err := t.take(calls, f); err != nil {
				return t.broken(err), nil
			}
		case <-timeout.C:
			t.stop(Timeout)
		case <-ended:
			if !errors.Is(context.Cause(ctx), ErrCancelled) {
				_ = t.runner.kill() // close tells
				return Verdict{}, context.Cause(ctx)
			}
			t.stop(Cancelled)
			ended = nil
		case <-t.grace:
			_ = t.runner.kill() // the frames end
			t.grace = nil
		}
	}
}

// settle waits for all that the run has started. A runner that takes nothing more must not hold it up.
func (t *task) settle() {
	late := time.AfterFunc(killGrace, func() { _ = t.runner.kill() }) // close tells
	defer late.Stop()
	t.work.Wait()
}

// start sends the program.
func (t *task) start() {
	l := t.limits
	body := append([]byte(t.program.Code), t.program.Inputs...)
	t.started = t.hooks.Check == nil
	t.send(wire.Run{
		Type:        "run",
		Size:        len(body),
		Task:        t.program.TaskID,
		Code:        len(t.program.Code),
		Check:       !t.started,
		Network:     t.links != nil,
		Catalogue:   t.program.Catalogue,
		Env:         t.program.Env,
		ResultBytes: MaxResultBytes,
		Limits: wire.Limits{
			Memory:    int64(l.MemoryMB) << 20,
			CPU:       int64(math.Ceil(l.Timeout.Seconds()*l.CPUs)) + 1,
			File:      l.WorkspaceMB << 20,
			Files:     l.OpenFiles,
			Processes: l.Processes,
			Output:    l.OutputBytes,
		},
	}, body)
}

// send writes a message without waiting for the runner to read it. An error of the write shows as the
// end of the frames.
func (t *task) send(header any, body []byte) {
	t.work.Go(func() { _ = t.runner.send(header, body) })
}

// stop has the program killed. The first reason counts.
func (t *task) stop(status string) {
	if t.stopped != "" {
		return
	}
	t.stopped = status
	t.grace = time.After(killGrace)
	t.send(wire.Signal{Type: "cancel", Task: t.program.TaskID}, nil)
}

// take handles a frame of the running program. An error means that the runner does not keep to the
// protocol.
func (t *task) take(ctx context.Context, f wire.Frame) error {
	switch {
	case f.Type == "checked" && !t.started:
		return t.check(f.Body)
	case f.Type == "out" && t.started:
		t.print(f.Stream, f.Body)
		return nil
	case f.Type == "call" && t.started:
		return t.call(ctx, f)
	case f.Type == "called" && t.started && t.reported < maxCalled:
		t.reported++
		if t.hooks.Called != nil {
			t.hooks.Called(LocalCall{Server: f.Server, Tool: f.Tool, MS: f.MS, OK: f.OK})
		}
		return nil
	case t.links != nil && t.started:
		return t.links.take(f)
	}
	return fmt.Errorf("unexpected frame %q", f.Type)
}

func (t *task) check(body []byte) error {
	var facts Facts
	if err := json.Unmarshal(body, &facts); err != nil {
		return fmt.Errorf("facts: %w", err)
	}
	t.started = true
	err := t.hooks.Check(facts)
	if err == nil {
		t.send(wire.Signal{Type: "go", Task: t.program.TaskID}, nil)
		return nil
	}
	if !errors.As(err, &t.blocked) {
		t.blocked = &Failure{Code: errcode.Blocked, Message: err.Error()}
	}
	t.stop(Blocked)
	return nil
}

func (t *task) print(stream string, data []byte) {
	kept := &t.output
	if stream == "stderr" {
		kept = &t.stderr
	}
	if room := t.limits.OutputBytes - int64(kept.Len()); int64(len(data)) > room {
		data, t.truncated = data[:room], true
	}
	if len(data) == 0 {
		return
	}
	kept.Write(data)
	if t.hooks.Output != nil {
		t.hooks.Output(stream, data)
	}
}

// call makes a tool call beside the running program.
func (t *task) call(ctx context.Context, f wire.Frame) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls[f.ID] || len(t.calls) >= maxCalls {
		return fmt.Errorf("call %d is one too many", f.ID)
	}
	t.calls[f.ID] = true
	t.work.Go(func() {
		value, err := t.answer(ctx, Call{ID: f.ID, Server: f.Server, Tool: f.Tool, Hash: f.Hash, Args: f.Body})
		code := ""
		if err != nil {
			value, _ = json.Marshal(err.Error()) // a string has a JSON form
			if e, ok := errors.AsType[*CallError](err); ok {
				code = e.Code
			}
		}
		t.mu.Lock()
		delete(t.calls, f.ID) // before the runner hears of it, and lets the program make another
		t.mu.Unlock()
		if ctx.Err() != nil {
			return // the program is being ended: it is not to end by this error instead
		}
		_ = t.runner.send(wire.Reply{Type: "reply", Size: len(value), ID: f.ID, OK: err == nil, Code: code}, value) // as in send
	})
	return nil
}

const badArguments = "bad_arguments"

func (t *task) answer(ctx context.Context, call Call) (json.RawMessage, error) {
	switch {
	case t.hooks.Call == nil:
		return nil, &CallError{"forbidden", errors.New("this task has no tools")}
	case call.Server == "" || call.Tool == "":
		return nil, &CallError{badArguments, errors.New("a call names a server and a tool")}
	case !json.Valid(call.Args):
		return nil, &CallError{badArguments, errors.New("arguments are not JSON")}
	}
	value, err := t.hooks.Call(ctx, call)
	if err == nil && len(value) > maxReply {
		return nil, &CallError{"result_too_large", fmt.Errorf("the result has %d bytes, more than %d", len(value), maxReply)}
	}
	return value, err
}
