package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

const (
	defaultList = 100
	listWindow  = 1024 // sequences looked at first, from the end
	readBatch   = 256  // messages asked for at once
)

// ListOptions narrow List.
type ListOptions struct {
	Status []schemas.Status // empty: all
	Limit  int              // default 100
}

// List returns the tenant's latest tasks, newest first. Large results are left in their store
// (ResultRef says where): read the record to have them.
func (c *Client) List(ctx context.Context, tenant string, opts ListOptions) ([]schemas.Record, error) {
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return nil, err
	}
	if opts.Limit <= 0 {
		opts.Limit = defaultList
	}
	var all []schemas.Record
	err := c.latest(ctx, streamRecords, recordPrefix+tenant+".>", func(m *nats.Msg) error {
		var e entry
		if err := json.Unmarshal(m.Data, &e); err != nil {
			return err
		}
		if len(opts.Status) == 0 || slices.Contains(opts.Status, e.Status) {
			all = append(all, e.Record)
		}
		return nil
	}, func() bool { return len(all) >= opts.Limit }, func() { all = nil })
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	all = newest(all, opts.Limit)
	slices.SortStableFunc(all, func(a, b schemas.Record) int {
		return cmp.Or(b.SubmittedAt.Compare(a.SubmittedAt), cmp.Compare(a.TaskID, b.TaskID))
	})
	return all, nil
}

// newest returns the last n of all, the last one first.
func newest[T any](all []T, n int) []T {
	all = all[max(0, len(all)-n):]
	slices.Reverse(all)
	return all
}

// latest calls fn with messages of a stream in order, beginning far enough from its end that enough
// says yes or the stream's beginning is reached. Before it begins again from further back it calls
// again.
func (c *Client) latest(ctx context.Context, stream, subject string, fn func(*nats.Msg) error, enough func() bool, again func()) error {
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	state := s.CachedInfo().State
	for window := uint64(listWindow); ; window *= 8 {
		from := state.FirstSeq
		if window < state.LastSeq && state.LastSeq-window > from {
			from = state.LastSeq - window
		}
		if err := c.from(ctx, stream, subject, from, fn); err != nil {
			return err
		}
		if enough() || from <= state.FirstSeq {
			return nil
		}
		again()
	}
}

// from calls fn with the messages of a stream on subject, from a sequence to the stream's end.
func (c *Client) from(ctx context.Context, stream, subject string, seq uint64, fn func(*nats.Msg) error) error {
	seq = max(1, seq)
	for {
		next, more, err := c.batch(ctx, stream, subject, seq, fn)
		if err != nil || !more {
			return err
		}
		seq = next
	}
}

// batch is one batched direct get: the server sends up to readBatch messages and then a status.
func (c *Client) batch(ctx context.Context, stream, subject string, seq uint64, fn func(*nats.Msg) error) (next uint64, more bool, err error) {
	sub, err := c.nc.SubscribeSync(c.nc.NewInbox())
	if err != nil {
		return 0, false, err
	}
	defer func() {
		if e := sub.Unsubscribe(); e != nil && err == nil {
			err = e
		}
	}()
	query, err := json.Marshal(map[string]any{"seq": seq, "next_by_subj": subject, "batch": readBatch})
	if err != nil {
		return 0, false, err
	}
	if err := c.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, sub.Subject, query); err != nil {
		return 0, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for n := 0; ; n++ {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return 0, false, err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "204", "404":
			return next, n == readBatch, nil
		default:
			return 0, false, fmt.Errorf("read %s: server says %s %s", stream, status, m.Header.Get("Description"))
		}
		var at uint64
		if _, err := fmt.Sscan(m.Header.Get(jetstream.SequenceHeader), &at); err != nil {
			return 0, false, fmt.Errorf("read %s: sequence: %w", stream, err)
		}
		next = at + 1
		if err := fn(m); err != nil {
			return 0, false, err
		}
	}
}
