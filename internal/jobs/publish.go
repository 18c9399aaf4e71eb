package jobs

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/clock"
)

const (
	runHeader       = "Codefleet-Run"  // number of runs before the message was published; 0 if absent
	waitHeader      = "Codefleet-Wait" // differs for each message that waits in DELAYED
	codeSubjectFull = 10077            // the server's code for a stream or subject at its limit
	codeReplicating = 10158            // the server's code while a cluster replicates a message with the same id
)

func isReplicating(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == codeReplicating
}

func isSubjectFull(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == codeSubjectFull
}

// publishOnce stores msg in TASKS, unless a message with the same id was stored within the deduplication window, and
// returns the sequence of the stored message. All tenants share the server's set of ids, and other programs may choose
// any id, so a duplicate counts only on the same subject. An extra message does no harm, since the record decides which
// one runs.
func (c *Client) publishOnce(ctx context.Context, msg *nats.Msg, id string) (uint64, error) {
	ack, err := c.publishRetrying(ctx, msg, id)
	if err == nil && ack.Duplicate && !c.isStoredOn(ctx, msg.Subject, ack.Sequence) {
		ack, err = c.js.PublishMsg(ctx, msg, jetstream.WithMsgID(id+"."+rand.Text()))
	}
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// publishRetrying publishes msg, repeatedly if necessary, until the server acknowledges or refuses it, for
// requestTimeout at most. It repeats because the stream's leader may be lost, or another process may be publishing the
// same message. The message id prevents a second copy.
func (c *Client) publishRetrying(ctx context.Context, msg *nats.Msg, id string) (*jetstream.PubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for {
		try, done := context.WithTimeout(ctx, tryTimeout)
		ack, err := c.js.PublishMsg(try, msg, jetstream.WithMsgID(id))
		done()
		timeout := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
		again := timeout || errors.Is(err, jetstream.ErrNoStreamResponse)
		if isReplicating(err) {
			again = clock.Sleep(ctx, replicationPause) == nil
		}
		if !again || ctx.Err() != nil {
			return ack, err
		}
	}
}

// isStoredOn reports whether TASKS holds message seq on subject.
func (c *Client) isStoredOn(ctx context.Context, subject string, seq uint64) bool {
	if c.opts.Producer { // may not read the stream
		return false
	}
	tasks, err := c.js.Stream(ctx, streamTasks)
	if err != nil {
		return false
	}
	m, err := tasks.GetMsg(ctx, seq)
	return err == nil && m.Subject == subject
}

// withoutServerHeaders copies all headers except the server's.
func withoutServerHeaders(h nats.Header) nats.Header {
	out := make(nats.Header, len(h)+3)
	for key, values := range h {
		if !strings.HasPrefix(strings.ToLower(key), "nats-") {
			out[key] = values
		}
	}
	return out
}
