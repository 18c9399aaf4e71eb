package jobs

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/errcode"
)

const (
	runHeader       = "Codefleet-Run"  // number of runs before the message was published; 0 if absent
	waitHeader      = "Codefleet-Wait" // differs for each message that waits in DELAYED
	codeSubjectFull = 10077            // the server's code for a stream or subject at its limit
	codeReplicating = 10158            // the server's code while a cluster replicates a message with the same id

	codeTooLarge        = 10054 // the server's code for a message above the stream's limit
	codeHeadersTooLarge = 10097 // the server's code for headers above 64 KiB

	// maxHeaders bounds the headers of a message that keptHeaders keeps, in bytes. The server accepts 64 KiB; the rest
	// is for the headers that the fleet adds, such as a dead letter's error.
	maxHeaders  = 52 << 10
	fleetsShare = math.MaxUint16 - maxHeaders // bytes for that rest; the server counts a message's headers in 16 bits
)

// isUnstorable reports whether an error says that a message or a record can never be stored, however often it is tried.
func isUnstorable(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return errors.Is(err, errEncode) || errors.Is(err, nats.ErrMaxPayload) ||
		ok && (api.ErrorCode == codeHeadersTooLarge || api.ErrorCode == codeTooLarge)
}

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
	found := false
	query := map[string]any{"seq": seq, "next_by_subj": subject, "batch": 1}
	_, _, err := c.directGet(ctx, streamTasks, query, func(_ *nats.Msg, first uint64) error {
		found = first == seq
		return nil
	})
	return err == nil && found
}

// keptHeaders copies the headers that the fleet reads: those of the event, the trace and the fleet itself, except those
// of dead letters, which deadLetter sets. Others could be so large that the message has no room for the fleet's own.
func keptHeaders(h nats.Header) nats.Header {
	out := make(nats.Header, len(h)+3)
	for key, values := range h {
		if isKept(strings.ToLower(key)) {
			out[key] = values
		}
	}
	return out
}

// isKept reports whether keptHeaders copies a header. key is its name in lower case.
func isKept(key string) bool {
	for _, name := range []string{deadError, deadOrigin, deadTask, deadCut} {
		if strings.EqualFold(key, name) {
			return false
		}
	}
	return strings.HasPrefix(key, cePrefix) || strings.HasPrefix(key, "codefleet-") || key == "content-type" ||
		slices.Contains(propagator.Fields(), key)
}

// headerBytes returns the size of headers in a message.
func headerBytes(h nats.Header) int {
	size := 0
	for key, values := range h {
		for _, v := range values {
			size += len(key) + len(v) + ofHeader
		}
	}
	return size
}

// checkRoom returns an error for a task's message that could not wait in DELAYED: it has no room for the fleet's
// headers.
func (c *Client) checkRoom(m *nats.Msg) *RefusedError {
	size := headerBytes(keptHeaders(m.Header))
	if size > maxHeaders {
		return refuse(errcode.TooLarge, "", "the headers take %d bytes; the limit is %d", size, maxHeaders)
	}
	if limit := c.nc.MaxPayload() - fleetsShare; int64(size+len(m.Data)) > limit {
		r := refuse(errcode.TooLarge, "", "the message takes %d bytes; the limit is %d", size+len(m.Data), limit)
		r.Hint = "submit the task over HTTP"
		return r
	}
	return nil
}
