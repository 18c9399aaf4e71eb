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

// Events on their way to webhooks wait in DELIVERIES until they were delivered.

const (
	streamDeliveries   = "DELIVERIES" // deliver.<tenant>.<webhook>
	deliverPrefix      = "deliver."
	deliverer          = "webhooks" // the consumer of deliveries
	maxDeliveries      = 10_000     // of one webhook that wait; the oldest are dropped
	deliveryIDHeader   = "Codefleet-Delivery"
	deliveriesInFlight = 10_000

	// DeliveryTime is how long a delivery is tried.
	DeliveryTime = 72 * time.Hour
)

// Delivery is an event on its way to a webhook.
type Delivery struct {
	Tenant, Webhook string
	ID              string // the same at each try, and if DeliverWebhook was called twice
	Event           event.Event
	Since           time.Time
}

// DeliverWebhook stores a delivery. Since is ignored.
func (c *Client) DeliverWebhook(ctx context.Context, d Delivery) error {
	header, data, err := encodeNATS(d.Event)
	if err != nil {
		return err
	}
	header.Set(deliveryIDHeader, d.ID)
	_, err = c.js.PublishMsg(ctx, &nats.Msg{
		Subject: deliverPrefix + d.Tenant + "." + d.Webhook, Header: header, Data: data,
	}, jetstream.WithMsgID(d.Tenant+"."+d.ID))
	if err != nil {
		return fmt.Errorf("store delivery to webhook %s: %w", d.Webhook, err)
	}
	return nil
}

// FollowDeliveries is like FollowEvents, for deliveries. If fn returns a *RetryError, the delivery is repeated after
// its time, as long as it is not older than DeliveryTime.
func (c *Client) FollowDeliveries(ctx context.Context, fn func(ctx context.Context, d Delivery) error) error {
	_, err := c.js.CreateOrUpdateConsumer(ctx, streamDeliveries, jetstream.ConsumerConfig{
		Durable: deliverer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: followAckWait, MaxDeliver: -1,
		MaxAckPending: deliveriesInFlight, // those that wait for their next try are in flight, too
	})
	if err != nil {
		return fmt.Errorf("follow deliveries: %w", err)
	}
	return c.follow(ctx, streamDeliveries, deliverer, func(ctx context.Context, m jetstream.Msg) error {
		tenant, webhook, _ := strings.Cut(strings.TrimPrefix(m.Subject(), deliverPrefix), ".")
		ev, err := decodeNATS(m.Headers(), m.Data())
		if err != nil {
			c.opts.Log.WarnContext(ctx, "delivery dropped", "tenant", tenant, "webhook", webhook, "error", err)
			return nil
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		return fn(ctx, Delivery{tenant, webhook, m.Headers().Get(deliveryIDHeader), ev, meta.Timestamp})
	})
}
