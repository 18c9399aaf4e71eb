package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/selection"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/toolsearch"
	"github.com/codefleet/codefleet/plugin"
	"github.com/codefleet/codefleet/schemas"
)

// selectTools selects the few tools that fit the description, and returns the draft with the request for a
// program.
func (p *Pipeline) selectTools(ctx context.Context, t task, tools toolset, from draft) (d draft, err error) {
	d = from
	defer measure(&d.selectMS)()
	ctx, span := p.Tracer.Start(ctx, "select")
	defer span.End()
	d.request = codegen.Request{Task: t.job.Task.Description, Inputs: string(t.job.Task.Inputs)}
	d.request.Files = p.listFiles(ctx, t, d.writer != nil)
	d.usage = &schemas.Usage{}
	if tools.index == nil {
		return d, nil
	}
	t.job.Emit(ctx, schemas.Progress{Stage: "select"})
	var past *selection.History
	if p.Tools.History != nil {
		past = p.Tools.History.Past(ctx, t.ref.Tenant)
	}
	description := t.tokenisedDescription(ctx)
	ids, degraded, err := tools.index.Pick(ctx, toolsearch.Wanted{
		Description: description, Allow: tools.allow, Max: t.maxTools(), History: past,
	})
	if err != nil {
		return d, jobs.Permanent(fmt.Errorf("select tools: %w", err))
	}
	d.selected, d.degraded = p.reselect(ctx, t, tools, ids), degraded
	d.request.Tools = tools.index.Definitions(d.selected)
	d.request.Skills = tools.index.PickSkills(ctx, description)
	d.usage.DirectToolTokens = tools.index.DefinitionTokens(tools.allow)
	return d, nil
}

// reselect lets plugins change the selection, within the tools that the task may use.
func (p *Pipeline) reselect(ctx context.Context, t task, tools toolset, ids []string) []string {
	if !p.Plugins.HasSelector() {
		return ids
	}
	in := plugin.Selection{Selected: ids}
	for _, tool := range tools.index.Permitted(tools.allow) {
		in.Available = append(in.Available, plugin.Tool{
			Server: tool.Server, Name: tool.Name, Signature: tool.Signature, Description: tool.Description,
		})
	}
	ids = p.Plugins.Select(ctx, t.forPlugins(), in)
	return ids[:min(len(ids), t.maxTools())]
}

// listTime bounds the listing of a workspace for a prompt. If the listing fails, the prompt lacks it.
const listTime = 2 * time.Second

// listFiles returns the names of the task's files. If workspace is set, the paths of the workspace's files follow,
// sorted by depth.
func (p *Pipeline) listFiles(ctx context.Context, t task, workspace bool) (names []string) {
	for _, f := range t.job.Task.Files {
		names = append(names, f.Name)
	}
	if !workspace {
		return names
	}
	ctx, stop := context.WithTimeout(ctx, listTime)
	defer stop()
	list, err := p.Store.List(ctx, t.ref, 0, "")
	if err != nil {
		p.Log.DebugContext(ctx, "workspace not listed for the model", "task_id", t.id(), "error", err)
	}
	slices.SortStableFunc(list, func(a, b state.FileInfo) int {
		return strings.Count(a.Path, "/") - strings.Count(b.Path, "/")
	})
	for _, f := range list {
		if f.Kind == state.File && !slices.Contains(names[:len(t.job.Task.Files)], f.Path) {
			names = append(names, f.Path)
		}
	}
	return names
}

// recordTools adds the tools that a task used to the tenant's tool history, if the task has a description and
// has succeeded.
func (p *Pipeline) recordTools(ctx context.Context, t task, res *schemas.Result) {
	if p.Tools.History == nil || res.Status != schemas.Succeeded || t.job.Task.Description == "" {
		return
	}
	var used []string
	for _, c := range res.Tools.Calls {
		if id := c.Server + "/" + c.Tool; c.OK && !slices.Contains(used, id) {
			used = append(used, id)
		}
	}
	if len(used) > 0 {
		p.Tools.History.Record(ctx, t.ref.Tenant, t.tokenisedDescription(ctx), used)
	}
}
