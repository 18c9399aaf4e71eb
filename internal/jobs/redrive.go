package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/schemas"
)

const (
	redriveTime = time.Minute // limit for one call of Redrive
	// redriveTimer is the delay after which a task returns to its lane if the process crashes during Redrive. It is
	// longer than redriveTime.
	redriveTimer = 2 * time.Minute
	recordDelay  = 2 * time.Second // between a dead letter and its record, at most, while the queue responds
)

// Redrive queues a dead-lettered task again, with the same id, program and journal, and removes its dead letter. Its
// runs stay in the record but no longer count as attempts. It returns the task's new record. The error is
// ErrUnknownTask or a *NotRedrivableError if nothing was changed. After another error the task may be queued. If
// several processes redrive a task at once, only one of them succeeds.
//
// A crash leaves the task either dead, with its dead letter, or queued. First a message is stored in DELAYED as a
// timer, then the record is changed, then the message is published on its lane, and the timer is deleted. After a crash
// before the publication, the timer queues the task.
func (c *Client) Redrive(ctx context.Context, tenant, id string) (schemas.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, redriveTime)
	defer cancel()
	rec, err := c.find(ctx, tenant, id)
	unknown := errors.Is(err, ErrUnknownTask)
	if err != nil && (!unknown || !names.IsTaskID(id) || schemas.CheckName("tenant", tenant) != nil) {
		return schemas.Record{}, err
	}
	letter, lane, err := c.letter(ctx, tenant, id)
	if letter != nil && !unknown && !rec.Status.Terminal() {
		rec = c.awaitEnd(ctx, rec)
	}
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound) && unknown:
		return schemas.Record{}, ErrUnknownTask
	case err != nil && !errors.Is(err, jetstream.ErrMsgNotFound):
		return schemas.Record{}, fmt.Errorf("redrive task %s: %w", id, err)
	case unknown:
		return schemas.Record{}, &NotRedrivableError{
			Reason: "the record of task " + id + " is no longer kept: it cannot be run again under the same id",
			Hint:   "submit the task again",
		}
	}
	if letter != nil && letter.Header.Get(deadCut) != "" {
		return schemas.Record{}, &NotRedrivableError{
			Reason: "the event of task " + id + " was invalid or too large: only its beginning is kept",
			Hint:   "correct it, and submit it as a new task",
		}
	}
	if err := checkRedrivable(rec, letter != nil); err != nil {
		return schemas.Record{}, err
	}
	after, err := c.redrive(ctx, rec, lane, letter)
	if err != nil {
		return schemas.Record{}, err
	}
	return after.Record, nil
}

// awaitEnd waits for the end of a task that has a dead letter: a worker stores the letter before the record. It returns
// rec if the task does not end within recordDelay, because the letter may be from an earlier end of the task.
func (c *Client) awaitEnd(ctx context.Context, rec storedRecord) storedRecord {
	ctx, cancel := context.WithTimeout(ctx, recordDelay)
	defer cancel()
	if _, err := c.wait(ctx, rec.Tenant, rec.TaskID, func(schemas.Record) bool { return false }); err != nil {
		return rec
	}
	if now, err := c.find(ctx, rec.Tenant, rec.TaskID); err == nil {
		return now
	}
	return rec
}

// letter returns a task's dead letter and the lane on which its event arrived. The error is jetstream.ErrMsgNotFound if
// the task has none.
func (c *Client) letter(ctx context.Context, tenant, id string) (*jetstream.RawStreamMsg, lane, error) {
	stream, err := c.js.Stream(ctx, streamDead)
	if err != nil {
		return nil, lane{}, err
	}
	m, err := stream.GetLastMsgForSubject(ctx, deadSubject(tenant, id))
	if err != nil {
		return nil, lane{}, err
	}
	l, ok := laneOf(m.Header.Get(deadOrigin))
	if !ok || l.tenant != tenant {
		return nil, lane{}, fmt.Errorf("the dead letter names no lane of the tenant: %q", m.Header.Get(deadOrigin))
	}
	return m, l, nil
}

// checkRedrivable returns a *NotRedrivableError if a task cannot be redriven.
func checkRedrivable(rec storedRecord, hasLetter bool) error {
	switch {
	case rec.Status != schemas.Dead && rec.Status != schemas.Blocked:
		return &NotRedrivableError{
			Reason: fmt.Sprintf("task %s is %s: only dead-lettered tasks can be redriven", rec.TaskID, rec.Status),
			Hint:   "GET /v1/dead lists them",
		}
	case !hasLetter:
		return noLetter(rec)
	case !rec.ExpiresAt.IsZero() && !time.Now().Before(rec.ExpiresAt):
		return &NotRedrivableError{
			Reason: fmt.Sprintf("task %s expired at %s", rec.TaskID, rec.ExpiresAt.UTC().Format(time.RFC3339)),
			Hint:   "submit the task again with a later expirytime, or without one",
		}
	}
	return nil
}

// noLetter is the error for a task that exists and has no dead letter.
func noLetter(rec storedRecord) error {
	if rec.Status != schemas.Dead && rec.Status != schemas.Blocked {
		return &NotRedrivableError{
			Reason: fmt.Sprintf("task %s is %s: only dead-lettered tasks have a dead letter", rec.TaskID, rec.Status),
			Hint:   "GET /v1/dead lists them",
		}
	}
	return &NotRedrivableError{
		Reason: fmt.Sprintf("task %s has no dead letter: it was not dead-lettered, or its event is no longer kept",
			rec.TaskID),
		Hint: "submit the task again",
	}
}

// redrive does what Redrive describes, to a task whose record was read as rec.
func (c *Client) redrive(
	ctx context.Context, rec storedRecord, l lane, letter *jetstream.RawStreamMsg,
) (storedRecord, error) {
	header := keptHeaders(letter.Header)
	header.Set(runHeader, strconv.Itoa(rec.Run))
	if err := c.renewData(ctx, rec, letter.Sequence, header); err != nil {
		return rec, err
	}
	timer, err := c.delay(ctx, l, rec, header, letter.Data, time.Now().Add(redriveTimer))
	if err != nil {
		return rec, fmt.Errorf("redrive task %s: %w", rec.TaskID, err)
	}
	after := rec
	after.Status, after.QueueSeq, after.Worker, after.LeaseUntil = schemas.Queued, 0, "", time.Time{}
	after.Result, after.EndedAt, after.CancelRequested = nil, time.Time{}, false
	after.Attempts = slices.Clone(rec.Attempts) // the record that was read must not change
	for i := range after.Attempts {
		after.Attempts[i].Redriven = true
	}
	err = c.swap(ctx, &after)
	if errors.Is(err, errAmbiguous) {
		if fresh, readErr := c.loadLeader(ctx, rec.Tenant, rec.TaskID); readErr == nil && fresh.rev != rec.rev {
			after, err = fresh, nil // either this call or another has redriven it
		}
	}
	if errors.Is(err, errStale) {
		// The timer stays. Both processes store theirs on the same subject, so it may have replaced the other's.
		return rec, &NotRedrivableError{
			Reason: "another process has just redriven or changed task " + rec.TaskID,
			Hint:   "read its record again",
		}
	}
	if err != nil {
		return rec, fmt.Errorf("redrive task %s: %w", rec.TaskID, err)
	}
	messageID := fmt.Sprintf("%s.redrive.%d", rec.TaskID, letter.Sequence)
	msg := &nats.Msg{Subject: l.subject(), Header: header, Data: letter.Data}
	if _, err := c.publishOnce(ctx, msg, messageID); err == nil {
		c.deleteMsg(ctx, streamDelayed, timer)
	} else { // for example because the tenant's backlog is full
		c.opts.Log.WarnContext(ctx, "redriven task not published, left to its timer",
			"task_id", rec.TaskID, "error", err)
	}
	c.deleteLetters(ctx, rec.Tenant, rec.TaskID, jetstream.WithPurgeSequence(letter.Sequence+1))
	if ref := percentDecode(letter.Header.Get("ce-dataref")); ref != "" {
		c.dropData(ctx, rec.Tenant, ref)
	}
	return after, nil
}

// renewData copies the data of the dead letter seq within the object store, if it is there, and changes header to refer
// to the copy. The copy has the name of an unfinished task's data, so it is not removed to make room.
func (c *Client) renewData(ctx context.Context, rec storedRecord, seq uint64, header nats.Header) error {
	ref := percentDecode(header.Get("ce-dataref"))
	if ref == "" {
		return nil
	}
	name, err := objectName(rec.Tenant, ref)
	if err != nil {
		return &NotRedrivableError{Reason: fmt.Sprintf("task %s: %s", rec.TaskID, err), Hint: "submit the task again"}
	}
	data, err := c.getObject(ctx, name)
	if objectMissing(err) {
		return &NotRedrivableError{
			Reason: fmt.Sprintf("the data of task %s is no longer kept", rec.TaskID), Hint: "submit the task again",
		}
	}
	if err == nil {
		err = c.reserve(ctx, rec.Tenant, int64(len(data)))
	}
	if r, ok := errors.AsType[*RefusedError](err); ok {
		return &NotRedrivableError{Reason: r.Message, Hint: r.Hint}
	}
	if errors.Is(err, ErrStorageFull) {
		return &NotRedrivableError{
			Reason: "there is no room for the data of task " + rec.TaskID +
				": the tenant's unfinished tasks fill its share of the storage",
			Hint: "wait until tasks have ended, or increase queue.payload_mb",
		}
	}
	name = fmt.Sprintf("%s/%s/redriven-%d%s", rec.Tenant, rec.TaskID, seq, dataName)
	if err == nil {
		err = c.putObject(ctx, name, data)
	}
	header.Set("ce-dataref", percentEncode(objectRef(name)))
	return err
}

// deleteMsg removes a message that does no harm if it stays.
func (c *Client) deleteMsg(ctx context.Context, stream string, seq uint64) {
	s, err := c.js.Stream(ctx, stream)
	if err == nil {
		err = s.DeleteMsg(ctx, seq)
	}
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		c.opts.Log.DebugContext(ctx, "message not removed", "stream", stream, "seq", seq, "error", err)
	}
}

// deleteLetters removes a task's dead letters. The options may limit which ones.
func (c *Client) deleteLetters(ctx context.Context, tenant, id string, opts ...jetstream.StreamPurgeOpt) {
	s, err := c.js.Stream(ctx, streamDead)
	if err == nil {
		err = s.Purge(ctx, append(opts, jetstream.WithPurgeSubject(deadSubject(tenant, id)))...)
	}
	if err != nil {
		c.opts.Log.WarnContext(ctx, "dead letter not removed", "task_id", id, "error", err)
	}
}

// RedriveAll redrives at most limit of the tenant's dead-lettered tasks, the oldest first, beginning with the dead
// letter that has the sequence number from; with a cause, only those with this error code. If others are left, Next is
// the sequence number from which to continue. A task that cannot be redriven is reported, and keeps its dead letter.
// Events that never became tasks are skipped.
func (c *Client) RedriveAll(
	ctx context.Context, tenant, cause string, from uint64, limit int,
) (schemas.Redriven, error) {
	out := schemas.Redriven{Tasks: []schemas.RedrivenTask{}}
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return out, err
	}
	letters, err := c.lettersFrom(ctx, tenant, cause, from, limit+1)
	if err != nil {
		return out, fmt.Errorf("read dead letters: %w", err)
	}
	for _, d := range letters {
		if len(out.Tasks) == limit {
			out.Next = d.Seq
			return out, nil
		}
		task := schemas.RedrivenTask{Seq: d.Seq, TaskID: d.TaskID}
		rec, err := c.Redrive(ctx, tenant, d.TaskID)
		refused, isRefused := errors.AsType[*NotRedrivableError](err)
		switch {
		case err == nil:
			task.Status = rec.Status
		case isRefused:
			task.Error = refused.Reason
		case errors.Is(err, ErrUnknownTask): // another process has redriven it, and its record is gone
			task.Error = err.Error()
		default:
			return out, err
		}
		out.Tasks = append(out.Tasks, task)
	}
	return out, nil
}

var errEnough = errors.New("enough dead letters")

// lettersFrom returns at most limit dead letters of tasks, the oldest first, beginning with the sequence number from;
// with a cause, only those with this error code.
func (c *Client) lettersFrom(
	ctx context.Context, tenant, cause string, from uint64, limit int,
) ([]schemas.DeadTask, error) {
	var letters []schemas.DeadTask
	err := c.readFrom(ctx, streamDead, deadSubject(tenant, "*"), from, func(m *nats.Msg) error {
		d, err := parseDeadLetter(tenant, m)
		if err != nil || d.TaskID == "" || cause != "" && d.Error.Code != cause {
			return err
		}
		if letters = append(letters, d); len(letters) >= limit {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return letters, err
}
