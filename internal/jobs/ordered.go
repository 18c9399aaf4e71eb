package jobs

import (
	"context"
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

// Webhooks get the events with one partition key in order, in two steps, each with messages of its own in ORDERED:
//
// First, events are matched with webhooks. Events with a key are matched one after another, by consumers that have at
// most one message in flight: one for the events of all tenants, and one for the records of each tenant, which come in
// the order in which the tasks ended. So each event has its deliveries before the next one is matched, even if the
// process is lost. This step only stores deliveries, so no webhook's receiver can delay it.
//
// Second, deliveries are sent. Those of one webhook and key wait on one subject, in order. No consumer reads them:
// another message, the key's permit, says that deliveries wait. The process that gets the permit sends the first
// delivery of the subject and removes it, then the next one, and so on: each is first tried when its turn has come. If
// a try fails, the queue delivers the permit again at the time of the next try. If the process had already sent others
// with this permit, it stores a new permit instead. So a permit is as old as the turn of the delivery that is now
// first. The delays between tries grow with this age; how long the delivery waited behind others does not count.
// Deliveries that wait cause no work, and each key has its own permit. A delivery's turn ends when the delivery has
// been sent or has expired. So if two processes have the permit, because one of them was suspended, they may send a
// delivery twice, but none before its predecessor.
//
// A subject has at most one permit, because permits are stored by compare-and-swap. A process that finds no delivery
// removes the permit, and then looks again, because a delivery that was stored in between has no permit of its own. If
// the process is lost before it looks, restorePermits stores the permit.
//
// Deliveries without a key wait, and have permits, in the same way: see retries.go.

// A suffix of a subject is <tenant>.<webhook>.<hash of the key>, or ends as retries.go describes.
const (
	streamOrdered   = "ORDERED"
	orderedEvents   = "ordered.event."    // ordered.event.<tenant>: events to be matched
	orderedWaiting  = "ordered.wait."     // ordered.wait.<suffix>: deliveries
	orderedPermits  = "ordered.permit."   // ordered.permit.<suffix>: permits to send them
	orderedMatcher  = "matcher"           // the consumer of events to be matched
	orderedSender   = "sender"            // the consumer of permits
	orderedFollower = "ordered-results-"  // ordered-results-<tenant>: the consumer of the tenant's records
	permitTime      = followTime / 4      // time limit for one use of a permit; leaves time for the last request
	failedDelay     = 2 * time.Second     // after a use in which tries failed, so that other webhooks have a turn
	permitRestore   = 2 * time.Minute     // between two calls of restorePermits
	orderedHeader   = "Codefleet-Ordered" // the event is in ORDERED, too
	delayHeader     = "Codefleet-Pause"   // header of a permit: the delay before its use (stored, so not renamed)
	orderedRoom     = 1000                // messages beyond maxDeliveries that a subject holds; then the oldest goes
)

// InOrder reports whether an event is delivered in order, because it has a partition key.
func InOrder(ev event.Event) bool {
	key, _ := partitionKey(ev)
	return key != ""
}

// storeOrdered stores an event with a partition key. It is matched with webhooks after the tenant's earlier events.
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

// checkOrdered returns ErrBacklogFull if maxOrdered events of the tenant wait. Events that are checked at the same time
// may exceed the limit by a few, for which the stream has room.
func (c *Client) checkOrdered(ctx context.Context, tenant string) error {
	subject := orderedEvents + tenant
	counts, err := c.subjectCounts(ctx, streamOrdered, subject)
	if err != nil {
		return fmt.Errorf("count the events of %s: %w", tenant, err)
	}
	if counts[subject] >= c.maxOrdered {
		return ErrBacklogFull
	}
	return nil
}

// FollowOrderedEvents is like FollowEvents, for events with a partition key, one after another in the order in which
// they were stored. fn should do nothing but call DeliverWebhook.
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
			c.opts.Log.WarnContext(ctx, "event refused", "tenant", tenant, "error", logged(err))
			return nil
		}
		return fn(ctx, tenant, ev)
	})
}

// KeepOrderedResults makes the queue remember which tasks of a tenant have ended, for FollowOrderedResults, until
// ForgetOrderedResults. It begins with those that FollowResults has not handled yet, so call KeepResults first. It may
// be called again.
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
			// FollowResults leaves the results with a key to FollowOrderedResults from now on.
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
// the tasks ended. fn should do nothing but call DeliverWebhook.
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

// deliverInOrder stores a delivery, in the message m, behind the others of its webhook and key.
func (c *Client) deliverInOrder(ctx context.Context, d Delivery, key string, m *nats.Msg) error {
	return c.storeWaiting(ctx, d, m, waiting{token: hashToken(key), msgID: d.Tenant + "." + d.ID, life: DeliveryTime})
}

// waiting says how a delivery waits in ORDERED.
type waiting struct {
	token string // last token of the NATS subject
	msgID string
	life  time.Duration // after which the delivery expires
}

// storeWaiting stores a delivery, in the message m, and its permit.
func (c *Client) storeWaiting(ctx context.Context, d Delivery, m *nats.Msg, w waiting) error {
	prefix := d.Tenant + "." + d.Webhook + "."
	m.Subject = orderedWaiting + prefix + w.token
	_, err := c.js.PublishMsg(ctx, m, jetstream.WithMsgID(w.msgID), jetstream.WithMsgTTL(w.life))
	if isUnstorable(err) { // it would hold up the events behind it
		c.logDropped(ctx, d.Tenant, d.Webhook, err)
		return nil
	}
	if err == nil {
		err = c.storePermit(ctx, prefix+w.token, 0)
	}
	if err != nil {
		return fmt.Errorf("store delivery to webhook %s: %w", d.Webhook, err)
	}
	if rand.N(trimInterval) == 0 { //nolint:gosec // not a secret
		c.trimOrdered(ctx, prefix)
	}
	return nil
}

// trimOrdered removes a webhook's oldest deliveries above the limit. prefix is "<tenant>.<webhook>.".
func (c *Client) trimOrdered(ctx context.Context, prefix string) {
	stream, err := c.js.Stream(ctx, streamOrdered)
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(orderedWaiting+prefix+"*"),
			jetstream.WithPurgeKeep(maxDeliveries))
	}
	if err != nil {
		webhook := strings.TrimSuffix(prefix, ".")
		c.opts.Log.WarnContext(ctx, "old deliveries not removed", "webhook", webhook, "error", err)
	}
}

// storePermit stores a permit, which is used after a delay, unless the suffix has a permit already.
func (c *Client) storePermit(ctx context.Context, suffix string, delay time.Duration) error {
	_, err := c.js.PublishMsg(ctx, &nats.Msg{
		Subject: orderedPermits + suffix, Header: nats.Header{delayHeader: {delay.String()}},
	}, jetstream.WithExpectLastSequencePerSubject(0))
	if isWrongRevision(err) {
		return nil
	}
	return err
}

// FollowDeliveries calls fn with deliveries, several at once, as FollowEvents does. A delivery with a partition key
// comes when its turn has come: the webhook's earlier ones with the key have been sent or have expired. If fn returns
// a *RetryError, the delivery is tried again after the error's time, until it is older than DeliveryTime.
func (c *Client) FollowDeliveries(
	ctx context.Context, fn func(ctx context.Context, d Delivery) error,
) error {
	stream, err := c.js.Stream(ctx, streamOrdered)
	if err == nil {
		_, err = stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: orderedSender, FilterSubject: orderedPermits + "*.*.*", AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: followAckWait, MaxDeliver: -1,
			MaxAckPending: -1, // permits that wait for the next try are in flight, too
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
	send := func(handling context.Context, d Delivery) error {
		if ctx.Err() != nil { // this process ends; another one sends the delivery
			return &RetryError{Busy: true}
		}
		return fn(handling, d)
	}
	return c.follow(ctx, streamOrdered, orderedSender, func(handling context.Context, m jetstream.Msg) error {
		_ = m.InProgress() // the permit may have waited here: if its ack wait ends, another process sends, too
		return c.usePermit(handling, stream, m, send)
	})
}

// usePermit sends the deliveries of the permit in m. It removes the permit if no delivery is left, and replaces it if
// some were sent before an error. If none was sent, the queue delivers the same permit again. A permit with a delay is
// first returned to the queue, which delivers it again after the delay.
func (c *Client) usePermit(
	ctx context.Context, stream jetstream.Stream, m jetstream.Msg, fn func(ctx context.Context, d Delivery) error,
) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	delay, _ := time.ParseDuration(m.Headers().Get(delayHeader)) // 0 after an error
	if delay > 0 && meta.NumDelivered == 1 {
		return &RetryError{After: delay}
	}
	suffix := strings.TrimPrefix(m.Subject(), orderedPermits)
	sent, err := c.sendWaiting(ctx, stream, suffix, meta.Timestamp, fn)
	if err != nil && sent == 0 {
		return err
	}
	// With several replicas, an acknowledged message is removed only after the response, and would prevent a new permit
	// until then. So the permit is deleted.
	if err := stream.DeleteMsg(ctx, meta.Sequence.Stream); err != nil {
		return err
	}
	if err == nil {
		if _, err := first(ctx, stream, suffix); errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		return c.storePermit(ctx, suffix, 0)
	}
	delay = followRetry
	if later, ok := errors.AsType[*RetryError](err); ok {
		delay = later.After
	}
	return errors.Join(err, c.storePermit(ctx, suffix, delay))
}

// restorePermits stores a permit for each subject with deliveries that lacks one.
func (c *Client) restorePermits(ctx context.Context, stream jetstream.Stream) error {
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(orderedWaiting+">"))
	if err != nil {
		return err
	}
	for subject := range info.State.Subjects {
		if err := c.storePermit(ctx, strings.TrimPrefix(subject, orderedWaiting), 0); err != nil {
			return err
		}
	}
	return nil
}

// sendWaiting calls fn with the deliveries that wait, one after another. It removes those for which fn returns nil,
// those without a key whose try failed, after retryDelivery has stored them on the subject of their next delay, and
// those that cannot be decoded. since is when the turn of the first one came. sendWaiting returns how many it has
// removed. The error is nil if no delivery is left, a *RetryError after permitTime or if the next delivery is not due
// yet, and otherwise the first error.
func (c *Client) sendWaiting(
	ctx context.Context, stream jetstream.Stream, suffix string, since time.Time,
	fn func(ctx context.Context, d Delivery) error,
) (removed int, err error) {
	wait, unkeyed := delayOf(suffix)
	var delay time.Duration    // before the permit is used again
	var asked, known time.Time // when the queue was asked for its time; that time
	for begun := time.Now(); time.Since(begun) < permitTime; removed++ {
		m, err := first(ctx, stream, suffix)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return removed, nil
		}
		if err != nil {
			return removed, err
		}
		// The clocks of the queue and of this host may differ.
		if left := min(time.Until(m.Time.Add(wait)), wait); unkeyed && left > 0 {
			return removed, &RetryError{After: left}
		}
		switch {
		case unkeyed:
			since = m.Time
		case removed > 0:
			if asked.IsZero() { // once: it is a request
				if known, err = c.queueTime(ctx); err != nil {
					return removed, err
				}
				asked = time.Now()
			}
			since = known.Add(time.Since(asked))
		}
		if d, ok := c.delivery(ctx, m.Subject, orderedWaiting, m.Header, m.Data, since); ok {
			err := fn(ctx, d)
			if later, ok := errors.AsType[*RetryError](err); ok && unkeyed && !later.Busy {
				err = c.retryDelivery(ctx, d, later.After, streamOrdered, m.Sequence)
				delay = failedDelay
			}
			if err != nil {
				return removed, err
			}
		}
		if err := stream.DeleteMsg(ctx, m.Sequence); err != nil {
			// It was trimmed, or has expired, while it was sent. If nothing was removed before, another cause, which
			// lasts, is possible: then there is a warning, and the permit is not used again at once.
			if removed > 0 && errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
				err = &RetryError{After: delay}
			}
			return removed, err
		}
	}
	return removed, &RetryError{After: delay}
}

// first returns the first delivery that waits, or ErrMsgNotFound.
func first(ctx context.Context, stream jetstream.Stream, suffix string) (*jetstream.RawStreamMsg, error) {
	return stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(orderedWaiting+suffix))
}
