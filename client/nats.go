package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"go.opentelemetry.io/otel/propagation"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

// natsConn uses the queue.
type natsConn struct {
	jobs             *jobs.Client
	user             string // recorded with decisions
	tenant           string
	fleetCredentials bool // whether the credentials are the fleet's, not a tenant's
	retryFor         time.Duration
}

// redrivePage is how many dead letters one call of redriveAll handles at most.
const redrivePage = 100

func newNATSConn(ctx context.Context, o Options) (*natsConn, error) {
	tenant := cmp.Or(o.Tenant, "default")
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return nil, &OptionsError{"tenant", err}
	}
	for address := range strings.SplitSeq(o.URL, ",") {
		address = strings.TrimSpace(address)
		if !strings.Contains(address, "://") {
			address = "nats://" + address
		}
		u, err := url.Parse(address)
		if err != nil {
			return nil, o.badURL("want nats:// or tls:// and a host, or several separated by commas")
		}
		if err := o.checkPort(u); err != nil {
			return nil, err
		}
	}
	c, err := jobs.Connect(ctx, jobs.Options{
		Server: jobs.Server{URL: o.URL, TLS: o.TLS},
		Credentials: jobs.Credentials{
			User: o.NATSUser, Password: o.NATSPassword, Token: o.Token, CredsFile: o.NATSCredentials,
		},
		Relocate: o.relocateNATS,
		Name:     cmp.Or(o.Source, "codefleet/client"),
		Producer: !o.NATSFleet,
	})
	if jobs.RefusesCredentials(err) {
		return nil, &APIError{
			Status: http.StatusUnauthorized, Code: errcode.Unauthorized,
			Message: "the queue does not accept the credentials", Cause: err.Error(),
		}
	}
	if file, ok := errors.AsType[*fs.PathError](err); ok { // of NATSCredentials
		return nil, &OptionsError{"read NATS credentials", file}
	}
	if err != nil {
		return nil, err
	}
	return &natsConn{
		jobs: c, user: cmp.Or(o.NATSUser, o.Source), tenant: tenant, fleetCredentials: o.NATSFleet,
		retryFor: cmp.Or(o.RetryFor, 15*time.Second),
	}, nil
}

// relocateNATS returns where the queue is, according to the fleet file, or false if there is no file that can be read.
func (o Options) relocateNATS() (jobs.Location, bool) {
	if o.Located.Path == "" {
		return jobs.Location{}, false
	}
	now, err := locateNATS(o.Located.Path, o.Tenant, func(string) string { return "" })
	at := jobs.Location{URL: now.URL, User: o.NATSUser, Password: o.NATSPassword}
	if o.Located.Credentials {
		at.User, at.Password = now.NATSUser, now.NATSPassword
	}
	return at, err == nil
}

func (d *natsConn) close() error {
	d.jobs.Close()
	return nil
}

func (d *natsConn) submit(ctx context.Context, s Submission, w wait) (Record, error) {
	submit := d.jobs.Submit
	if s.IdempotencyKey == "" {
		submit = d.jobs.SubmitNew
	}
	ev, err := s.withKey().event(ctx)
	if err != nil {
		return Record{}, err
	}
	r, err := retry(ctx, d.retryFor, func() (Record, error) {
		r, err := submit(ctx, d.tenant, ev)
		submit = d.jobs.Submit // because after an error the task may exist
		return r, queueError(err)
	})
	if err != nil || w.time == 0 || r.Status.Terminal() {
		return r, err
	}
	return d.record(ctx, r.TaskID, w)
}

// event returns the event that the HTTP interface would create from the submission.
func (s Submission) event(ctx context.Context) (event.Event, error) {
	data, err := json.Marshal(s.Task)
	if err != nil {
		return event.Event{}, fmt.Errorf("encode task: %w", err)
	}
	ev := event.New()
	ev.SetID(s.IdempotencyKey)
	ev.SetSource(s.Source)
	ev.SetType(schemas.TypeTask)
	ev.SetTime(time.Now())
	ev.SetDataContentType("application/json")
	ev.DataEncoded = data
	trace := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, trace)
	for name, value := range map[string]string{
		"workspace": s.Workspace, "session": s.Session, "priority": s.Priority, "replyto": s.ReplyTo,
		"partitionkey": s.PartitionKey,
		"traceparent":  trace["traceparent"], "tracestate": trace["tracestate"],
	} {
		if value != "" {
			ev.SetExtension(name, value)
		}
	}
	if !s.ExpiresAt.IsZero() {
		ev.SetExtension("expirytime", s.ExpiresAt.UTC().Format(time.RFC3339Nano))
	}
	if err := ev.Validate(); err != nil {
		return event.Event{}, &APIError{Code: errcode.BadEvent, Message: err.Error(), Status: http.StatusBadRequest}
	}
	return ev, nil
}

func (d *natsConn) record(ctx context.Context, id string, w wait) (Record, error) {
	if w.time == 0 {
		return retry(ctx, d.retryFor, func() (Record, error) {
			r, err := d.jobs.Record(ctx, d.tenant, id)
			return r, queueError(err)
		})
	}
	waiting, cancel := context.WithTimeout(ctx, w.time)
	defer cancel()
	r, err := d.jobs.WaitUntil(waiting, d.tenant, id, w.over)
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	if r.TaskID != "" && waiting.Err() != nil {
		return r, nil // the task has not ended within the wait
	}
	return r, unmarked(queueError(err))
}

func (d *natsConn) watch(ctx context.Context, id string, after uint64, fn func(Event) error) (Record, error) {
	if !d.fleetCredentials {
		return Record{TaskID: id}, fleetOnly()
	}
	var fnErr error
	err := d.jobs.Watch(ctx, d.tenant, id, after, nil, func(seq uint64, p Progress) error {
		fnErr = fn(Event{Seq: seq, Progress: p})
		return fnErr
	})
	switch {
	case fnErr != nil:
		return Record{TaskID: id}, fnErr
	case err != nil:
		return Record{TaskID: id}, unmarked(queueError(err))
	}
	return d.record(ctx, id, wait{time: waitStep})
}

// fleetRequest sends a request that needs the fleet's credentials.
func fleetRequest[T any](d *natsConn, send func() (T, error)) (v T, err error) {
	if !d.fleetCredentials {
		return v, fleetOnly()
	}
	v, err = send()
	return v, unmarked(queueError(err))
}

func (d *natsConn) cancel(ctx context.Context, id string) (Record, error) {
	return fleetRequest(d, func() (Record, error) { return d.jobs.Cancel(ctx, d.tenant, id) })
}

func (d *natsConn) list(ctx context.Context, o ListOptions) ([]Record, error) {
	return fleetRequest(d, func() ([]Record, error) {
		return d.jobs.List(ctx, d.tenant, jobs.ListOptions{Status: o.Status, Limit: o.Limit})
	})
}

func (d *natsConn) dead(ctx context.Context, cause string, limit int) ([]DeadTask, error) {
	return fleetRequest(d, func() ([]DeadTask, error) { return d.jobs.DeadLetters(ctx, d.tenant, cause, limit) })
}

func (d *natsConn) redrive(ctx context.Context, id string) (Record, error) {
	return fleetRequest(d, func() (Record, error) { return d.jobs.Redrive(ctx, d.tenant, id) })
}

func (d *natsConn) redriveAll(ctx context.Context, cause string, from uint64) (Redriven, error) {
	return fleetRequest(d, func() (Redriven, error) {
		return d.jobs.RedriveAll(ctx, d.tenant, cause, from, redrivePage)
	})
}

func (d *natsConn) fleet(ctx context.Context) (Fleet, error) {
	return fleetRequest(d, func() (f Fleet, err error) {
		if f.Workers, err = d.jobs.Workers(ctx); err == nil {
			f.Backlog, err = d.jobs.Backlog(ctx)
		}
		return f, err
	})
}

func (d *natsConn) artifact(context.Context, string, string) (io.ReadCloser, error) {
	return nil, httpOnly()
}

// httpOnly returns the error for a request that only the HTTP interface serves.
func httpOnly() error { return notOverNATS("this request needs the HTTP interface") }

// fleetOnly returns the error for a request that needs the fleet's credentials over NATS.
func fleetOnly() error {
	return notOverNATS("this request needs the HTTP interface, or the fleet's NATS credentials")
}

func notOverNATS(message string) error {
	return &APIError{
		Code: errcode.HTTPOnly, Message: message,
		Hint: "create the client with the http:// address of the fleet", Status: http.StatusNotImplemented,
	}
}

// queueError converts an error of the queue into the error that the HTTP interface would return, marked by
// markForRetry. If that would be `unavailable`, it wraps err instead, whose text says more, and which retry repeats. It
// returns the errors of contexts unchanged.
func queueError(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	e := APIError(*apierror.Of(err))
	if e.Code == errcode.Unavailable {
		return fmt.Errorf("request over NATS: %w", err)
	}
	return markForRetry(&e)
}
