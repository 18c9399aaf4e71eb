// Package client submits tasks to a fleet, waits for them, watches them and downloads their files.
//
// The shortest form finds the fleet as the command line does:
//
//	result, output, err := client.ExecuteTask(ctx, "Calculate 5 + 3")
//
// For more, create a [Client], or an [Agent], which runs tasks with common settings. Both are safe for concurrent use
// and should be reused.
//
// A client uses the HTTP interface (http://, https://) or the queue (nats://, tls://), with the same records, results
// and errors. It retries requests after a lost connection and while the fleet is busy, for up to Options.RetryFor.
// Retries are safe, because submissions have an idempotency key. Methods whose requests must not be sent twice are not
// retried; their comments say so.
//
// A method returns an [*APIError] if the fleet or the client refused the request, or if the server is not a fleet, and
// another error if the fleet could not be reached. For methods of [Client], a task that fails is not an error; its
// [Status] tells how it ended.
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
	"strconv"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// Options say where a fleet is and how to connect to it. Only URL, or the path in Located, is required.
type Options struct {
	// URL of the fleet: http:// or https:// for the HTTP interface, nats:// or tls:// for the queue.
	URL string
	// Located is the fleet.json that the options come from, if any. Locate sets it.
	Located Located
	// Token is the bearer token for HTTP, or the token for a NATS server that requires one.
	Token string
	// Tenant is the tenant over NATS. The default is "default". Over HTTP the token determines the tenant.
	Tenant string
	// Source is the CloudEvents source of submissions. The default is "codefleet/client". Tenant, source and
	// idempotency key together identify a task.
	Source string
	// RetryFor is how long to retry a request while the fleet is unreachable or busy. The default is 15 seconds. A
	// negative value disables retries.
	RetryFor time.Duration
	// HTTPClient sends the HTTP requests. If it is nil, New creates one. Its Timeout must be zero or at least a minute,
	// because requests wait for tasks.
	HTTPClient *http.Client
	// TLS configures connections over https:// (unless HTTPClient is set) and tls://.
	TLS *tls.Config
	// NATSCredentials is the path of a NATS credentials file. NATSUser and NATSPassword are the alternative.
	NATSCredentials        string
	NATSUser, NATSPassword string
	// NATSFleet reports whether the NATS credentials are the fleet's, which permit everything. A tenant's credentials
	// permit submitting tasks of up to 1 MiB, reading their records, waiting for them, deciding on approvals and
	// registering tools. With them, Watch, Cancel, List, Audit, Fleet and the methods for dead letters need HTTP.
	NATSFleet bool
}

// Located is a fleet.json. When a connection is refused or the credentials are rejected, the client reads it again,
// because `codefleet up` may have started again at another address. With a path, Options.URL may be empty: the client
// then reads the file at its first request, and finds the fleet once it runs.
type Located struct {
	Path        string
	Credentials bool // the credentials are those in the file; the client reads them again, too
}

// Client is connected to one fleet. It is safe for concurrent use. Close it when it is no longer needed.
type Client struct {
	conn   conn
	source string
}

// conn is a connection to a fleet, over HTTP or NATS.
type conn interface {
	// submit submits a task, and returns its record once the task has ended, or after the wait.
	submit(ctx context.Context, s Submission, w wait) (Record, error)
	// record returns the record once the task has ended, or after the wait.
	record(ctx context.Context, id string, w wait) (Record, error)
	// watch calls fn for each event and returns the final record.
	watch(ctx context.Context, id string, after uint64, fn func(Event) error) (Record, error)
	cancel(ctx context.Context, id string) (Record, error)
	approvals(ctx context.Context) ([]PendingApproval, error)
	decide(ctx context.Context, id string, decision Decision) (Record, error)
	list(ctx context.Context, o ListOptions) ([]Record, error)
	dead(ctx context.Context, cause string, limit int) ([]DeadTask, error)
	redrive(ctx context.Context, id string) (Record, error)
	redriveAll(ctx context.Context, cause string, from uint64) (Redriven, error)
	audit(ctx context.Context, o AuditOptions) ([]AuditRecord, error)
	fleet(ctx context.Context) (Fleet, error)
	artifact(ctx context.Context, id, path string) (io.ReadCloser, error)
	whoami(ctx context.Context) (Identity, error)
	close() error
}

// wait specifies how long to wait for a task to end, and what else ends the wait.
type wait struct {
	time       time.Duration
	approval   bool     // whether a tool call that waits for approval ends the wait
	knownCalls []string // ids of calls that do not end the wait
}

// over reports whether the wait ends although the task has not ended.
func (w wait) over(r Record) bool {
	return w.approval && slices.ContainsFunc(r.Pending(time.Now()), func(a Approval) bool {
		return !slices.Contains(w.knownCalls, a.Call)
	})
}

// waitStep is how long one request waits for a task. Wait repeats such requests.
const waitStep = 30 * time.Second

// New returns a client of the fleet at o.URL. Over NATS it connects to the server. Over HTTP it makes no request, so it
// succeeds even while the fleet is unreachable. The error is an *OptionsError if o cannot be used, and an *APIError
// with the code "unauthorized" if the NATS server refuses the credentials.
func New(ctx context.Context, o Options) (*Client, error) {
	if err := o.cleanToken("the token"); err != nil {
		return nil, err
	}
	u, err := url.Parse(o.URL)
	if o.URL == "" && o.Located.Path != "" {
		u = &url.URL{Scheme: "http"} // until the file names the fleet
	} else if err != nil || u.Scheme == "" {
		return nil, o.badURL("want http://, https://, nats:// or tls:// and a host")
	}
	c := &Client{source: cmp.Or(o.Source, "codefleet/client")}
	switch u.Scheme {
	case "http", "https":
		if u.User != nil { // requests have the token instead
			return nil, o.badURL("want an address without a user; pass the token in CODEFLEET_TOKEN, for example")
		}
		c.conn, err = newHTTPConn(u, o)
	case "nats", "tls":
		c.conn, err = newNATSConn(ctx, o)
	default:
		err = o.badURL("want http://, https://, nats:// or tls://")
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// badURL returns the error for a URL that New cannot use, without its password.
func (o Options) badURL(problem string) error {
	return badOptions("fleet address %q: %s", text.HideCredentials(o.URL), problem)
}

// checkPort checks the port of u, which is one of the addresses in o.URL.
func (o Options) checkPort(u *url.URL) error {
	if n, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || n == 0) {
		return o.badURL("the port must be from 1 to 65535")
	}
	return nil
}

// Close ends the client's connections. Tasks continue.
func (c *Client) Close() error { return c.conn.close() }

// Submit submits a task and returns its record once the queue has stored the task. With an IdempotencyKey that was used
// before, it returns the record of the first submission. Without one, each call submits a new task.
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

// withKey returns the submission with an idempotency key. The default is a random key.
func (s Submission) withKey() Submission {
	s.IdempotencyKey = cmp.Or(s.IdempotencyKey, rand.Text())
	return s
}

// Get returns the record of a task. For an unknown id or a task of another tenant, the error is an *APIError with the
// code "unknown_task".
func (c *Client) Get(ctx context.Context, id string) (Record, error) {
	return c.conn.record(ctx, id, wait{})
}

// Wait returns the record of a task once the task has ended. If ctx ends first, it returns the latest record that it
// has read, and ctx's error.
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

// Result returns the result of a task that has ended. For any other task the error is ErrNotEnded.
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

// Watch calls fn for each stage and piece of output of a task, in order, until the task has ended, and returns the
// final record. It begins after the event with the sequence number after; with 0 it begins with the first event. It
// resumes after a lost connection. If fn returns an error, Watch returns it.
//
// Events may be missing, because output events are stored on a best-effort basis. The result has the whole output.
func (c *Client) Watch(ctx context.Context, id string, after uint64, fn func(Event) error) (Record, error) {
	return c.conn.watch(ctx, id, after, fn)
}

// Cancel cancels a task and returns its record. A queued task ends at once, a running one when its worker has stopped
// it. A task that has ended does not change.
func (c *Client) Cancel(ctx context.Context, id string) (Record, error) {
	return c.conn.cancel(ctx, id)
}

// List returns the tasks of the caller's tenant that changed last, the latest submission first.
func (c *Client) List(ctx context.Context, o ListOptions) ([]Record, error) {
	return c.conn.list(ctx, o)
}

// Dead returns the tenant's dead-letter queue, the latest first. A zero limit selects 100.
func (c *Client) Dead(ctx context.Context, limit int) ([]DeadTask, error) {
	return c.conn.dead(ctx, "", limit)
}

// Redrive queues a dead-lettered task again, with the same id, and returns its record. For a task that is not
// dead-lettered, or whose record is no longer kept, the error is an *APIError with the code "not_redrivable". Redrive
// is not retried after a lost connection.
func (c *Client) Redrive(ctx context.Context, id string) (Record, error) {
	return c.conn.redrive(ctx, id)
}

// RedriveAll redrives all dead-lettered tasks of the tenant, the oldest first, and calls fn for each, including those
// that cannot be redriven. If fn returns an error, RedriveAll returns it. Its requests are not retried after a lost
// connection.
func (c *Client) RedriveAll(ctx context.Context, fn func(RedrivenTask) error) error {
	return c.redriveAll(ctx, "", fn)
}

// DeadWithCause is like Dead, but returns only tasks whose error has this code. An empty cause selects all.
func (c *Client) DeadWithCause(ctx context.Context, cause string, limit int) ([]DeadTask, error) {
	return c.conn.dead(ctx, cause, limit)
}

// RedriveWithCause is like RedriveAll, but redrives only tasks whose error has this code. An empty cause is an error.
func (c *Client) RedriveWithCause(ctx context.Context, cause string, fn func(RedrivenTask) error) error {
	if cause == "" {
		return &APIError{
			Status: http.StatusBadRequest, Code: errcode.BadParameter, Path: "cause", Message: "the cause is empty",
			Hint: "RedriveAll redrives all",
		}
	}
	return c.redriveAll(ctx, cause, fn)
}

func (c *Client) redriveAll(ctx context.Context, cause string, fn func(RedrivenTask) error) error {
	for from := uint64(0); ; {
		page, err := c.conn.redriveAll(ctx, cause, from)
		if err != nil {
			return err
		}
		for _, t := range page.Tasks {
			if err := fn(t); err != nil {
				return err
			}
		}
		if page.Next == 0 {
			return nil
		}
		from = page.Next
	}
}

// Fleet returns the workers and the backlog of each task pool.
func (c *Client) Fleet(ctx context.Context) (Fleet, error) { return c.conn.fleet(ctx) }

// Artifact opens a file that a task returned, by its path in the result. The caller closes the file. Over NATS, it
// fails with the code "http_only".
func (c *Client) Artifact(ctx context.Context, id, path string) (io.ReadCloser, error) {
	return c.conn.artifact(ctx, id, path)
}

// ReadSchema returns the JSON Schema with the given name, such as "task.v1.json".
func ReadSchema(name string) ([]byte, error) { return schemas.Text(name) }
