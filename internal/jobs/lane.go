package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

// lane is one line of tasks: those of one tenant and priority in one pool. It has a durable consumer
// of its own, whose MaxAckPending is the tenant's cap.
type lane struct{ pool, priority, tenant string }

func (l lane) subject() string  { return taskSubject(l.pool, l.priority, l.tenant) }
func (l lane) consumer() string { return l.pool + "_" + l.priority + "_" + l.tenant }

const (
	defaultCap     = 1024      // tasks of one lane running at once in the whole fleet
	laneIdle       = time.Hour // a consumer that nobody asked for this long is removed by the server
	fetchPatience  = 20 * time.Millisecond
	fetchAllowance = time.Second // for the answer, which comes after fetchPatience
)

// laneOf reads a lane from the tail of a subject: <first>.<pool>.<priority>.<tenant>.
func laneOf(subject string) (lane, bool) {
	t := strings.Split(subject, ".")
	if len(t) != 4 {
		return lane{}, false
	}
	l := lane{pool: t[1], priority: t[2], tenant: t[3]}
	ok := schemas.CheckName("pool", l.pool) == nil && schemas.CheckName("tenant", l.tenant) == nil
	return l, ok && (l.priority == "high" || l.priority == "normal" || l.priority == "low")
}

// delivery is an entry of TASKS that this worker was handed.
type delivery struct {
	lane
	msg     *nats.Msg
	seq     uint64    // of the entry in TASKS
	stored  time.Time // when the entry was published
	pending int       // entries behind it
	asked   time.Time // before the server can have begun the lease
}

// lanes fetches entries, and makes the consumers for it when they are first needed.
type lanes struct {
	c       *Client
	ackWait time.Duration
	limit   func(tenant string) int

	mu      sync.Mutex
	made    map[lane]bool
	inboxes []*nats.Subscription // free ones
}

// fetch asks for one entry. nil: there is none to have now.
func (ls *lanes) fetch(ctx context.Context, l lane) (*delivery, error) {
	if err := ls.make(ctx, l); err != nil {
		return nil, err
	}
	asked := time.Now()
	msg, err := ls.pull(ctx, l)
	if errors.Is(err, nats.ErrNoResponders) { // the consumer was idle for too long and is gone
		ls.forget(l)
		if err = ls.make(ctx, l); err == nil {
			msg, err = ls.pull(ctx, l)
		}
	}
	if err != nil {
		ls.forget(l)
		return nil, fmt.Errorf("fetch a task of %s: %w", l.subject(), err)
	}
	if msg.Reply == "" { // a status: there is nothing, or nothing more for this tenant now
		return nil, nil
	}
	meta, err := msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("fetch a task of %s: %w", l.subject(), err)
	}
	return &delivery{
		lane: l, msg: msg, seq: meta.Sequence.Stream, stored: meta.Timestamp,
		pending: int(meta.NumPending), asked: asked,
	}, nil
}

// pull is one request for one message: the server answers with the message, or after fetchPatience
// with a status. It is not cut when the worker stops taking, since the server may just have sent a
// message that nobody else gets before the ack wait.
//
// Every slot has an inbox of its own. The connection's shared one cannot be used: it tells answers
// apart by their subject, and that of a pulled message is the one it was published on.
func (ls *lanes) pull(ctx context.Context, l lane) (*nats.Msg, error) {
	inbox, err := ls.inbox()
	if err != nil {
		return nil, err
	}
	request := fmt.Appendf(nil, `{"batch":1,"expires":%d}`, fetchPatience.Nanoseconds())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchAllowance)
	defer cancel()
	err = ls.c.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+streamTasks+"."+l.consumer(), inbox.Subject, request)
	var msg *nats.Msg
	if err == nil {
		msg, err = inbox.NextMsgWithContext(ctx)
	}
	if err != nil { // an answer may still come: not into the next one's inbox
		return nil, errors.Join(err, inbox.Unsubscribe())
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.inboxes = append(ls.inboxes, inbox)
	return msg, nil
}

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

// close ends the inboxes, when no pull is under way any more.
func (ls *lanes) close() error {
	var errs []error
	for _, inbox := range ls.inboxes {
		errs = append(errs, inbox.Unsubscribe())
	}
	ls.inboxes = nil
	return errors.Join(errs...)
}

func (ls *lanes) make(ctx context.Context, l lane) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.made[l] {
		return nil
	}
	_, err := ls.c.js.CreateOrUpdateConsumer(ctx, streamTasks, jetstream.ConsumerConfig{
		Durable: l.consumer(), FilterSubject: l.subject(), AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: ls.ackWait, MaxDeliver: -1, MaxAckPending: ls.limit(l.tenant), InactiveThreshold: laneIdle,
	})
	if err != nil {
		return fmt.Errorf("make consumer %s: %w", l.consumer(), err)
	}
	ls.made[l] = true
	return nil
}

func (ls *lanes) forget(l lane) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.made, l)
}

// The answers to a delivery. Only ack waits for the server.

func (d *delivery) ack(ctx context.Context, c *Client) error {
	_, err := c.request(ctx, d.msg.Reply, []byte("+ACK"))
	return err
}

func (d *delivery) inProgress(c *Client) error { return c.nc.Publish(d.msg.Reply, []byte("+WPI")) }

// nak gives the entry back, for delivery after delay. Only for one whose record says that nobody
// runs it: a nak of an entry that another has taken over would start a third run.
func (d *delivery) nak(c *Client, delay time.Duration) error {
	return c.nc.Publish(d.msg.Reply, fmt.Appendf(nil, `-NAK {"delay": %d}`, delay.Nanoseconds()))
}
