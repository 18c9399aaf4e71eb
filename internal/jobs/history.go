package jobs

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// HistoryEntry is one entry of a tenant's history. Seq grows with every entry of any tenant.
type HistoryEntry struct {
	Seq  uint64
	Data []byte
}

// MaxHistoryEntry is the largest entry that AppendHistory accepts, in bytes.
const MaxHistoryEntry = 32 << 10

// AppendHistory publishes an entry of the tenant's history, of which the last 500 are kept for 90 days. It
// does not wait for the server, so the entry may be lost.
func (c *Client) AppendHistory(tenant string, data []byte) error {
	if len(data) > MaxHistoryEntry {
		return fmt.Errorf("append to the history of %s: %d bytes are more than %d", tenant, len(data), MaxHistoryEntry)
	}
	return c.nc.Publish(historySubject(tenant), data)
}

// History returns the tenant's history from a sequence on, oldest first.
func (c *Client) History(ctx context.Context, tenant string, from uint64) ([]HistoryEntry, error) {
	var out []HistoryEntry
	err := c.from(ctx, streamHistory, historySubject(tenant), from, func(m *nats.Msg) error {
		seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
		out = append(out, HistoryEntry{seq, m.Data})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the history of %s: %w", tenant, err)
	}
	return out, nil
}

func historySubject(tenant string) string { return "history." + tenant }
