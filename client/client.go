// Package client submits tasks to a fleet, waits for them, watches them and downloads their files.
//
// The shortest form finds the fleet in the environment, as the command line does:
//
//	result, output, err := client.ExecuteTask(ctx, "Calculate 5 + 3")
//
// An application with more to do creates a [Client], or an [Agent], whose tasks share their settings. Both are
// safe for concurrent use and meant to be kept.
//
// A client uses the HTTP interface (http://, https://) or the queue itself (nats://, tls://), with the same
// records, results and errors. It retries requests after a lost connection and while the fleet is busy, for
// up to Options.RetryFor. That is safe: submissions have an idempotency key, and the few calls that must not
// be sent twice say so.
//
// A call returns an [*APIError] if the fleet refused it, and another error if the fleet could not be reached.
// How a task ended is not an error of the call, but its [Status].
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

// Options say where a fleet is and how to connect to it. Only URL is required.
type Options struct {
	// URL of the fleet: http:// or https:// for the HTTP interface, nats:// or tls:// for the queue.
	URL string
	// Token is the bearer token for HTTP, or the token for a NATS server that requires one.
	Token string
	// Tenant is the tenant over NATS; default "default". Over HTTP the token determines the tenant.
	Tenant string
	// Source is the CloudEvents source of submissions; default "codefleet/client". Tenant, source and
	// idempotency key together identify a task.
	Source string
	// RetryFor bounds the retries of one request while the fleet is unreachable or busy. Default 15 seconds;
	// a negative value disables retries.
	RetryFor time.Duration
	// HTTPClient sends the HTTP requests; if nil, the Client creates one. Its Timeout, if any, must be at least a
	// minute, because requests wait for tasks.
	HTTPClient *http.Client
	// TLS configures connections over https:// (unless HTTPClient is set) and tls://.
	TLS *tls.Config
	// NATSCredentials is the path of a NATS credentials file. NATSUser and NATSPassword are the alternative.
	NATSCredentials        string
	NATSUser, NATSPassword string
	// NATSFleet says that the NATS credentials are the fleet's own, which permit everything. Those of a tenant
	// permit submitting tasks of up to 1 MiB, reading their records and waiting for them; Watch, Cancel, List,
	// Dead, Audit and Fleet then need HTTP.
	NATSFleet bool
}

// Client is connected to one fleet. It is safe for concurrent use. Close it when it is no longer needed.
type Client struct {
	conn   conn
	source string
}

// conn is a connection to a fleet, over HTTP or NATS.
type conn interface {
	// submit returns the record after the wait.
	submit(ctx context.Context, s Submission, w wait) (Record, error)
	// record returns the record once the task has ended, or after the wait.
	record(ctx context.Context, id string, w wait) (Record, error)
	// watch returns the final record.
	watch(ctx context.Context, id string, after uint64, fn func(Event) error) (Record, error)
	cancel(ctx context.Context, id string) (Record, error)
	approvals(ctx context.Context) ([]PendingApproval, error)
	answer(ctx context.Context, id string, a Answer) (Record, error)
	list(ctx context.Context, o ListOptions) ([]Record, error)
	dead(ctx context.Context, limit int) ([]DeadTask, error)
	audit(ctx context.Context, o AuditOptions) ([]AuditRecord, error)
	fleet(ctx context.Context) (Fleet, error)
	artifact(ctx context.Context, id, path string) (io.ReadCloser, error)
	// get decodes a response of the HTTP interface into v.
	get(ctx context.Context, v any, query url.Values, path ...string) error
	whoami(ctx context.Context) (Identity, error)
	close() error
}

// wait is how long to wait for a task's end, and what else ends the wait.
type wait struct {
	time       time.Duration
	approval   bool     // whether a tool call that waits for approval also ends the wait
	knownCalls []string // ids of calls that do not end it
}

// over reports whether the wait ends before the task does.
func (w wait) over(r Record) bool {
	return w.approval && slices.ContainsFunc(r.Pending(time.Now()), func(a Approval) bool {
		return !slices.Contains(w.knownCalls, a.Call)
	})
}

// waitStep is how long one request waits for a task. Wait repeats it.
const waitStep = 30 * time.Second

// New returns a client of the fleet at o.URL. Over NATS it connects. Over HTTP it does not, so that it succeeds
// even while the fleet is unreachable.
func New(ctx context.Context, o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme == "" {
		return nil, fmt.Errorf("fleet address %q: want http://, https://, nats:// or tls:// and a host", o.URL)
	}
	c := &Client{source: cmp.Or(o.Source, "codefleet/client")}
	switch u.Scheme {
	case "http", "https":
		c.conn, err = newHTTPConn(u, o)
	case "nats", "tls":
		c.conn, err = newNATSConn(ctx, o)
	default:
		err = fmt.Errorf("fleet address %q: want http://, https://, nats:// or tls://", o.URL)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Close ends the client's connections. Tasks continue.
func (c *Client) Close() error { return c.conn.close() }

// Submit submits a task and returns its record once the queue has stored it. With an IdempotencyKey that was
// used before, it returns the record of the first submission. Without one, each call is a new task.
func (c *Client) Submit(ctx context.Context, s Submission) (Record, error) {
	return c.conn.submit(ctx, c.withSource(s), wait{})
}

// Run is Submit followed by Wait.
func (c *Client) Run(ctx context.Context, s Submission) (Record, error) {
	r, err := c.conn.submit(ctx, c.withSource(s), wait{time: waitStep})
	if err != nil || r.Status.Terminal() {
		return r, err
	}
	return c.wait(ctx, r)
}

func (c *Client) withSource(s Submission) Submission {
	s.Source = cmp.Or(s.Source, c.source)
	return s
}

// keyed returns the submission with an idempotency key, by default a random one.
func (s Submission) keyed() Submission {
	s.IdempotencyKey = cmp.Or(s.IdempotencyKey, rand.Text())
	return s
}

// Get returns the record of a task. For an unknown id, and for a task of another tenant, it returns an
// *APIError with the code "unknown_task".
func (c *Client) Get(ctx context.Context, id string) (Record, error) {
	return c.conn.record(ctx, id, wait{})
}

// Wait returns the record of a task once the task has ended. If ctx ends first, it returns the latest record
// that it read and ctx's error.
func (c *Client) Wait(ctx context.Context, id string) (Record, error) {
	return c.wait(ctx, Record{TaskID: id})
}

func (c *Client) wait(ctx context.Context, last Record) (Record, error) {
	for {
		r, err := c.conn.record(ctx, last.TaskID, wait{time: waitStep})
		if err != nil {
			return last, err
		}
		if r.Status.Terminal() {
			return r, nil
		}
		last = r
	}
}

// Result returns the result of a task that has ended. The error is ErrNotEnded for one that has not.
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

// Watch calls fn for each stage and piece of output of a task, in order, until the task has ended, and returns
// the final record. It begins after the event with the sequence number after; 0 begins with the first event.
// It resumes after a lost connection. An error of fn ends Watch, which returns that error.
//
// Events may be missing: output is stored for watchers on a best-effort basis. The result has all of it.
func (c *Client) Watch(ctx context.Context, id string, after uint64, fn func(Event) error) (Record, error) {
	return c.conn.watch(ctx, id, after, fn)
}

// Cancel cancels a task and returns its record. A queued task ends at once, a running one soon; a task that has
// ended does not change.
func (c *Client) Cancel(ctx context.Context, id string) (Record, error) {
	return c.conn.cancel(ctx, id)
}

// List returns tasks of the caller's tenant, the latest submission first.
func (c *Client) List(ctx context.Context, o ListOptions) ([]Record, error) {
	return c.conn.list(ctx, o)
}

// Dead returns the tenant's dead-letter queue, the latest first. A limit of 0 means 100.
func (c *Client) Dead(ctx context.Context, limit int) ([]DeadTask, error) {
	return c.conn.dead(ctx, limit)
}

// Fleet returns the workers and the backlog of each task pool.
func (c *Client) Fleet(ctx context.Context) (Fleet, error) { return c.conn.fleet(ctx) }

// Artifact opens a file that a task returned; path is as the result lists it. The caller closes it. Over NATS
// the error has the code "http_only".
func (c *Client) Artifact(ctx context.Context, id, path string) (io.ReadCloser, error) {
	return c.conn.artifact(ctx, id, path)
}

// ReadSchema returns the JSON Schema with the given name ("task.v1.json", "result.v1.json" …).
func ReadSchema(name string) ([]byte, error) { return schemas.Text(name) }
