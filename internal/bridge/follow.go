package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
)

// partial is the latest stage and the output so far of a running task.
type partial struct {
	output  strings.Builder
	stage   string
	skipped bool // output beyond maxPartial was dropped
}

// maxPartial is how many bytes of output a call keeps while its task runs.
const maxPartial = 1 << 20

func (p *partial) add(e client.Event) {
	if e.Stage != "" {
		p.stage = e.Stage
	}
	if e.Stream == "stdout" {
		room := maxPartial - p.output.Len()
		p.skipped = p.skipped || len(e.Text) > room
		p.output.WriteString(text.Prefix(e.Text, room))
	}
}

func (p *partial) reset() {
	p.output.Reset()
	p.stage, p.skipped = "", false
}

// When a wait is over, or for a call that does not wait, a peek collects the output so far of a running task.
const (
	peekFirst = 150 * time.Millisecond // time limit for the first event
	peekNext  = 50 * time.Millisecond  // time limit between events
	peekTotal = 500 * time.Millisecond // time limit of the whole peek
)

// follow returns the record of a task once it has ended, or after wait, and collects its output so far in got. It
// reports stages and output to a client that asked for progress. It stops waiting when a call of the task waits for
// approval, unless skip lists the call.
func (c *call) follow(
	ctx context.Context, id string, wait time.Duration, got *partial, skip ...string,
) (client.Record, error) {
	rec, err := c.fleet.Get(ctx, id)
	if err != nil || rec.Status.Terminal() {
		return rec, err
	}
	if len(pendingExcept(rec, skip)) > 0 {
		wait = 0
	}
	got.reset() // Watch begins with the first event
	end := time.Now().Add(wait)
	watching, stop := context.WithTimeout(ctx, max(wait, peekTotal))
	defer stop()
	defer context.AfterFunc(c.b.stopping, stop)()
	peek := time.AfterFunc(max(wait, peekFirst), stop)
	defer peek.Stop()
	progress := c.newProgress()
	defer progress.heartbeat(watching)()
	final, err := c.fleet.Watch(watching, id, 0, func(e client.Event) error {
		got.add(e)
		progress.report(watching, e)
		peek.Reset(max(time.Until(end), peekNext))
		if e.Stage == "approval" && wait > 0 { // the call may have been decided already
			if now, err := c.fleet.Get(watching, id); err == nil && len(pendingExcept(now, skip)) > 0 {
				stop()
			}
		}
		return nil
	})
	if e, ok := errors.AsType[*client.APIError](err); ok && e.Code == errcode.HTTPOnly {
		peek.Stop()
		final, err = c.fleet.WaitForApproval(watching, id, wait, skip...)
	}
	if err == nil {
		return final, nil
	}
	if ctx.Err() != nil {
		return rec, context.Cause(ctx)
	}
	if watching.Err() == nil {
		return rec, err
	}
	return c.fleet.Get(ctx, id)
}

func (c *call) progressToken() any { return c.req.Params.GetProgressToken() }

// progress sends numbered progress notifications to the client of a call.
type progress struct {
	c     *call
	token any // chosen by the client; nil if it wants no notifications
	begun time.Time

	mu sync.Mutex
	n  float64
}

func (c *call) newProgress() *progress {
	return &progress{c: c, token: c.progressToken(), begun: time.Now()}
}

// maxProgress bounds the text of a notification, in bytes.
const maxProgress = 400

// report sends a piece of output, or a stage with its details, such as what a tool's server says about a long call.
func (p *progress) report(ctx context.Context, e client.Event) {
	switch {
	case e.Stage != "" && strings.TrimSpace(e.Text) != "":
		p.send(ctx, e.Stage+": "+p.c.start(ctx, text.OneLine(e.Text), maxProgress))
	case e.Stage != "":
		p.send(ctx, e.Stage)
	case strings.TrimSpace(e.Text) != "":
		p.send(ctx, p.c.start(ctx, strings.TrimSpace(e.Text), maxProgress))
	}
}

func (p *progress) send(ctx context.Context, message string) {
	if p.token == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	// Ignore errors: the call's result has the same information.
	_ = p.c.req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: p.token, Progress: p.n, Message: message,
	})
}

const heartbeatInterval = 10 * time.Second

// heartbeat sends notifications at intervals, because many clients restart their time-out with each one. The returned
// function stops it.
func (p *progress) heartbeat(ctx context.Context) (stop func()) {
	if p.token == nil {
		return func() {}
	}
	return clock.Repeat(ctx, heartbeatInterval, func() {
		p.send(ctx, fmt.Sprintf("running for %s", time.Since(p.begun).Round(time.Second)))
	})
}

// pendingExcept returns the calls of a task that wait for approval, except those in skip.
func pendingExcept(rec client.Record, skip []string) []client.Approval {
	return slices.DeleteFunc(rec.Pending(time.Now()), func(q client.Approval) bool {
		return slices.Contains(skip, q.Call)
	})
}
