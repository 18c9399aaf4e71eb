package jobs

import (
	"context"
	"errors"
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
		w.logError(ctx, "message on an invalid subject not removed", w.sweepOne(ctx, subject))
	}
}

// sweepOne dead-letters a message on a subject, the last one if possible, and removes it from TASKS.
func (w *Worker) sweepOne(ctx context.Context, subject string) error {
	stream, err := w.c.js.Stream(ctx, streamTasks)
	if err != nil {
		return err
	}
	m, seq, err := w.c.lastOn(ctx, subject)
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

// lastOn returns the last message in TASKS on a subject, and its sequence, or nil. A message's subject may contain
// wildcards. The server takes them as a filter and also returns the last message on each lane that matches, which
// lastOn skips: however many tasks are queued there, it reads one of them. If too many lanes match, the server refuses
// the query; then lastOn reads all their messages, and returns the first one on the subject.
func (c *Client) lastOn(ctx context.Context, subject string) (found *nats.Msg, seq uint64, err error) {
	query := map[string]any{"seq": uint64(1), "multi_last": []string{subject}, "batch": readBatch}
	for more := true; more && err == nil; {
		var next uint64
		next, more, err = c.directGet(ctx, streamTasks, query, func(m *nats.Msg, at uint64) error {
			if m.Header.Get(jetstream.SubjectHeader) == subject {
				found, seq = m, at
				return errFound
			}
			return nil
		})
		query["seq"] = next
		if errors.Is(err, errTooManySubjects) {
			query = map[string]any{"seq": uint64(1), "next_by_subj": subject, "batch": readBatch}
			more, err = true, nil
		}
	}
	if errors.Is(err, errFound) {
		err = nil
	}
	return found, seq, err
}
