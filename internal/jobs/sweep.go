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
		w.logError(ctx, "message on an invalid subject not removed", w.sweepFirst(ctx, subject))
	}
}

// sweepFirst dead-letters the first message of a subject and removes it from TASKS.
func (w *Worker) sweepFirst(ctx context.Context, subject string) error {
	stream, err := w.c.js.Stream(ctx, streamTasks)
	if err != nil {
		return err
	}
	m, err := stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(subject))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil // another worker was faster
	}
	if err != nil {
		return err
	}
	t := strings.Split(subject, ".")
	l := lane{pool: t[1], priority: t[2], tenant: t[3]}
	refused := refuse(errcode.BadSubject, "", "%s is not tasks.<pool>.<high|normal|low>.<tenant>", subject)
	msg := &nats.Msg{Header: m.Header, Data: m.Data}
	if err := w.c.deadLetter(ctx, l, strconv.FormatUint(m.Sequence, 10), "", "", msg, refused.asError()); err != nil {
		return err
	}
	w.c.tel.refused.Add(ctx, 1)
	return stream.DeleteMsg(ctx, m.Sequence)
}
