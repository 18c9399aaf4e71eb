package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"go.opentelemetry.io/otel/propagation"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

// natsDoor speaks to the queue itself.
type natsDoor struct {
	jobs     *jobs.Client
	user     string // who answers for calls, in its own words
	tenant   string
	all      bool // the credentials are the fleet's
	retryFor time.Duration
}

func newNATSDoor(ctx context.Context, o Options) (*natsDoor, error) {
	tenant := cmp.Or(o.Tenant, "default")
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return nil, err
	}
	c, err := jobs.Connect(ctx, jobs.Options{
		Server: jobs.Server{URL: o.URL, TLS: o.TLS},
		Credentials: jobs.Credentials{
			User: o.NATSUser, Password: o.NATSPassword, Token: o.Token, CredsFile: o.NATSCredentials,
		},
		Name:     cmp.Or(o.Source, "codefleet/client"),
		Producer: !o.NATSFleet,
	})
	if err != nil {
		return nil, err
	}
	return &natsDoor{jobs: c, user: cmp.Or(o.NATSUser, o.Source), tenant: tenant, all: o.NATSFleet, retryFor: cmp.Or(o.RetryFor, 15*time.Second)}, nil
}

func (d *natsDoor) close() error {
	d.jobs.Close()
	return nil
}

func (d *natsDoor) submit(ctx context.Context, s Submission, w wait) (Record, error) {
	submit := d.jobs.Submit
	if s.IdempotencyKey == "" {
		submit = d.jobs.SubmitNew
	}
	ev, err := s.keyed().event(ctx)
	if err != nil {
		return Record{}, err
	}
	r, err := retry(ctx, d.retryFor, func() (Record, error) {
		r, err := submit(ctx, d.tenant, ev)
		submit = d.jobs.Submit // after an error it may be there
		return r, answer(err)
	})
	if err != nil || w.time == 0 || r.Status.Terminal() {
		return r, err
	}
	return d.record(ctx, r.TaskID, w)
}

// event is the submission as the event that HTTP would make of it.
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
		"traceparent": trace["traceparent"], "tracestate": trace["tracestate"],
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

func (d *natsDoor) record(ctx context.Context, id string, w wait) (Record, error) {
	if w.time == 0 {
		return retry(ctx, d.retryFor, func() (Record, error) {
			r, err := d.jobs.Record(ctx, d.tenant, id)
			return r, answer(err)
		})
	}
	waiting, cancel := context.WithTimeout(ctx, w.time)
	defer cancel()
	r, err := d.jobs.WaitUntil(waiting, d.tenant, id, w.over)
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	if r.TaskID != "" && waiting.Err() != nil {
		return r, nil // as it is after wait
	}
	return r, final(answer(err))
}

func (d *natsDoor) watch(ctx context.Context, id string, after uint64, fn func(Event) error) (Record, error) {
	if !d.all {
		return Record{TaskID: id}, httpOnly()
	}
	var own error
	err := d.jobs.Watch(ctx, d.tenant, id, after, func(seq uint64, p Progress) error {
		own = fn(Event{Seq: seq, Progress: p})
		return own
	})
	switch {
	case own != nil:
		return Record{TaskID: id}, own
	case err != nil:
		return Record{TaskID: id}, final(answer(err))
	}
	return d.record(ctx, id, wait{time: waitStep})
}

func (d *natsDoor) cancel(ctx context.Context, id string) (Record, error) {
	if !d.all {
		return Record{}, httpOnly()
	}
	r, err := d.jobs.Cancel(ctx, d.tenant, id)
	return r, final(answer(err))
}

func (d *natsDoor) list(ctx context.Context, o ListOptions) ([]Record, error) {
	if !d.all {
		return nil, httpOnly()
	}
	rs, err := d.jobs.List(ctx, d.tenant, jobs.ListOptions{Status: o.Status, Limit: o.Limit})
	return rs, final(answer(err))
}

func (d *natsDoor) dead(ctx context.Context, limit int) ([]DeadTask, error) {
	if !d.all {
		return nil, httpOnly()
	}
	found, err := d.jobs.DeadLetters(ctx, d.tenant, limit)
	return found, final(answer(err))
}

func (d *natsDoor) fleet(ctx context.Context) (Fleet, error) {
	if !d.all {
		return Fleet{}, httpOnly()
	}
	workers, err := d.jobs.Workers(ctx)
	if err != nil {
		return Fleet{}, final(answer(err))
	}
	backlog, err := d.jobs.Backlog(ctx)
	if err != nil {
		return Fleet{}, final(answer(err))
	}
	return Fleet{Workers: workers, Backlog: backlog}, nil
}

func (d *natsDoor) artifact(context.Context, string, string) (io.ReadCloser, error) {
	return nil, httpOnly()
}

func (d *natsDoor) get(context.Context, any, url.Values, ...string) error { return httpOnly() }

func httpOnly() error {
	return &APIError{
		Code: errcode.HTTPOnly, Message: "this is not to be had over NATS with these credentials",
		Hint: "give the client the http:// address of the fleet", Status: http.StatusNotImplemented,
	}
}

// answer makes of an error of the queue what HTTP would have answered, permanent unless it may pass.
// An error of the caller's own context stays what it is.
func answer(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	e := APIError(*apierror.Of(err))
	if e.Code == errcode.Unavailable {
		return fmt.Errorf("ask fleet over NATS: %w", err)
	}
	return passing(&e)
}
