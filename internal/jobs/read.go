package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

const (
	defaultList = 100
	listWindow  = 1024 // sequences at the end of a stream that are read first
	readBatch   = 256  // messages per request
	maxBatch    = 1024 // messages of any request, at most

	numPendingHeader = "Nats-Num-Pending" // how many messages follow a batch
)

// ListOptions narrow List.
type ListOptions struct {
	Status []schemas.Status // empty for all
	Limit  int              // default 100
}

// List returns the tenant's tasks that were changed last, sorted by submission, newest first. Large results stay in the
// object store (ResultRef); Record returns them.
func (c *Client) List(ctx context.Context, tenant string, opts ListOptions) ([]schemas.Record, error) {
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return nil, err
	}
	all, err := c.listIndexed(ctx, tenant, opts.Status, cmp.Or(max(0, opts.Limit), defaultList))
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	slices.SortStableFunc(all, func(a, b schemas.Record) int {
		return cmp.Or(b.SubmittedAt.Compare(a.SubmittedAt), cmp.Compare(a.TaskID, b.TaskID))
	})
	return all, nil
}

// latest parses a stream's last messages and returns the values for which parse reports ok, newest first. The default
// limit is 100. It reads a window at the end of the stream, and a larger one if that holds too few.
func latest[T any](
	ctx context.Context, c *Client, stream, subject string, limit int, parse func(*nats.Msg) (T, bool, error),
) ([]T, error) {
	limit = cmp.Or(max(0, limit), defaultList)
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	state := s.CachedInfo().State
	for window := uint64(listWindow); ; window *= 8 {
		first := state.FirstSeq
		if window < state.LastSeq && state.LastSeq-window > first {
			first = state.LastSeq - window
		}
		var all []T
		err := c.readFrom(ctx, stream, subject, first, func(m *nats.Msg) error {
			v, ok, err := parse(m)
			if ok && err == nil {
				all = append(all, v)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(all) >= limit || first <= state.FirstSeq {
			all = all[max(0, len(all)-limit):]
			slices.Reverse(all)
			return all, nil
		}
	}
}

// readFrom calls fn with a stream's messages on subject, from sequence seq on.
func (c *Client) readFrom(ctx context.Context, stream, subject string, seq uint64, fn func(*nats.Msg) error) error {
	for more := true; more; {
		var err error
		if seq, more, err = c.batch(ctx, stream, subject, max(1, seq), fn); err != nil {
			return err
		}
	}
	return nil
}

// readSince calls fn with a stream's messages on subject that were stored at or after a time.
func (c *Client) readSince(
	ctx context.Context, stream, subject string, since time.Time, fn func(*nats.Msg) error,
) error {
	query := map[string]any{"start_time": since, "next_by_subj": subject, "batch": readBatch}
	next, more, err := c.directGet(ctx, stream, query, func(m *nats.Msg, _ uint64) error { return fn(m) })
	if err != nil || !more {
		return err
	}
	return c.readFrom(ctx, stream, subject, next, fn)
}

// batch calls fn with up to readBatch messages on subject, from sequence seq on. If they are large, it calls fn with
// fewer. more reports whether others follow.
func (c *Client) batch(
	ctx context.Context, stream, subject string, seq uint64, fn func(*nats.Msg) error,
) (next uint64, more bool, err error) {
	query := map[string]any{"seq": seq, "next_by_subj": subject, "batch": readBatch}
	return c.directGet(ctx, stream, query, func(m *nats.Msg, _ uint64) error { return fn(m) })
}

// lastOfEach calls fn with the last message on each subject. It skips subjects without messages.
func (c *Client) lastOfEach(ctx context.Context, stream string, subjects []string, fn func(*nats.Msg) error) error {
	for len(subjects) > 0 {
		asked := subjects[:min(len(subjects), readBatch)]
		read := make(map[string]bool, len(asked))
		query := map[string]any{"multi_last": asked, "batch": len(asked)}
		_, more, err := c.directGet(ctx, stream, query, func(m *nats.Msg, _ uint64) error {
			read[m.Header.Get(jetstream.SubjectHeader)] = true
			return fn(m)
		})
		if err != nil {
			return err
		}
		subjects = subjects[len(asked):]
		if more { // the messages are large
			for _, s := range asked {
				if !read[s] {
					subjects = append(subjects, s)
				}
			}
		}
	}
	return nil
}

// getMsg returns message seq of a stream. Unlike the method of jetstream.Stream, it does not take a header of the
// message's publisher for one of the server. The error is jetstream.ErrMsgNotFound if there is no such message.
func (c *Client) getMsg(ctx context.Context, stream string, seq uint64) (*jetstream.RawStreamMsg, error) {
	var found *jetstream.RawStreamMsg
	query := map[string]any{"seq": seq, "batch": 1} // the server returns the next message if there is no such one
	_, _, err := c.directGet(ctx, stream, query, func(m *nats.Msg, at uint64) error {
		if at == seq {
			found = &jetstream.RawStreamMsg{
				Subject: m.Header.Get(jetstream.SubjectHeader), Sequence: seq, Header: m.Header, Data: m.Data,
			}
		}
		return nil
	})
	if err == nil && found == nil {
		err = jetstream.ErrMsgNotFound
	}
	return found, err
}

// onlyServerHeaders removes the values that a message's publisher gave to headers of the server. The server adds its
// own behind them.
func onlyServerHeaders(h nats.Header) {
	for key, values := range h {
		if strings.HasPrefix(key, "Nats-") {
			h[key] = values[len(values)-1:]
		}
	}
}

// errTooManySubjects means that the server does not answer a query for the last messages on so many subjects: more than
// 1024.
var errTooManySubjects = errors.New("the query matches too many subjects")

// directGet calls fn with the messages that a query selects and their sequences. next follows the last sequence. more
// reports whether the server has stopped before the last message.
func (c *Client) directGet(
	ctx context.Context, stream string, query any, fn func(m *nats.Msg, seq uint64) error,
) (next uint64, more bool, err error) {
	data, err := json.Marshal(query)
	if err != nil {
		return 0, false, err
	}
	messages, closed := make(chan *nats.Msg, maxBatch), make(chan struct{})
	sub, err := c.nc.ChanSubscribe(c.nc.NewInbox(), messages) // NextMsg takes a stored header Status for the server's
	if err != nil {
		return 0, false, err
	}
	sub.SetClosedHandler(func(string) { close(closed) })
	defer unsubscribe(sub)
	if err := c.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, sub.Subject, data); err != nil {
		return 0, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for {
		var m *nats.Msg
		select {
		case m = <-messages:
		case <-closed:
			return 0, false, nats.ErrConnectionClosed
		case <-ctx.Done():
			return 0, false, ctx.Err()
		}
		onlyServerHeaders(m.Header)
		status := m.Header.Get("Status")
		if m.Header.Get(jetstream.StreamHeader) != "" { // a message, whatever headers its publisher has set
			status = ""
		}
		switch status {
		case "":
		case "204", "404":
			pending := m.Header.Get(numPendingHeader)
			return next, next > 0 && pending != "" && pending != "0", nil
		case "413":
			return 0, false, fmt.Errorf("read %s: %w", stream, errTooManySubjects)
		case "503":
			return 0, false, nats.ErrNoResponders
		default:
			return 0, false, fmt.Errorf("read %s: status %s %s", stream, status, m.Header.Get("Description"))
		}
		seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
		if err != nil {
			return 0, false, fmt.Errorf("read %s: sequence: %w", stream, err)
		}
		next = seq + 1
		if err := fn(m, seq); err != nil {
			return 0, false, err
		}
	}
}
