package jobs

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"time"
)

// Deliveries without a partition key wait in ORDERED, too, on subjects whose last token is retry-<delay>-<number>. All
// deliveries on a subject have the same delay, so the first one is due first; the delay of a delivery that was not
// tried yet is 0s. The process that gets the subject's permit sends those that are due. A delivery that fails moves to
// the subject of its next delay, so the others do not wait for it. A webhook has only a few permits, however many of
// its deliveries wait, so they hold up no other webhook.

const (
	retryPrefix   = "retry-"
	retrySubjects = 4 // per webhook and delay; as many of these deliveries may be sent at once
	maxRetryDelay = time.Hour
	storedHeader  = "Codefleet-Stored" // when the delivery was stored first
)

// retryDelivery stores a delivery, to be tried again after a time. It drops a delivery that is older than DeliveryTime.
// stream and seq identify the message that contained the delivery: for one message, the delivery is stored only once.
func (c *Client) retryDelivery(ctx context.Context, d Delivery, after time.Duration, stream string, seq uint64) error {
	m, err := deliveryMessage(d)
	if err != nil {
		c.logDropped(ctx, d.Tenant, d.Webhook, err)
		return nil
	}
	m.Header.Set(storedHeader, d.Since.UTC().Format(time.RFC3339Nano))
	now, err := c.queueTime(ctx)
	if err != nil {
		return err
	}
	life := (DeliveryTime - now.Sub(d.Since)).Truncate(time.Second)
	if life < time.Second {
		return nil
	}
	return c.storeWaiting(ctx, d, m, waiting{
		token: waitingToken(retryDelay(after), d.ID),
		msgID: fmt.Sprintf("%s.%s.%s.%d", d.Tenant, d.ID, stream, seq), life: life,
	})
}

// queueTime returns the time of the queue, by which deliveries are stored. The clock of this host may differ.
func (c *Client) queueTime(ctx context.Context) (time.Time, error) {
	stream, err := c.js.Stream(ctx, streamOrdered)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time of the queue: %w", err)
	}
	return stream.CachedInfo().TimeStamp, nil
}

// waitingToken returns the last token of the subject of a delivery without a partition key.
func waitingToken(delay time.Duration, id string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(id)) // never fails
	return fmt.Sprintf("%s%s-%d", retryPrefix, delay, hash.Sum32()%retrySubjects)
}

// retryDelay rounds a time up to 1, 2, 4, 8 seconds and so on, and returns an hour at most.
func retryDelay(after time.Duration) time.Duration {
	delay := time.Second
	for delay < after && delay < maxRetryDelay {
		delay *= 2
	}
	return min(delay, maxRetryDelay)
}

// delayOf returns the delay of the deliveries with a suffix, if they have no partition key.
func delayOf(suffix string) (delay time.Duration, ok bool) {
	token, ok := strings.CutPrefix(suffix[strings.LastIndexByte(suffix, '.')+1:], retryPrefix)
	if !ok {
		return 0, false
	}
	text, _, _ := strings.Cut(token, "-")
	delay, err := time.ParseDuration(text)
	return delay, err == nil
}
