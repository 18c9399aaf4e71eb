package pipeline

import (
	"cmp"
	"context"
	"fmt"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/guardrails"
	"github.com/codefleet/codefleet/internal/pluginhost"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/plugin"
	"github.com/codefleet/codefleet/schemas"
)

// rewrite lets plugins change the program, or write it if neither the model nor the rules could. by is empty if
// they did neither.
func (p *Pipeline) rewrite(ctx context.Context, t task, d draft) (code, by string) {
	if !p.Plugins.HasGenerator() {
		return "", ""
	}
	in := plugin.Draft{Code: d.code, By: d.by}
	for _, tool := range d.request.Tools {
		in.Tools = append(in.Tools, plugin.Tool{
			Server: tool.Server, Name: tool.Name, Signature: tool.Signature, Description: tool.Doc,
		})
	}
	if code, changed := p.Plugins.Generate(ctx, t.forPlugins(), in); changed {
		return code, pluginhost.ByPlugin
	}
	return "", ""
}

// validator returns the executor's hook in which plugins decide whether the program may run. It is nil without
// such plugins. The hook sets pluginErr if a plugin fails to decide.
func (p *Pipeline) validator(ctx context.Context, s steps, pluginErr *error) func(executor.Facts) error {
	if !p.Plugins.HasValidator() {
		return nil
	}
	return func(f executor.Facts) error {
		program := plugin.Program{Code: s.draft.code, By: s.draft.by, Truncated: f.Truncated}
		for _, i := range f.Imports {
			program.Imports = append(program.Imports, plugin.Import(i))
		}
		for _, c := range f.Calls {
			program.Calls = append(program.Calls, plugin.Use(c))
		}
		refusal, err := p.Plugins.Validate(ctx, s.task.forPlugins(), program)
		if err != nil {
			*pluginErr = err
			return err
		}
		if refusal == nil {
			return nil
		}
		return &executor.Failure{
			Code: cmp.Or(refusal.Code, errcode.Refused), Message: refusal.Message,
			Hint: refusal.Hint, Line: refusal.Line,
		}
	}
}

// reviewCall returns a call with the plugins' changes. A call that they refuse goes to the broker too, which
// records it and does not make it.
func (p *Pipeline) reviewCall(ctx context.Context, t task, c broker.Call) broker.Call {
	if !p.Plugins.HasCaller() {
		return c
	}
	args, refusal, err := p.Plugins.Call(ctx, t.forPlugins(), plugin.Call{Server: c.Server, Tool: c.Tool, Args: c.Args})
	switch {
	case refusal != nil:
		c.Refused = &broker.Error{
			Server: c.Server, Tool: c.Tool, Code: errcode.Forbidden, Message: refusal.Message, Hint: refusal.Hint,
		}
	case err != nil:
		c.Refused = &broker.Error{
			Server: c.Server, Tool: c.Tool, Code: errcode.Internal,
			Message: fmt.Sprintf("the call was not made: %v", err),
		}
	default:
		c.Args = args
	}
	return c
}

// review returns the execution's outcome after the guardrails have judged it, and plugins have redacted and annotated
// it. It precedes the commit, which stores the outcome in the result.
func (p *Pipeline) review(ctx context.Context, t task, e execution) (plugin.Result, error) {
	v := e.verdict
	out := plugin.Result{
		Status: schemas.Status(v.Status), Value: v.Result, Checkpoint: v.Checkpoint,
		Output: v.Output, Stderr: v.Stderr, Error: e.failure,
	}
	reviewing, stop := uninterrupted(ctx) // a cancelled task has a result too
	defer stop()
	out = e.guard.reviewResult(reviewing, out)
	if p.Plugins.HasResulter() {
		var err error
		if out, err = p.Plugins.Result(reviewing, t.forPlugins(), out); err != nil {
			return plugin.Result{}, withCause(reviewing, err)
		}
	}
	if p.holdsOutput(e.guard) {
		t.emitOutput(reviewing, out)
	}
	return out, nil
}

// holdsOutput reports whether the output is held back until the review, because it may change or be withheld.
func (p *Pipeline) holdsOutput(g *guard) bool {
	return p.Plugins.HasResulter() || g.strict() && g.rules.Has(guardrails.OnResult)
}

// outputPiece is the size of the pieces in which reviewed output is emitted, in bytes.
const outputPiece = 64 << 10

// emitOutput emits the output that was held back for the review.
func (t task) emitOutput(ctx context.Context, r plugin.Result) {
	out := newOutput(t.limits.OrDefaults().OutputBytes, func(stream, text string) {
		t.job.Emit(ctx, schemas.Progress{Stream: stream, Text: text})
	})
	for _, s := range []struct{ stream, text string }{{"stdout", r.Output}, {"stderr", r.Stderr}} {
		for text := s.text; text != ""; {
			n := min(len(text), outputPiece)
			out.write(s.stream, []byte(text[:n]))
			text = text[n:]
		}
	}
	out.flush()
}
