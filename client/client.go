// Package client is how a Go program uses a fleet: it submits tasks, waits for them, watches them
// and fetches what they leave.
//
// The one-call form finds the fleet by the environment, as the command line does:
//
//	result, output, err := client.ExecuteTask(ctx, "Calculate 5 + 3")
//
// A program with more to do makes a [Client] (or an [Agent], which remembers how its tasks are to be
// run) and keeps it: both are safe for concurrent use.
//
// A client speaks HTTP to cmd/ingest, or NATS to the queue itself; the scheme of the URL decides.
// Both give the same records, results and errors. Every call may be repeated: submissions carry an
// idempotency key, and a client repeats by itself what a lost connection or a busy fleet cut short.
//
// A call fails with an [*APIError] when the fleet answered and refused, and with another error when
// it could not be reached. How a task ended is not an error of the call, but a [Status].
package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// Options says where a fleet is and how to speak to it. Only URL is required.
type Options struct {
	// URL of the fleet: http:// or https:// for its HTTP API, nats:// or tls:// for its queue.
	URL string
	// Token is the bearer token over HTTP, or the token of a NATS server that wants one.
	Token string
	// Tenant is who this program is on NATS, where the subject says it; "default" when empty.
	// Over HTTP the token says it, and this is ignored.
	Tenant string
	// Source is the CloudEvents source of what this client submits. Together with the tenant and the
	// idempotency key it makes the identity of a task. Default "codefleet/client".
	Source string
	// RetryFor bounds how long one request is repeated while the fleet is unreachable or busy.
	// Zero is 15 seconds, less than zero never repeats.
	RetryFor time.Duration
	// HTTPClient replaces the client that HTTP requests are made with. It must not have a Timeout
	// shorter than a minute: waiting and watching take their time.
	HTTPClient *http.Client
	// TLS configures connections over https:// and tls:// (ignored when HTTPClient is given).
	TLS *tls.Config
	// NATSCredentials is the path of a NATS credentials file; NATSUser and NATSPassword are the
	// alternative.
	NATSCredentials        string
	NATSUser, NATSPassword string
	// NATSFleet says that the credentials over NATS are the fleet's own, which may do everything.
	// Otherwise they are a tenant's, which may submit tasks (of up to 1 MiB), read their records and
	// wait for them; for Watch, Cancel, List, Dead, Fleet and Tools it needs HTTP.
	NATSFleet bool
}

// Client speaks to one fleet. It is safe for concurrent use. Close it when it is no longer needed.
type Client struct {
	door   door
	source string
}

// door is one way to a fleet.
type door interface {
	// submit returns the record as it is after the wait, at the latest.
	submit(ctx context.Context, s Submission, w wait) (Record, error)
	// record returns the record once it is terminal, or as it is after the wait.
	record(ctx context.Context, id string, w wait) (Record, error)
	// watch returns the final record.
	watch(ctx context.Context, id string, after uint64, fn func(Event) error) (Record, error)
	cancel(ctx context.Context, id string) (Record, error)
	approvals(ctx context.Context) ([]PendingApproval, error)
	answer(ctx context.Context, id string, a Answer) (Record, error)
	list(ctx context.Context, o ListOptions) ([]Record, error)
	dead(ctx context.Context, limit int) ([]DeadTask, error)
	audit(ctx context.Context, o AuditOptions) ([]AuditEntry, error)
	fleet(ctx context.Context) (Fleet, error)
	artifact(ctx context.Context, id, path string) (io.ReadCloser, error)
	// get reads what only the HTTP API has into v.
	get(ctx context.Context, v any, query url.Values, path ...string) error
	whoami(ctx context.Context) (Identity, error)
	close() error
}

// wait is how long a door waits for a task's end, and what else ends the wait.
type wait struct {
	time     time.Duration
	approval bool     // a tool call of the task waits for somebody's word
	known    []string // and is not among these
}

// over reports whether something else than the end ends the wait.
func (w wait) over(r Record) bool {
	return w.approval && slices.ContainsFunc(r.Pending(time.Now()), func(a Approval) bool { return !slices.Contains(w.known, a.Call) })
}

// waitStep is how long one request waits for a task before the next one goes on waiting.
const waitStep = 30 * time.Second

// New returns a client of the fleet at o.URL. Over HTTP no connection is made yet, so New does not
// fail because the fleet is away; over NATS the connection is made here.
func New(ctx context.Context, o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme == "" {
		return nil, fmt.Errorf("fleet address %q: want http://, https://, nats:// or tls:// and a host", o.URL)
	}
	c := &Client{source: cmp.Or(o.Source, "codefleet/client")}
	switch u.Scheme {
	case "http", "https":
		c.door, err = newHTTPDoor(u, o)
	case "nats", "tls":
		c.door, err = newNATSDoor(ctx, o)
	default:
		err = fmt.Errorf("fleet address %q: want http://, https://, nats:// or tls://", o.URL)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Close ends the client's connections. Tasks go on.
func (c *Client) Close() error { return c.door.close() }

// Submit hands a task to the fleet and returns its record as soon as it is safely queued. With an
// IdempotencyKey that was used before it returns the record of the first submission; without one,
// each call is a task of its own.
func (c *Client) Submit(ctx context.Context, s Submission) (Record, error) {
	return c.door.submit(ctx, c.from(s), wait{})
}

// Run submits a task and waits for its end. It returns what Wait returns.
func (c *Client) Run(ctx context.Context, s Submission) (Record, error) {
	r, err := c.door.submit(ctx, c.from(s), wait{time: waitStep})
	if err != nil || r.Status.Terminal() {
		return r, err
	}
	return c.wait(ctx, r)
}

func (c *Client) from(s Submission) Submission {
	s.Source = cmp.Or(s.Source, c.source)
	return s
}

// keyed gives a submission that has no key one that is used once.
func (s Submission) keyed() Submission {
	s.IdempotencyKey = cmp.Or(s.IdempotencyKey, rand.Text())
	return s
}

// Get returns the record of a task as it is now. An unknown task, and a task of another tenant, is
// an *APIError with the code "unknown_task".
func (c *Client) Get(ctx context.Context, id string) (Record, error) {
	return c.door.record(ctx, id, wait{})
}

// Wait returns the record of a task when the task has ended. When ctx ends first it returns the
// latest record it saw together with ctx's error.
func (c *Client) Wait(ctx context.Context, id string) (Record, error) {
	return c.wait(ctx, Record{TaskID: id})
}

func (c *Client) wait(ctx context.Context, last Record) (Record, error) {
	for {
		r, err := c.door.record(ctx, last.TaskID, wait{time: waitStep})
		if err != nil {
			return last, err
		}
		if r.Status.Terminal() {
			return r, nil
		}
		last = r
	}
}

// Result returns how a task ended, or ErrNotEnded.
func (c *Client) Result(ctx context.Context, id string) (Result, error) {
	r, err := c.Get(ctx, id)
	if err != nil {
		return Result{}, err
	}
	if r.Result == nil {
		return Result{}, fmt.Errorf("task %s is %s: %w", id, r.Status, ErrNotEnded)
	}
	return *r.Result, nil
}

// Watch calls fn for each step and piece of output of a task, in order, beginning behind the event
// with the sequence number after (0 begins at the start), until the task has ended. It returns the
// final record. A lost connection is resumed where it broke. An error of fn ends Watch and is
// returned as it is.
//
// Output is kept for watchers on a best-effort basis; the complete output is in the result.
func (c *Client) Watch(ctx context.Context, id string, after uint64, fn func(Event) error) (Record, error) {
	return c.door.watch(ctx, id, after, fn)
}

// Cancel asks for a task to be stopped and returns its record: a queued task is cancelled at once, a
// running one soon, and one that has ended stays as it is.
func (c *Client) Cancel(ctx context.Context, id string) (Record, error) {
	return c.door.cancel(ctx, id)
}

// List returns tasks of the caller's tenant, the latest submitted first.
func (c *Client) List(ctx context.Context, o ListOptions) ([]Record, error) {
	return c.door.list(ctx, o)
}

// Dead returns what the fleet gave up on, or could not accept, the latest first. A limit of 0 is 100.
func (c *Client) Dead(ctx context.Context, limit int) ([]DeadTask, error) {
	return c.door.dead(ctx, limit)
}

// Fleet returns the workers that are there and the work that waits for them.
func (c *Client) Fleet(ctx context.Context) (Fleet, error) { return c.door.fleet(ctx) }

// Artifact opens a file that a task handed back; path is as the result lists it. The caller closes
// it. Artifacts are served over HTTP only.
func (c *Client) Artifact(ctx context.Context, id, path string) (io.ReadCloser, error) {
	return c.door.artifact(ctx, id, path)
}

// ReadSchema returns the JSON Schema with the given name ("task.v1.json", "result.v1.json" …).
func ReadSchema(name string) ([]byte, error) { return schemas.Text(name) }
