package jobs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	runHeader       = "Codefleet-Run" // runs before this message of TASKS was published; absent: 0
	codeSubjectFull = 10077           // the server's code for a stream or subject at its limit
)

// publishTask stores a message in TASKS and returns its sequence. Within the deduplication window, a second
// message for the same run of a task is not stored.
func (c *Client) publishTask(ctx context.Context, msg *nats.Msg, id string, run int) (uint64, error) {
	seq, err := c.publishOnce(ctx, msg, id+"."+strconv.Itoa(run))
	if isSubjectFull(err) {
		return 0, ErrBacklogFull
	}
	if err != nil {
		return 0, fmt.Errorf("publish task %s: %w", id, err)
	}
	return seq, nil
}

func isSubjectFull(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == codeSubjectFull
}

// publishOnce stores msg in TASKS unless a message with the same id is there. All tenants share the server's
// set of ids, and a foreign producer may choose any: so a duplicate counts only on the same subject. A message
// too many does no harm, since the record decides which one runs.
func (c *Client) publishOnce(ctx context.Context, msg *nats.Msg, id string) (uint64, error) {
	ack, err := c.js.PublishMsg(ctx, msg, jetstream.WithMsgID(id))
	if err == nil && ack.Duplicate && !c.isStoredOn(ctx, msg.Subject, ack.Sequence) {
		ack, err = c.js.PublishMsg(ctx, msg, jetstream.WithMsgID(id+"."+rand.Text()))
	}
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// isStoredOn reports whether TASKS holds message seq, on this subject.
func (c *Client) isStoredOn(ctx context.Context, subject string, seq uint64) bool {
	if c.opts.Producer { // it may not read the stream
		return false
	}
	tasks, err := c.js.Stream(ctx, streamTasks)
	if err != nil {
		return false
	}
	m, err := tasks.GetMsg(ctx, seq)
	return err == nil && m.Subject == subject
}

// withoutServerHeaders copies the headers, except those that have a meaning to the server.
func withoutServerHeaders(h nats.Header) nats.Header {
	out := make(nats.Header, len(h)+3)
	for key, values := range h {
		if !strings.HasPrefix(strings.ToLower(key), "nats-") {
			out[key] = values
		}
	}
	return out
}
