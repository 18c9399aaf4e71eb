package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// HistoryEntry is one thing that is remembered of a tenant's tasks; Seq orders all of them.
type HistoryEntry struct {
	Seq  uint64
	Data []byte
}

// MaxHistoryEntry is the largest memory that Remember takes, in bytes.
const MaxHistoryEntry = 32 << 10

// AppendHistory keeps data for the tenant, beside what is remembered already: the last 500 for 90 days. It does not wait
// for the server, so it may be lost.
func (c *Client) AppendHistory(tenant string, data []byte) error {
	if len(data) > MaxHistoryEntry {
		return fmt.Errorf("remember for %s: %d bytes, at most %d are kept", tenant, len(data), MaxHistoryEntry)
	}
	return c.nc.Publish(historySubject(tenant), data)
}

// History returns what is remembered of the tenant from a sequence on, oldest first.
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

// Spend adds to what the tenant spent on a day (of UTC), in the whole fleet, and returns the sum. When it fails, the
// sum may have been counted or not.
func (c *Client) Spend(ctx context.Context, tenant string, day time.Time, amount int) (total int, err error) {
	msg := nats.NewMsg(spentSubject(tenant, day))
	msg.Header.Set("Nats-Incr", strconv.Itoa(amount))
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := c.nc.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return 0, fmt.Errorf("count what %s spent: %w", tenant, err)
	}
	return sum(answer.Data)
}

// Spent returns what the tenant spent on a day (of UTC).
func (c *Client) Spent(ctx context.Context, tenant string, day time.Time) (total int, err error) {
	s, err := c.js.Stream(ctx, streamSpent)
	if err != nil {
		return 0, err
	}
	m, err := s.GetLastMsgForSubject(ctx, spentSubject(tenant, day))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read what %s spent: %w", tenant, err)
	}
	return sum(m.Data)
}

// sum reads a counter's value: {"val": "42"}.
func sum(data []byte) (int, error) {
	var v struct {
		Val   string `json:"val"`
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return 0, err
	}
	if v.Error != nil {
		return 0, errors.New(v.Error.Description)
	}
	return strconv.Atoi(v.Val)
}

func historySubject(tenant string) string { return "history." + tenant }

func spentSubject(tenant string, day time.Time) string {
	return strings.Join([]string{"spent", tenant, day.UTC().Format("20060102")}, ".")
}
