package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// Headers of a dead letter.
const (
	deadError  = "Codefleet-Error"  // JSON of a schemas.Error, percent-encoded
	deadTask   = "Codefleet-Task"   // task id; absent if the message never became a task
	deadOrigin = "Codefleet-Origin" // subject on which the event arrived
)

// deadLetter stores a message in the tenant's dead-letter queue, under key, with the reason. task is the task id, or
// empty. end identifies the run and the message that ended the task, so that a task that is dead-lettered again after a
// redrive gets a new letter. An event that can never become a task, or has too large headers, is truncated. Large data
// of other events moves to the object store.
func (c *Client) deadLetter(
	ctx context.Context, l lane, key, task, end string, m *nats.Msg, reason *schemas.Error,
) error {
	encoded, err := deadReason(*reason)
	if err != nil {
		return err
	}
	h := keptHeaders(m.Header)
	h.Set(deadError, encoded)
	h.Set(deadOrigin, l.subject())
	if task != "" {
		h.Set(deadTask, task)
	}
	msg := &nats.Msg{Subject: deadSubject(l.tenant, key), Header: h, Data: m.Data}
	if invalid(reason.Code) || task == "" || headerBytes(h) > maxHeaders+maxDeadReason {
		truncateLetter(msg)
	} else if err := c.moveDeadData(ctx, l.tenant, task, end, msg); err != nil {
		return fmt.Errorf("dead-letter %s: %w", key, err)
	}
	id := fmt.Sprintf("%s.%s.%s", key, end, reason.Code)
	if _, err := c.js.PublishMsg(ctx, msg, jetstream.WithMsgID(id)); err != nil {
		return fmt.Errorf("dead-letter %s: %w", key, err)
	}
	c.trimDeadLetters(ctx, l.tenant)
	return nil
}

// deadReason encodes the error of a dead letter, in at most maxDeadReason bytes. The task's result has the whole error.
func deadReason(e schemas.Error) (string, error) {
	for limit := maxDeadReason; ; limit /= 2 {
		e.Message, e.Cause = text.Truncate(e.Message, limit), text.Truncate(e.Cause, limit)
		e.Hint = text.Truncate(e.Hint, limit)
		data, err := json.Marshal(e)
		if encoded := percentEncode(string(data)); err != nil || len(encoded) <= maxDeadReason || limit == 0 {
			return encoded, err
		}
	}
}

// DeadLetters returns the tenant's dead letters, newest first; if code is not empty, only those with this error
// code. The default limit is 100.
func (c *Client) DeadLetters(ctx context.Context, tenant, code string, limit int) ([]schemas.DeadTask, error) {
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return nil, err
	}
	parse := func(m *nats.Msg) (schemas.DeadTask, bool, error) {
		d, err := parseDeadLetter(tenant, m)
		return d, code == "" || d.Error.Code == code, err
	}
	all, err := latest(ctx, c, streamDead, deadSubject(tenant, "*"), limit, parse)
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	return all, nil
}

func parseDeadLetter(tenant string, m *nats.Msg) (schemas.DeadTask, error) {
	seq, seqErr := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	at, timeErr := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	d := schemas.DeadTask{
		Seq: seq, Time: at, Tenant: tenant, Event: map[string]string{},
		TaskID: m.Header.Get(deadTask), Subject: m.Header.Get(deadOrigin),
	}
	reasonErr := json.Unmarshal([]byte(percentDecode(m.Header.Get(deadError))), &d.Error)
	if ev, err := decodeNATS(m.Header, m.Data); err == nil {
		maps.Copy(d.Event, map[string]string{"id": ev.ID(), "source": ev.Source(), "type": ev.Type()})
		for name := range ev.Extensions() {
			d.Event[name] = extension(ev, name)
		}
	}
	return d, errors.Join(seqErr, timeErr, reasonErr)
}
