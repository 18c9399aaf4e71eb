package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/strictjson"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// Events that are not tasks wait in EVENTS until a process has acted on them: see package automation.

const (
	streamEvents    = "EVENTS" // events.<tenant>
	eventsPrefix    = "events."
	eventsRetention = 7 * 24 * time.Hour
	maxEvents       = 100_000          // waiting events of one tenant
	follower        = "triggers"       // the consumer of events
	resultsFollower = "results-"       // results-<tenant>: the consumer of the tenant's records
	followAtOnce    = 16               // messages that are handled at the same time
	followTime      = 20 * time.Second // time limit for one message
	followGrace     = 2 * time.Second  // time limit after the end of the process's work
	followAckWait   = 30 * time.Second
	followRetry     = 5 * time.Second // delay until a message is delivered again after an error

	// ReservedTypes is the prefix of the types of the fleet's own events.
	ReservedTypes = "codefleet."
	// ChainDepth is the extension attribute that counts the triggers that led to an event.
	ChainDepth = "chaindepth"
)

// PublishEvent stores a tenant's event, which is not a task, for the tenant's triggers and webhooks. The errors are
// *RefusedError, ErrBacklogFull and connection errors. After a connection error, the event may be stored, and
// PublishEvent may be called again: triggers submit the same task for the same event (source and id).
func (c *Client) PublishEvent(ctx context.Context, tenant string, ev event.Event) error {
	if err := c.checkNonTask(ctx, tenant, ev); err != nil {
		return err
	}
	header, data, err := encodeReadable(ev)
	if err != nil {
		return refuse(errcode.BadEvent, "", "%s", err)
	}
	if limit := c.nc.MaxPayload() - 64<<10; int64(len(data)) > limit {
		return refuse(errcode.TooLarge, "", "the data is %d bytes; the limit of an event is %d", len(data), limit)
	}
	inOrder := InOrder(ev)
	if inOrder {
		if err := c.checkOrdered(ctx, tenant); err != nil {
			return err
		}
		header.Set(orderedHeader, "1")
	}
	_, err = c.js.PublishMsg(ctx, &nats.Msg{Subject: eventsPrefix + tenant, Header: header, Data: data})
	if isSubjectFull(err) {
		return ErrBacklogFull
	}
	if err != nil {
		return fmt.Errorf("publish event: %w", err)
	}
	if inOrder {
		return c.storeOrdered(ctx, tenant, ev)
	}
	return nil
}

// checkNonTask checks an event that is not a task.
func (c *Client) checkNonTask(ctx context.Context, tenant string, ev event.Event) error {
	if err := checkEvent(ev); err != nil {
		return refuse(errcode.BadEvent, "", "%s", err)
	}
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return refuse(errcode.BadName, "tenant", "%s", err)
	}
	if t := extension(ev, "tenant"); t != "" && t != tenant {
		return refuse(errcode.TenantMismatch, "tenant", "the event names a tenant other than the sender's")
	}
	if strings.HasPrefix(ev.Type(), ReservedTypes) {
		return refuse(errcode.BadEvent, "type", "event type %q is not a task: want %s, or a type of your own that "+
			"does not begin with %s", text.Truncate(ev.Type(), maxText), schemas.TypeTask, ReservedTypes)
	}
	if _, err := partitionKey(ev); err != nil {
		return err
	}
	if _, err := Depth(ev); err != nil {
		return err
	}
	if data := ev.Data(); json.Valid(data) { // other data becomes a string for triggers
		if err := strictjson.Check(data); err != nil {
			return refuse(errcode.BadData, "data", "%s", err)
		}
	}
	return c.checkTenant(ctx, "tenant", tenant)
}

// Depth returns the number of triggers that have led to an event, which the event's attribute says.
func Depth(ev event.Event) (int, error) {
	value := extension(ev, ChainDepth)
	if value == "" {
		return 0, nil
	}
	depth, err := strconv.Atoi(value)
	if err != nil || depth < 0 {
		return 0, refuse(errcode.BadEvent, ChainDepth, "it must be a whole number from 0")
	}
	return depth, nil
}

// FollowEvents calls fn with the events of all tenants, several at once, until ctx ends or the queue does not respond.
// Processes that follow at the same time share the events. An event for which fn returns an error is delivered again,
// to any of them; so is one whose process was lost.
func (c *Client) FollowEvents(
	ctx context.Context, fn func(ctx context.Context, tenant string, ev event.Event) error,
) error {
	_, err := c.js.CreateOrUpdateConsumer(ctx, streamEvents, jetstream.ConsumerConfig{
		Durable: follower, AckPolicy: jetstream.AckExplicitPolicy, AckWait: followAckWait, MaxDeliver: -1,
		MaxAckPending: -1, // events of a tenant whose backlog is full are in flight, and must not hold up others
	})
	if err != nil {
		return fmt.Errorf("follow events: %w", err)
	}
	return c.follow(ctx, streamEvents, follower, func(ctx context.Context, m jetstream.Msg) error {
		tenant := strings.TrimPrefix(m.Subject(), eventsPrefix)
		ev, invalid := decodeNATS(m.Headers(), m.Data())
		err := invalid
		if err == nil {
			err = c.checkNonTask(ctx, tenant, ev)
		}
		if _, isRefused := errors.AsType[*RefusedError](err); isRefused || invalid != nil {
			c.opts.Log.WarnContext(ctx, "event refused", "tenant", tenant, "error", logged(err))
			return nil //nolint:nilerr // it would be refused again
		}
		if err != nil { // the event could not be checked
			return err
		}
		ordered := InOrder(ev) && m.Headers().Get(orderedHeader) == "" // published without PublishEvent
		// Before fn: an error of the check has the event delivered again, and fn would then do all its work again.
		if ordered {
			err = c.checkOrdered(ctx, tenant)
		}
		if err == nil {
			err = fn(ctx, tenant, ev)
		}
		if err == nil && ordered {
			err = c.storeOrdered(ctx, tenant, ev)
		}
		if errors.Is(err, ErrBacklogFull) {
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			return &RetryError{After: grown(followRetry, meta.NumDelivered)}
		}
		return err
	})
}

// grown returns the delay until a message is delivered again: first after its first delivery, more after each further
// one, and at most twelve times first.
func grown(first time.Duration, deliveries uint64) time.Duration {
	return first * time.Duration(min(12, max(1, deliveries)))
}

// KeepResults makes the queue remember from now on which tasks of a tenant have ended, for FollowResults, until
// ForgetResults. It may be called again.
func (c *Client) KeepResults(ctx context.Context, tenant string) error {
	_, err := c.js.CreateOrUpdateConsumer(ctx, streamRecords, jetstream.ConsumerConfig{
		Durable: resultsFollower + tenant, FilterSubject: recordPrefix + tenant + ".>",
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: followAckWait, MaxDeliver: -1,
		DeliverPolicy: jetstream.DeliverNewPolicy,
	})
	if err != nil {
		return fmt.Errorf("keep results of %s: %w", tenant, err)
	}
	return nil
}

// ForgetResults ends KeepResults.
func (c *Client) ForgetResults(ctx context.Context, tenant string) error {
	return c.forget(ctx, resultsFollower+tenant)
}

// forget deletes a consumer of records.
func (c *Client) forget(ctx context.Context, consumer string) error {
	err := c.js.DeleteConsumer(ctx, streamRecords, consumer)
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("delete consumer %s: %w", consumer, err)
	}
	return nil
}

// FollowResults is like FollowEvents, for the result events of a tenant's tasks that have ended since KeepResults. A
// result may be delivered more than once, as the same event.
func (c *Client) FollowResults(
	ctx context.Context, tenant string, fn func(ctx context.Context, rec schemas.Record, ev event.Event) error,
) error {
	return c.followRecords(ctx, resultsFollower+tenant, func(ctx context.Context, rec storedRecord) error {
		ev, err := resultEvent(rec, rec.Result)
		if err != nil {
			return err
		}
		return fn(ctx, rec.Record, ev)
	})
}

// followRecords calls fn with the records of a consumer that have a result.
func (c *Client) followRecords(
	ctx context.Context, consumer string, fn func(ctx context.Context, rec storedRecord) error,
) error {
	return c.follow(ctx, streamRecords, consumer, func(ctx context.Context, m jetstream.Msg) error {
		var rec storedRecord
		err := json.Unmarshal(m.Data(), &rec)
		if err != nil || !rec.Status.Terminal() || rec.Result == nil {
			return nil //nolint:nilerr // a record of a later version has no result that this one can read
		}
		return fn(ctx, rec)
	})
}

// resultEvent returns the event of a task's result. If the whole result is too large for a message, result is the slim
// one.
func resultEvent(rec storedRecord, result *schemas.Result) (event.Event, error) {
	ev := event.New()
	ev.SetID(rec.TaskID + "." + strconv.Itoa(rec.Run))
	ev.SetSource(eventSource)
	ev.SetType(schemas.TypeResult)
	ev.SetSubject(rec.TaskID)
	ev.SetTime(rec.EndedAt)
	ev.SetExtension("tenant", rec.Tenant)
	if rec.PartitionKey != "" {
		ev.SetExtension(attrPartition, rec.PartitionKey)
	}
	return ev, ev.SetData(event.ApplicationJSON, result)
}

// follow calls fn with the messages of a consumer until ctx ends or the consumer is deleted.
func (c *Client) follow(
	ctx context.Context, stream, consumer string, fn func(context.Context, jetstream.Msg) error,
) error {
	from, err := c.js.Consumer(ctx, stream, consumer)
	if err != nil {
		return fmt.Errorf("follow %s: %w", stream, err)
	}
	messages, err := from.Messages(jetstream.PullMaxMessages(followAtOnce))
	if err != nil {
		return fmt.Errorf("follow %s: %w", stream, err)
	}
	defer context.AfterFunc(ctx, messages.Stop)()
	defer messages.Stop()
	slots := make(chan struct{}, followAtOnce)
	var running sync.WaitGroup
	defer running.Wait()
	for {
		m, err := messages.Next()
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, jetstream.ErrConsumerDeleted) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("follow %s: %w", stream, err)
		}
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			c.handleFollowed(ctx, m, fn)
		})
	}
}

// handleFollowed calls fn. Then it acknowledges the message or has it delivered again. It returns at most followGrace
// after the end of ctx: the queue delivers again what was not acknowledged by then.
func (c *Client) handleFollowed(ctx context.Context, m jetstream.Msg, fn func(context.Context, jetstream.Msg) error) {
	late, stop := clock.After(ctx, followGrace)
	defer stop()
	handling, cancel := context.WithTimeout(late, followTime)
	defer cancel()
	err := contain(ctx, c.opts.Log, func() error { return fn(handling, m) }, "subject", m.Subject())
	acking, done := context.WithTimeout(late, followGrace)
	defer done()
	later, isLater := errors.AsType[*RetryError](err)
	switch {
	case err == nil:
		err = m.DoubleAck(acking)
	case isLater:
		err = m.NakWithDelay(later.After)
	default:
		c.opts.Log.WarnContext(ctx, "event not handled; it is delivered again", "subject", m.Subject(), "error", err)
		err = m.NakWithDelay(followRetry)
	}
	if err != nil {
		c.opts.Log.WarnContext(ctx, "event not acknowledged", "subject", m.Subject(), "error", err)
	}
}

// RetryError makes the queue deliver a message again after a time.
type RetryError struct {
	After time.Duration
	Busy  bool // no try took place
}

func (e *RetryError) Error() string { return "try again after " + e.After.String() }
