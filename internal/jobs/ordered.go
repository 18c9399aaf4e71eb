package jobs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/clock"
)

// Webhooks get the events with one partition key in order. There are two steps, and a message in ORDERED for each:
//
// First, events are matched with webhooks. Consumers with at most one message in flight do it for events with a key:
// one for the events of all tenants, and one for the records of each tenant, whose order is that of the tasks' ends. So
// each event has its deliveries before the next one is matched, also if the process is lost. Nothing that a tenant does
// can delay this step, because it only stores.
//
// Second, deliveries are sent. Those of one webhook and key wait on one subject, in order. No consumer reads them: a
// second message, the key's permit, says that some wait. The process that gets the permit sends the first delivery of
// the subject and removes it, then the next one, and so on. If a try fails, the permit is delivered again at the time
// of the next try. If deliveries were sent before that, a new permit takes its place, so that its age is that of the
// failure: pauses grow with the time since a delivery became the first, not with the time that it waited behind
// others. So waiting deliveries cost nothing, and other keys have their own permits. A delivery stays the first of its
// key until it was sent or its time is over. So if two processes have the permit, because one of them was suspended,
// they may send a delivery twice, but none before its predecessor.
//
// A subject has at most one permit, because it is stored by compare-and-swap. A process that finds no delivery removes
// the permit, and then looks again, because a delivery that was stored in between has got no permit of its own. If the
// process is lost before it looks, restorePermits stores the permit.

const (
	streamOrdered   = "ORDERED"
	orderedEvents   = "ordered.event."   // ordered.event.<tenant>: events to be matched
	orderedWaiting  = "ordered.wait."    // ordered.wait.<tenant>.<webhook>.<hash of the key>: deliveries
	orderedPermits  = "ordered.permit."  // the same with their permits
	orderedMatcher  = "matcher"          // the consumer of events to be matched
	orderedSender   = "sender"           // the consumer of permits
	orderedFollower = "ordered-results-" // followed by a tenant: the consumer of its records
	permitTime      = followTime / 2     // after which another key has its turn; leaves time for the last request
	permitRestore   = 2 * time.Minute
	storedHeader    = "Codefleet-Ordered" // the event is in ORDERED, too
	pauseHeader     = "Codefleet-Pause"   // of a permit: the pause before it is used
)

// InOrder reports whether an event has a partition key. It is delivered in order then.
func InOrder(ev event.Event) bool {
	key, _ := partitionKey(ev)
	return key != ""
}

// storeOrdered stores an event with a partition key, to be matched with webhooks after the tenant's earlier ones.
func (c *Client) storeOrdered(ctx context.Context, tenant string, ev event.Event) error {
	header, data, err := encodeNATS(ev)
	if err == nil {
		_, err = c.js.PublishMsg(ctx, &nats.Msg{Subject: orderedEvents + tenant, Header: header, Data: data})
	}
	if err != nil {
		return fmt.Errorf("publish event in order: %w", err)
	}
	return nil
}

// FollowOrderedEvents is like FollowEvents, for events with a partition key, one after another in the order in which
// they were stored. fn should do no more than to call DeliverWebhook.
func (c *Client) FollowOrderedEvents(
	ctx context.Context, fn func(ctx context.Context, tenant string, ev event.Event) error,
) error {
	_, err := c.js.CreateOrUpdateConsumer(ctx, streamOrdered, jetstream.ConsumerConfig{
		Durable: orderedMatcher, FilterSubject: orderedEvents + "*", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: followAckWait, MaxDeliver: -1, MaxAckPending: 1,
	})
	if err != nil {
		return fmt.Errorf("follow events in order: %w", err)
	}
	return c.follow(ctx, streamOrdered, orderedMatcher, func(ctx context.Context, m jetstream.Msg) error {
		tenant := strings.TrimPrefix(m.Subject(), orderedEvents)
		ev, err := decodeNATS(m.Headers(), m.Data())
		if err != nil {
			c.opts.Log.WarnContext(ctx, "event refused", "tenant", tenant, "error", err)
			return nil
		}
		return fn(ctx, tenant, ev)
	})
}

// KeepOrderedResults is like KeepResults, for FollowOrderedResults, until ForgetOrderedResults. Call KeepResults first.
func (c *Client) KeepOrderedResults(ctx context.Context, tenant string) error {
	conf := jetstream.ConsumerConfig{
		Durable: orderedFollower + tenant, FilterSubject: recordPrefix + tenant + ".>",
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: followAckWait, MaxDeliver: -1, MaxAckPending: 1,
	}
	_, err := c.js.Consumer(ctx, streamRecords, conf.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		var results jetstream.Consumer
		results, err = c.js.Consumer(ctx, streamRecords, resultsFollower+tenant)
		if err == nil {
			// FollowResults leaves results with a key to FollowOrderedResults, also those that it has not read yet.
			conf.DeliverPolicy = jetstream.DeliverByStartSequencePolicy
			conf.OptStartSeq = results.CachedInfo().AckFloor.Stream + 1
			_, err = c.js.CreateConsumer(ctx, streamRecords, conf)
		}
	}
	if err != nil && !errors.Is(err, jetstream.ErrConsumerExists) {
		return fmt.Errorf("keep results of %s in order: %w", tenant, err)
	}
	return nil
}

// ForgetOrderedResults ends KeepOrderedResults.
func (c *Client) ForgetOrderedResults(ctx context.Context, tenant string) error {
	return c.forget(ctx, orderedFollower+tenant)
}

// FollowOrderedResults is like FollowResults, for results with a partition key, one after another in the order in which
// the tasks ended. fn should do no more than to call DeliverWebhook.
func (c *Client) FollowOrderedResults(
	ctx context.Context, tenant string, fn func(ctx context.Context, ev event.Event) error,
) error {
	return c.followRecords(ctx, orderedFollower+tenant, func(ctx context.Context, rec storedRecord) error {
		if rec.PartitionKey == "" {
			return nil
		}
		ev, err := resultEvent(rec, rec.Result)
		if err != nil {
			return err
		}
		return fn(ctx, ev)
	})
}

// deliverInOrder stores a delivery behind the others of its webhook and key.
func (c *Client) deliverInOrder(ctx context.Context, d Delivery, key string, m *nats.Msg) error {
	hash := sha256.Sum256([]byte(key))
	webhook := d.Tenant + "." + d.Webhook + "."
	waiting := webhook + subjectEncoding.EncodeToString(hash[:16])
	m.Subject = orderedWaiting + waiting
	_, err := c.js.PublishMsg(ctx, m, jetstream.WithMsgID(d.Tenant+"."+d.ID), jetstream.WithMsgTTL(DeliveryTime))
	if err == nil {
		err = c.permit(ctx, waiting, 0)
	}
	if err != nil {
		return fmt.Errorf("store delivery to webhook %s: %w", d.Webhook, err)
	}
	if rand.N(trimInterval) == 0 { //nolint:gosec // not a secret
		c.trimOrdered(ctx, webhook)
	}
	return nil
}

// trimOrdered removes a webhook's oldest deliveries above the limit.
func (c *Client) trimOrdered(ctx context.Context, webhook string) {
	stream, err := c.js.Stream(ctx, streamOrdered)
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(orderedWaiting+webhook+"*"),
			jetstream.WithPurgeKeep(maxDeliveries))
	}
	if err != nil {
		c.opts.Log.WarnContext(ctx, "old deliveries not removed", "webhook", webhook, "error", err)
	}
}

// permit stores the permit of a subject, which is used after a pause, unless the subject has one.
func (c *Client) permit(ctx context.Context, waiting string, pause time.Duration) error {
	_, err := c.js.PublishMsg(ctx, &nats.Msg{
		Subject: orderedPermits + waiting, Header: nats.Header{pauseHeader: {pause.String()}},
	}, jetstream.WithExpectLastSequencePerSubject(0))
	if isWrongRevision(err) {
		return nil
	}
	return err
}

// FollowOrderedDeliveries is like FollowDeliveries, for deliveries with a partition key. It calls fn with a delivery
// when the webhook's earlier ones with its key are over.
func (c *Client) FollowOrderedDeliveries(
	ctx context.Context, fn func(ctx context.Context, d Delivery) error,
) error {
	stream, err := c.js.Stream(ctx, streamOrdered)
	if err == nil {
		_, err = stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: orderedSender, FilterSubject: orderedPermits + "*.*.*", AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: followAckWait, MaxDeliver: -1, MaxAckPending: -1, // those that wait are in flight, too
		})
	}
	if err != nil {
		return fmt.Errorf("follow deliveries in order: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var restoring sync.WaitGroup
	defer restoring.Wait()
	defer cancel()
	restoring.Go(func() {
		for ctx.Err() == nil {
			if err := c.restorePermits(ctx, stream); err != nil && ctx.Err() == nil {
				c.opts.Log.WarnContext(ctx, "permits of deliveries not restored", "error", err)
			}
			_ = clock.Sleep(ctx, permitRestore) // the loop ends with ctx
		}
	})
	return c.follow(ctx, streamOrdered, orderedSender, func(ctx context.Context, m jetstream.Msg) error {
		return c.usePermit(ctx, stream, m, fn)
	})
}

// usePermit sends the deliveries that a permit is for. It removes the permit if no more delivery waits, and renews it
// if some were sent before an error.
func (c *Client) usePermit(
	ctx context.Context, stream jetstream.Stream, m jetstream.Msg, fn func(ctx context.Context, d Delivery) error,
) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	pause, _ := time.ParseDuration(m.Headers().Get(pauseHeader)) // 0 after an error
	if pause > 0 && meta.NumDelivered == 1 {
		return &RetryError{After: pause}
	}
	waiting := strings.TrimPrefix(m.Subject(), orderedPermits)
	sent, err := c.sendWaiting(ctx, stream, waiting, meta.Timestamp, fn)
	if err != nil && sent == 0 {
		return err
	}
	// With several replicas, an acknowledged message is removed after the response, and would prevent a new permit.
	if err := stream.DeleteMsg(ctx, meta.Sequence.Stream); err != nil {
		return err
	}
	if err == nil {
		if _, err := first(ctx, stream, waiting); errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		return c.permit(ctx, waiting, 0)
	}
	pause = followRetry
	if later, ok := errors.AsType[*RetryError](err); ok {
		pause = later.After
	}
	return errors.Join(err, c.permit(ctx, waiting, pause))
}

// restorePermits stores a permit for each subject that lacks it.
func (c *Client) restorePermits(ctx context.Context, stream jetstream.Stream) error {
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(orderedWaiting+">"))
	if err != nil {
		return err
	}
	for subject := range info.State.Subjects {
		if err := c.permit(ctx, strings.TrimPrefix(subject, orderedWaiting), 0); err != nil {
			return err
		}
	}
	return nil
}

// sendWaiting calls fn with the deliveries of a subject, one after another, and removes those for which it returns nil.
// since is the time since which the first one is tried. It returns how many it has removed. The error is nil if no more
// delivery waits, an empty *RetryError after permitTime, and otherwise the first error.
func (c *Client) sendWaiting(
	ctx context.Context, stream jetstream.Stream, waiting string, since time.Time,
	fn func(ctx context.Context, d Delivery) error,
) (sent int, err error) {
	for begun := time.Now(); time.Since(begun) < permitTime; sent++ {
		m, err := first(ctx, stream, waiting)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return sent, nil
		}
		if err != nil {
			return sent, err
		}
		if sent > 0 {
			since = time.Now()
		}
		if d, ok := c.delivery(ctx, m.Subject, orderedWaiting, m.Header, m.Data, since); ok {
			if err := fn(ctx, d); err != nil {
				return sent, err
			}
		}
		if err := stream.DeleteMsg(ctx, m.Sequence); err != nil {
			return sent, err
		}
	}
	return sent, &RetryError{}
}

// first returns the first delivery that waits on a subject, or ErrMsgNotFound.
func first(ctx context.Context, stream jetstream.Stream, waiting string) (*jetstream.RawStreamMsg, error) {
	return stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(orderedWaiting+waiting))
}
