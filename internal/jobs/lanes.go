package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	defaultMaxRunning = 1024      // tasks of one lane running at once in the whole fleet
	laneIdle          = time.Hour // the server removes a consumer that was not used for this time
	fetchWait         = 20 * time.Millisecond
	fetchTimeout      = time.Second // time limit for the whole request; the server responds within fetchWait
)

// message is one delivery of TASKS to this worker.
type message struct {
	lane
	msg       *nats.Msg
	seq       uint64    // in TASKS
	stored    time.Time // when it was published
	pending   int       // messages behind it
	requested time.Time // when it was requested; the server's ack wait began later
}

// lanes fetches messages, and creates the consumers that this requires.
type lanes struct {
	c          *Client
	ackWait    time.Duration
	maxRunning func(tenant string) int

	mu        sync.Mutex
	consumers map[lane]bool        // known to exist, with the caps of now
	forgotten int                  // number of calls of forgetAll
	inboxes   []*nats.Subscription // idle
}

// fetch returns the next message of a lane, or nil when none is available now. late outlives ctx, see pull.
func (ls *lanes) fetch(ctx, late context.Context, l lane) (*message, error) {
	if err := ls.ensureConsumer(ctx, l); err != nil {
		return nil, err
	}
	began := time.Now()
	msg, err := ls.pull(late, l)
	if errors.Is(err, nats.ErrNoResponders) { // the server has removed the idle consumer
		ls.forget(l)
		if err = ls.ensureConsumer(ctx, l); err == nil {
			msg, err = ls.pull(late, l)
		}
	}
	if err != nil {
		ls.forget(l)
		return nil, fmt.Errorf("fetch a task of %s: %w", l.subject(), err)
	}
	if msg.Reply == "" { // a status, in most cases because the lane is empty or at the tenant's cap
		return nil, nil
	}
	meta, err := msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("fetch a task of %s: %w", l.subject(), err)
	}
	return &message{
		lane: l, msg: msg, seq: meta.Sequence.Stream, stored: meta.Timestamp,
		pending: int(meta.NumPending), requested: began,
	}, nil
}

// pull requests one message. The server responds with it, or with a status after fetchWait. late ends some time after
// the worker has begun to stop: the server may already have sent a message, which no other worker would get before the
// ack wait ends.
//
// Each concurrent pull has its own inbox. The connection's shared inbox finds the request of a response by the
// response's subject, but a pulled message keeps the subject on which it was published.
func (ls *lanes) pull(late context.Context, l lane) (*nats.Msg, error) {
	inbox, err := ls.inbox()
	if err != nil {
		return nil, err
	}
	request := fmt.Appendf(nil, `{"batch":1,"expires":%d}`, fetchWait.Nanoseconds())
	ctx, cancel := context.WithTimeout(late, fetchTimeout)
	defer cancel()
	err = ls.c.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+streamTasks+"."+l.consumer(), inbox.Subject, request)
	var msg *nats.Msg
	if err == nil {
		msg, err = inbox.NextMsgWithContext(ctx)
	}
	if err != nil {
		unsubscribe(inbox) // a late response must not reach the inbox of another pull
		return nil, err
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.inboxes = append(ls.inboxes, inbox)
	return msg, nil
}

// inbox returns an idle inbox, or else a new one.
func (ls *lanes) inbox() (*nats.Subscription, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if n := len(ls.inboxes); n > 0 {
		inbox := ls.inboxes[n-1]
		ls.inboxes = ls.inboxes[:n-1]
		return inbox, nil
	}
	return ls.c.nc.SubscribeSync(ls.c.nc.NewInbox())
}

// close ends the inboxes. Call it when no pull is in progress.
func (ls *lanes) close() {
	for _, inbox := range ls.inboxes {
		unsubscribe(inbox)
	}
	ls.inboxes = nil
}

// ensureConsumer creates a lane's consumer unless it is known to exist. Several slots may do so at once.
func (ls *lanes) ensureConsumer(ctx context.Context, l lane) error {
	ls.mu.Lock()
	known, forgotten := ls.consumers[l], ls.forgotten
	ls.mu.Unlock()
	if known {
		return nil
	}
	_, err := ls.c.js.CreateOrUpdateConsumer(ctx, streamTasks, jetstream.ConsumerConfig{
		Durable: l.consumer(), FilterSubject: l.subject(), AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: ls.ackWait, MaxDeliver: -1, MaxAckPending: ls.maxRunning(l.tenant), InactiveThreshold: laneIdle,
	})
	if err != nil {
		return fmt.Errorf("create consumer %s: %w", l.consumer(), err)
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.forgotten == forgotten { // else the cap may have changed since it was read
		ls.consumers[l] = true
	}
	return nil
}

// forgetAll makes the next fetch of each lane update the lane's consumer, because the tenants' caps may have changed.
func (ls *lanes) forgetAll() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.forgotten++
	clear(ls.consumers)
}

func (ls *lanes) forget(l lane) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.consumers, l)
}

// acknowledge removes the message from TASKS. It waits for the server; inProgress and requeue do not.
func (m *message) acknowledge(ctx context.Context, c *Client) error {
	_, err := c.request(ctx, m.msg.Reply, []byte("+ACK"))
	return err
}

// inProgress restarts the server's ack wait.
func (m *message) inProgress(c *Client) error { return c.nc.Publish(m.msg.Reply, []byte("+WPI")) }

// requeue makes the server deliver the message again after delay. A run must first change its record, so that the
// record no longer says running. If that change fails because another worker has got the message already, the run must
// not call requeue, which would start one more run.
func (m *message) requeue(c *Client, delay time.Duration) error {
	return c.nc.Publish(m.msg.Reply, fmt.Appendf(nil, `-NAK {"delay": %d}`, delay.Nanoseconds()))
}
