package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// commit is what became of an attempt's changes. Unless they are stored, they are reverted.
type commit struct {
	stored    bool
	conflict  bool            // other commits changed the same paths, so the task executes again
	refused   *schemas.Error  // the workspace would exceed its quota
	earlier   *schemas.Result // the task's result, if an earlier run had committed
	change    schemas.WorkspaceChange
	artifacts []schemas.Artifact
	findings  []schemas.Finding
	ms        float64
}

// committed is what a run stores with its commit: its result, and the files with views of sessions that it wrote.
type committed struct {
	resultFields
	Views []string `json:"views,omitempty"`
}

// resultFields are the fields of a result, without its method MarshalJSON, which would omit Views.
type resultFields schemas.Result

// appliedResult returns the result of an earlier run that committed and was lost before it completed the task. It
// returns nil if there is none.
func (p *Pipeline) appliedResult(ctx context.Context, t task) (*schemas.Result, error) {
	if t.job.Record.Run <= 1 {
		return nil, nil
	}
	c, err := p.Store.Applied(ctx, t.ref, t.id(), t.job.FirstClaim)
	if err != nil || c == nil {
		return nil, err
	}
	return p.earlierResult(ctx, t, *c)
}

// Fence returns the result that a run of the task has committed. If none has, it ensures that no run can commit any
// more, and returns nil. It also returns nil if this worker lacks the workspace's encryption key and every earlier run
// has reported how it ended.
func (p *Pipeline) Fence(ctx context.Context, j *jobs.Job) (*schemas.Result, error) {
	t := newTask(j, p.Limits.Task(j.Record.Tenant), nil)
	c, err := p.Store.Fence(ctx, t.ref, t.id(), j.Record.Run, j.FirstClaim)
	if errors.Is(err, state.ErrKey) && !j.Lost() {
		return nil, nil // a fence needs the key, but is not needed: each run has reported that it did not commit
	}
	if err != nil || c == nil {
		return nil, explainMissingKey(err)
	}
	return p.earlierResult(ctx, t, *c)
}

// leaseMargin is how much earlier the lease of a run may end than its record says, because the queue counts the time
// from the delivery of the message.
const leaseMargin = time.Second

// overQuota returns the error of a task whose commit exceeds the quota or another limit.
func overQuota(err error) *schemas.Error {
	hint := "change what the message names: no quota raises this limit"
	if _, ok := errors.AsType[*state.QuotaError](err); ok {
		hint = "remove files from the workspace, or ask for a larger quota"
	}
	return &schemas.Error{Code: errcode.WorkspaceQuota, Message: err.Error(), Hint: hint}
}

// commit stores the attempt's changes to the workspace, with the result. With keepBoth, both versions of a path are
// stored if other commits changed it too; otherwise this is a conflict. commit goes on after the task is cancelled or
// has expired; only the loss of the lease or the end of a drain interrupts it.
func (p *Pipeline) commit(ctx context.Context, s steps, a attempt, keepBoth bool) (c commit, err error) {
	defer measure(&c.ms)()
	ctx, span := p.Tracer.Start(ctx, "workspace.commit")
	defer span.End()
	t := s.task
	defer func() { err = p.handleFullDisk(ctx, a.box.AcquiredBox, err) }()
	if err := a.box.CheckDisk(); err != nil {
		return c, err
	}
	ctx, stop := uninterrupted(ctx)
	defer stop()
	result, err := json.Marshal(committed{resultFields(*s.with(a).result()), a.checkout.views})
	if err != nil {
		return c, err
	}
	stored, err := p.Store.Commit(ctx, a.checkout.tree, state.CommitOptions{
		TaskID: t.id(), Attempt: t.job.Record.Run, Result: result, Since: t.job.FirstClaim, KeepBoth: keepBoth,
		AloneUntil: t.job.Record.LeaseUntil.Add(-leaseMargin),
	})
	if _, ok := errors.AsType[*state.ConflictError](err); ok {
		c.conflict = true
		return c, nil
	}
	if errors.Is(err, state.ErrQuota) {
		c.refused = overQuota(err)
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("commit workspace %s: %w", t.ref, err)
	}
	c.stored = true
	if stored.Already {
		c.earlier, err = p.earlierResult(ctx, t, stored)
		return c, err
	}
	c.change = schemas.WorkspaceChange{
		Name: t.ref.Workspace, Base: a.checkout.generation, Generation: stored.Generation,
		Changed: withoutViews(stored.Changed, a.checkout.views), Conflicts: stored.Conflicts,
	}
	if stored.NoChange {
		c.change.Generation = a.checkout.generation
	}
	c.artifacts, c.findings, err = p.artifacts(ctx, t, c.change, stored.Rewritten)
	c.findings = append(c.findings, boundLists(&c.change, &c.artifacts)...)
	return c, err
}

// Bounds of each list of files in a result. Otherwise the names of a program's files could make it gigabytes large.
const (
	maxListed      = 10_000
	maxListedBytes = 1 << 20 // of paths
)

// boundLists truncates the lists of files of a result, and returns a finding for each that was too long.
func boundLists(w *schemas.WorkspaceChange, artifacts *[]schemas.Artifact) (found []schemas.Finding) {
	bound := func(list string, total int, path func(i int) string) int {
		kept, bytes := 0, 0
		for kept < min(total, maxListed) && bytes+len(path(kept)) <= maxListedBytes {
			bytes += len(path(kept))
			kept++
		}
		if kept < total {
			found = append(found, schemas.Finding{Rule: "result", Level: "warning", Message: fmt.Sprintf(
				"%s lists the first %d of %d files; generation %d of the workspace has all of them", list, kept, total,
				w.Generation)})
		}
		return kept
	}
	w.Changed = w.Changed[:bound("changed", len(w.Changed), func(i int) string { return w.Changed[i] })]
	w.Conflicts = w.Conflicts[:bound("conflicts", len(w.Conflicts), func(i int) string { return w.Conflicts[i] })]
	*artifacts = (*artifacts)[:bound("artifacts", len(*artifacts), func(i int) string { return (*artifacts)[i].Path })]
	return found
}

// revert brings the tree back to what was checked out, and returns how long that took. If it fails, it
// discards the box.
func (p *Pipeline) revert(ctx context.Context, a attempt) (ms float64) {
	defer measure(&ms)()
	ctx, stop := cleanup(ctx)
	defer stop()
	err := a.box.AwaitChecked(ctx)
	if err == nil {
		err = p.Store.Revert(ctx, a.checkout.tree)
	}
	if err != nil {
		p.Log.WarnContext(ctx, "workspace not reverted, box discarded",
			"box", a.box.BoxID(), "error", withoutPaths(err))
		a.box.Discard()
	}
	return ms
}

// withoutPaths returns the text of an error for the log: without the paths of a program's files.
func withoutPaths(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if errors.Is(err, state.ErrQuota) {
		return "the files exceed a limit of all workspaces"
	}
	for _, ended := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, ended) {
			return ended.Error()
		}
	}
	return "the workspace could not be brought back"
}

// earlierResult returns the result that an earlier run committed. It adds what is known only after the commit: the
// generation, the changed paths, the conflicts and the artifacts, without those that the run wrote without changing
// their content.
func (p *Pipeline) earlierResult(ctx context.Context, t task, c state.Commit) (*schemas.Result, error) {
	var stored committed
	err := json.Unmarshal(c.Result, &stored)
	if err != nil { // the version is damaged or removed, but its commit counts
		p.Log.WarnContext(ctx, "result of an earlier run not read", "task_id", t.id(), "run", c.Attempt, "error", err)
		stored = committed{resultFields: resultFields{Status: schemas.Succeeded, Guardrails: []schemas.Finding{
			warning("result", "the task has changed its workspace; its result could not be read"),
		}}}
	}
	res := schemas.Result(stored.resultFields)
	w := &res.Workspace
	w.Generation, w.Changed, w.Conflicts = c.Generation, withoutViews(c.Changed, stored.Views), c.Conflicts
	var findings []schemas.Finding
	res.Artifacts, findings, err = p.artifacts(ctx, t, res.Workspace, nil)
	res.Guardrails = slices.Concat(res.Guardrails, findings, boundLists(w, &res.Artifacts))
	return &res, err
}

// artifactsKept is how long artifacts are retained: a day longer than records, because the time of a record begins
// later, when the task is completed, perhaps by another worker.
const artifactsKept = jobs.DefaultRetention + 24*time.Hour

// artifacts returns the files below artifacts/ that the task wrote, and all files of the version that match the task's
// patterns. If there are any, it retains the version. rewritten are the files that the task wrote without changing
// their content. Files whose names are not UTF-8 are named in a finding: in the JSON of a result, their paths would be
// other ones.
func (p *Pipeline) artifacts(
	ctx context.Context, t task, w schemas.WorkspaceChange, rewritten []string,
) (out []schemas.Artifact, findings []schemas.Finding, err error) {
	written := map[string]bool{}
	for _, name := range slices.Concat(w.Changed, rewritten) {
		if strings.HasPrefix(name, "artifacts/") {
			written[name] = true
		}
	}
	patterns := artifactPatterns{patterns: t.job.Task.Artifacts}
	if w.Generation == 0 || len(patterns.patterns) == 0 && len(written) == 0 {
		return nil, nil, nil
	}
	files, err := p.Store.List(ctx, t.ref, w.Generation, "")
	if err != nil {
		return nil, nil, fmt.Errorf("list artifacts: %w", err)
	}
	var skipped []string
	for _, f := range files {
		if f.Kind != "file" || !written[f.Path] && !patterns.match(f.Path) {
			continue
		}
		if !utf8.ValidString(f.Path) {
			skipped = append(skipped, strconv.Quote(f.Path))
			continue
		}
		out = append(out, schemas.Artifact{
			Path: f.Path, Bytes: f.Bytes,
			MediaType: cmp.Or(mime.TypeByExtension(path.Ext(f.Path)), "application/octet-stream"),
			URL:       "/v1/tasks/" + t.id() + "/artifacts/" + (&url.URL{Path: f.Path}).EscapedPath(),
		})
	}
	if len(skipped) > 0 {
		findings = append(findings, warning("result", "files whose names are not UTF-8 are not artifacts: "+
			text.Truncate(strings.Join(skipped, ", "), maxNamed)))
	}
	if patterns.steps > maxPatternSteps {
		findings = append(findings, schemas.Finding{
			Rule: "result", Level: "warning",
			Message: "not all files were matched with the patterns of artifacts: there are too many files, or patterns",
		})
	}
	if len(out) == 0 {
		return nil, findings, nil
	}
	if err := p.Store.Retain(ctx, t.ref, w.Generation, time.Now().Add(artifactsKept)); err != nil {
		return nil, nil, fmt.Errorf("retain artifacts: %w", err)
	}
	return out, findings, nil
}

// maxPatternSteps bounds the time to match files with the patterns of artifacts. A step takes about as long as the
// comparison of two characters.
const maxPatternSteps = 1 << 32

// artifactPatterns are the patterns of a task's artifacts. After maxPatternSteps they match nothing.
type artifactPatterns struct {
	patterns []string
	steps    int
}

func (a *artifactPatterns) match(name string) bool {
	return slices.ContainsFunc(a.patterns, func(pattern string) bool {
		if a.steps += len(pattern) * len(name); a.steps > maxPatternSteps {
			return false
		}
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}
