package jobs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Events on their way to webhooks wait in ORDERED until they are delivered: see ordered.go, and retries.go for those
// without a partition key. Earlier versions store those without a key in DELIVERIES.

const (
	streamDeliveries  = "DELIVERIES" // deliver.<tenant>.<webhook>
	deliverPrefix     = "deliver."
	deliverer         = "webhooks" // the consumer of deliveries
	maxDeliveries     = 10_000     // waiting deliveries of one webhook; older ones are dropped
	deliveryIDHeader  = "Codefleet-Delivery"
	deliveryForHeader = "Codefleet-Webhook-Created"

	// DeliveryTime is how long a delivery is tried.
	DeliveryTime = 72 * time.Hour
)

// Delivery is an event on its way to a webhook.
type Delivery struct {
	Tenant, Webhook string
	ID              string // the same at each try, and if DeliverWebhook is called again
	For             string // the time at which the webhook was added: a later webhook may have the same name
	Event           event.Event
	Since           time.Time // when it was stored; with a partition key, when its turn came
}

// DeliverWebhook stores a delivery. It drops one that can never be stored, which would hold up others. If its event
// has a partition key, the delivery waits for its turn, which comes when the webhook's earlier deliveries with this
// key have been sent or have expired. d.Since is ignored.
func (c *Client) DeliverWebhook(ctx context.Context, d Delivery) error {
	m, err := deliveryMessage(d)
	if err != nil {
		c.logDropped(ctx, d.Tenant, d.Webhook, err)
		return nil
	}
	if key, _ := partitionKey(d.Event); key != "" {
		return c.deliverInOrder(ctx, d, key, m)
	}
	return c.storeWaiting(ctx, d, m, waiting{
		token: waitingToken(0, d.ID), msgID: d.Tenant + "." + d.ID, life: DeliveryTime,
	})
}

// deliveryMessage returns the message of a delivery, without its subject. It returns an error for an invalid event.
func deliveryMessage(d Delivery) (*nats.Msg, error) {
	header, data, err := encodeNATS(d.Event)
	if err != nil {
		return nil, err
	}
	header.Set(deliveryIDHeader, d.ID)
	header.Set(deliveryForHeader, d.For)
	return &nats.Msg{Header: header, Data: data}, nil
}

func (c *Client) logDropped(ctx context.Context, tenant, webhook string, err error) {
	c.opts.Log.WarnContext(ctx, "delivery dropped", "tenant", tenant, "webhook", webhook, "error", err)
}

// MoveDeliveries moves the deliveries that earlier versions store in DELIVERIES to ORDERED, until ctx ends.
func (c *Client) MoveDeliveries(ctx context.Context) error {
	_, err := c.js.CreateOrUpdateConsumer(ctx, streamDeliveries, jetstream.ConsumerConfig{
		Durable: deliverer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: followAckWait, MaxDeliver: -1,
		MaxAckPending: maxDeliveries,
	})
	if err != nil {
		return fmt.Errorf("follow deliveries: %w", err)
	}
	return c.follow(ctx, streamDeliveries, deliverer, func(ctx context.Context, m jetstream.Msg) error {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		d, ok := c.delivery(ctx, m.Subject(), deliverPrefix, m.Headers(), m.Data(), meta.Timestamp)
		if !ok {
			return nil
		}
		return c.retryDelivery(ctx, d, 0, streamDeliveries, meta.Sequence.Stream)
	})
}

// delivery returns the delivery in a message. Its subject is <prefix><tenant>.<webhook>, perhaps with more tokens. A
// message that is not an event is dropped, and ok is false. since is when the message was stored.
func (c *Client) delivery(
	ctx context.Context, subject, prefix string, header nats.Header, data []byte, since time.Time,
) (d Delivery, ok bool) {
	tenant, webhook, _ := strings.Cut(strings.TrimPrefix(subject, prefix), ".")
	webhook, _, _ = strings.Cut(webhook, ".")
	ev, err := decodeNATS(header, data)
	if err != nil {
		c.logDropped(ctx, tenant, webhook, err)
		return d, false
	}
	if stored, err := time.Parse(time.RFC3339Nano, header.Get(storedHeader)); err == nil {
		since = stored
	}
	return Delivery{
		Tenant: tenant, Webhook: webhook, ID: header.Get(deliveryIDHeader), For: header.Get(deliveryForHeader),
		Event: ev, Since: since,
	}, true
}
