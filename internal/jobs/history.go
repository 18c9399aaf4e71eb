package jobs

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// HistoryItem is one item of a tenant's tool history. Seq grows with every item of any tenant.
type HistoryItem struct {
	Seq  uint64
	Data []byte
}

// MaxHistoryItem is the largest item that AppendHistory accepts, in bytes.
const MaxHistoryItem = 32 << 10

// AppendHistory adds an item to the tenant's history, which keeps the last 500 for 90 days. It does not wait for
// the server, so the item may be lost.
func (c *Client) AppendHistory(tenant string, data []byte) error {
	if len(data) > MaxHistoryItem {
		return fmt.Errorf("append to the history of %s: the item is %d bytes; the limit is %d",
			tenant, len(data), MaxHistoryItem)
	}
	return c.nc.Publish(historySubject(tenant), data)
}

// History returns the items of the tenant's history whose Seq is at least from, the oldest first.
func (c *Client) History(ctx context.Context, tenant string, from uint64) ([]HistoryItem, error) {
	var out []HistoryItem
	err := c.readFrom(ctx, streamHistory, historySubject(tenant), from, func(m *nats.Msg) error {
		seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
		out = append(out, HistoryItem{seq, m.Data})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the history of %s: %w", tenant, err)
	}
	return out, nil
}

func historySubject(tenant string) string { return "history." + tenant }
