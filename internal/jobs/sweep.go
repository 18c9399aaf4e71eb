package jobs

import (
	"context"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/errcode"
)

const maxSwept = 100 // messages that one scan removes from TASKS

// sweep dead-letters messages on subjects that name no lane: no consumer would ever get them. Several workers
// may sweep at once.
func (w *Worker) sweep(ctx context.Context, subjects []string) {
	for _, subject := range subjects[:min(maxSwept, len(subjects))] {
		if ctx.Err() != nil {
			return
		}
		w.logError(ctx, "message on an invalid subject not removed", w.sweepFirst(ctx, subject))
	}
}

// sweepFirst dead-letters the first message on a subject and removes it from TASKS.
func (w *Worker) sweepFirst(ctx context.Context, subject string) error {
	stream, err := w.c.js.Stream(ctx, streamTasks)
	if err != nil {
		return err
	}
	m, seq, err := w.c.firstOn(ctx, subject)
	if err != nil || m == nil { // if m is nil, another worker was faster
		return err
	}
	t := strings.Split(subject, ".")
	l := lane{pool: t[1], priority: t[2], tenant: t[3]}
	refused := refuse(errcode.BadSubject, "", "%s is not tasks.<pool>.<high|normal|low>.<tenant>", subject)
	if err := w.c.deadLetter(ctx, l, strconv.FormatUint(seq, 10), "", "", m, refused.asError()); err != nil {
		return err
	}
	w.c.tel.refused.Add(ctx, 1)
	return stream.DeleteMsg(ctx, seq)
}

// firstOn returns the first message in TASKS on a subject, and its sequence, or nil. A message's subject may contain
// wildcards. The server takes them as a filter and returns the messages of other subjects, too, which firstOn skips.
func (c *Client) firstOn(ctx context.Context, subject string) (found *nats.Msg, seq uint64, err error) {
	for next, more := uint64(1), true; more && found == nil && err == nil; {
		query := map[string]any{"seq": next, "next_by_subj": subject, "batch": 1}
		next, more, err = c.directGet(ctx, streamTasks, query, func(m *nats.Msg, at uint64) error {
			if m.Header.Get(jetstream.SubjectHeader) == subject {
				found, seq = m, at
			}
			return nil
		})
	}
	return found, seq, err
}
