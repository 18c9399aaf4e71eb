package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/pluginhost"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/plugin"
	"github.com/codefleet/codefleet/schemas"
)

// about is what plugins know of the task.
func (t *task) about() plugin.Task {
	r := t.job.Record
	return plugin.Task{ID: r.TaskID, Tenant: r.Tenant, Workspace: r.Workspace, Session: r.Session, Data: t.job.Task}
}

// reselect lets plugins change which tools were chosen, within what the task may use.
func (p *Pipeline) reselect(ctx context.Context, t *task, ids []string) []string {
	if !p.Plugins.Selects() {
		return ids
	}
	in := plugin.Selection{Selected: ids}
	for _, tool := range t.tools.Permitted(t.allow) {
		in.Available = append(in.Available, plugin.Tool{
			Server: tool.Server, Name: tool.Name, Signature: tool.Signature, Description: tool.Description,
		})
	}
	ids = p.Plugins.Select(ctx, t.about(), in)
	return ids[:min(len(ids), t.maxTools())]
}

// rewrite lets plugins change the program that was written, or write the one that nobody could.
func (p *Pipeline) rewrite(ctx context.Context, t *task, refusal *schemas.Error) *schemas.Error {
	if !p.Plugins.Generates() {
		return refusal
	}
	draft := plugin.Draft{Code: t.code, By: t.generatedBy}
	for _, tool := range t.request.Tools {
		draft.Tools = append(draft.Tools, plugin.Tool{Server: tool.Server, Name: tool.Name, Signature: tool.Signature, Description: tool.Doc})
	}
	code, changed := p.Plugins.Generate(ctx, t.about(), draft)
	if !changed {
		return refusal
	}
	t.code, t.generatedBy = code, pluginhost.ByPlugin
	return nil
}

// validator is the executor's hook that asks plugins whether the program may run; nil without such
// plugins. failed is why they could not say.
func (p *Pipeline) validator(ctx context.Context, t *task, failed *error) func(executor.Facts) error {
	if !p.Plugins.Validates() {
		return nil
	}
	return func(f executor.Facts) error {
		program := plugin.Program{Code: t.code, By: t.generatedBy, Truncated: f.Truncated}
		for _, i := range f.Imports {
			program.Imports = append(program.Imports, plugin.Import(i))
		}
		for _, c := range f.Calls {
			program.Calls = append(program.Calls, plugin.Use(c))
		}
		refusal, err := p.Plugins.Validate(ctx, t.about(), program)
		if err != nil {
			*failed = err
			return err
		}
		if refusal != nil {
			return &executor.Failure{Code: cmp.Or(refusal.Code, errcode.Refused), Message: refusal.Message, Hint: refusal.Hint, Line: refusal.Line}
		}
		return nil
	}
}

// plugged is a call as plugins leave it. One that they refuse goes its way too: it is on record, and
// is not made.
func (p *Pipeline) plugged(ctx context.Context, t *task, c broker.Call) broker.Call {
	if !p.Plugins.Calls() {
		return c
	}
	args, refusal, err := p.Plugins.Call(ctx, t.about(), plugin.Call{Server: c.Server, Tool: c.Tool, Args: c.Args})
	switch {
	case refusal != nil:
		c.Refused = &broker.Error{Server: c.Server, Tool: c.Tool, Code: errcode.Forbidden, Message: refusal.Message, Hint: refusal.Hint}
	case err != nil:
		c.Refused = &broker.Error{Server: c.Server, Tool: c.Tool, Code: errcode.Internal, Message: fmt.Sprintf("the call was not made: %v", err)}
	default:
		c.Args = args
	}
	return c
}

// review lets plugins redact and annotate what the run left, before anybody sees it: before the commit,
// for a commit carries the result.
func (p *Pipeline) review(ctx context.Context, t *task) error {
	if !p.Plugins.Results() {
		return nil
	}
	ctx, stop := fenced(ctx) // a cancelled task has a result too
	defer stop()
	r := &t.result
	left, err := p.Plugins.Result(ctx, t.about(), plugin.Result{
		Status: r.Status, Value: r.Result, Output: r.Output, Stderr: r.Stderr, Error: r.Error,
	})
	if err != nil {
		return orCause(ctx, err)
	}
	r.Result, r.Output, r.Stderr, r.Error = left.Value, left.Output, left.Stderr, left.Error
	r.Labels = maps.Clone(left.Labels)
	t.notes = left.Notes
	t.printed(ctx)
	return nil
}

// printedPiece is how much of held back output is shown at a time, in bytes.
const printedPiece = 64 << 10

// printed shows the output that was held back until plugins had seen it.
func (t *task) printed(ctx context.Context) {
	out := newOutput(func(stream, text string) { t.job.Emit(ctx, schemas.Progress{Stream: stream, Text: text}) })
	for _, s := range []struct{ stream, text string }{{"stdout", t.result.Output}, {"stderr", t.result.Stderr}} {
		for text := s.text; text != ""; {
			n := min(len(text), printedPiece)
			out.write(s.stream, []byte(text[:n]))
			text = text[n:]
		}
	}
	out.flush()
}
