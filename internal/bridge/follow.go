package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
)

// seen is what was heard of a task that runs.
type seen struct {
	output  strings.Builder
	stage   string
	skipped bool // output beyond maxSeen
}

// maxSeen is how much output of a running task is kept while its call lasts.
const maxSeen = 1 << 20

func (s *seen) add(e client.Event) {
	if e.Stage != "" {
		s.stage = e.Stage
	}
	if e.Stream == "stdout" {
		room := maxSeen - s.output.Len()
		s.skipped = s.skipped || len(e.Text) > room
		s.output.WriteString(cut(e.Text, room))
	}
}

func (s *seen) reset() {
	s.output.Reset()
	s.stage, s.skipped = "", false
}

// Times of a look at a running task that is not to wait for anything: until the first event, until
// the next one, and in all.
const (
	firstLook = 150 * time.Millisecond
	nextLook  = 50 * time.Millisecond
	wholeLook = 500 * time.Millisecond
)

// follow returns the record of a task once it has ended, or as it is after wait, and what it said so
// far. It tells a client that asked for it of every step. It does not wait while a call of the task
// waits for approval that is not among the known ones.
func (c *call) follow(ctx context.Context, id string, wait time.Duration, seen *seen, known ...string) (client.Record, error) {
	rec, err := c.fleet.Get(ctx, id)
	if err != nil || rec.Status.Terminal() {
		return rec, err
	}
	if len(unheard(rec, known)) > 0 {
		wait = 0
	}
	seen.reset() // it is told from the beginning
	watching, stop := context.WithTimeout(ctx, max(wait, wholeLook))
	defer stop()
	defer context.AfterFunc(c.b.stopping, stop)()
	look := time.AfterFunc(firstLook, stop)
	defer look.Stop()
	if wait > wholeLook {
		look.Stop()
	}
	progress := c.newProgress()
	defer progress.beat(watching)()
	final, err := c.fleet.Watch(watching, id, 0, func(e client.Event) error {
		seen.add(e)
		progress.tell(watching, e)
		if wait <= wholeLook {
			look.Reset(nextLook)
		} else if e.Stage == "approval" { // perhaps answered long ago
			if now, err := c.fleet.Get(watching, id); err == nil && len(unheard(now, known)) > 0 {
				stop()
			}
		}
		return nil
	})
	if err == nil {
		return final, nil
	}
	if e, ok := errors.AsType[*client.APIError](err); ok && e.Code == errcode.HTTPOnly {
		return c.fleet.WaitForApproval(ctx, id, wait, known...)
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

// progress tells the client of a call how its task comes along. Each message is a step further.
type progress struct {
	c     *call
	token any
	begun time.Time

	mu    sync.Mutex
	steps float64
}

func (c *call) newProgress() *progress {
	return &progress{c: c, token: c.progressToken(), begun: time.Now()}
}

func (p *progress) tell(ctx context.Context, e client.Event) {
	switch {
	case e.Stage != "":
		p.send(ctx, e.Stage)
	case strings.TrimSpace(e.Text) != "":
		p.send(ctx, cut(strings.TrimSpace(e.Text), 400))
	}
}

func (p *progress) send(ctx context.Context, message string) {
	if p.token == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps++
	// A client that does not take it is told no more; the call says the rest.
	_ = p.c.req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: p.token, Progress: p.steps, Message: message})
}

// beat sends a message now and then while the task is silent: clients that wait put off their own
// end with each one. It returns what ends it.
func (p *progress) beat(ctx context.Context) (stop func()) {
	if p.token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(beatTime)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				p.send(ctx, fmt.Sprintf("running for %s", time.Since(p.begun).Round(time.Second)))
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

const beatTime = 10 * time.Second
