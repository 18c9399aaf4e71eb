package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/schemas"
)

// storedRecord is a record as it is stored, with its revision, which the next write must name.
type storedRecord struct {
	schemas.Record
	DataHash     string `json:"data_hash,omitempty"`     // SHA-256 of the event's data, to recognise a reused key
	PartitionKey string `json:"partition_key,omitempty"` // the submitted event's key; the result event gets it, too

	rev uint64 // sequence in the stream
}

var (
	errStale     = errors.New("record was changed concurrently") // nothing was written
	errAmbiguous = errors.New("outcome of the write unknown")
	errEncode    = errors.New("record cannot be encoded")
)

const (
	inlineMax = 256 << 10 // bytes; larger event data and the results of larger records go to the object store
	swapTries = 10        // tries of a change; each retry follows a change by another process
)

// load reads a record from any replica, which is fast but may return a record that has just been replaced.
func (c *Client) load(ctx context.Context, tenant, id string) (storedRecord, error) {
	subject := recordSubject(tenant, id)
	msg, err := c.request(ctx, "$JS.API.DIRECT.GET."+streamRecords+"."+subject, nil)
	if err != nil {
		return storedRecord{}, fmt.Errorf("read record %s: %w", id, err)
	}
	if status := msg.Header.Get("Status"); status == "404" || status == "408" {
		return storedRecord{}, ErrUnknownTask
	} else if status != "" {
		return storedRecord{}, fmt.Errorf("read record %s: status %s %s", id, status, msg.Header.Get("Description"))
	}
	rev, err := strconv.ParseUint(msg.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return storedRecord{}, fmt.Errorf("read record %s: sequence: %w", id, err)
	}
	return decodeRecord(id, rev, msg.Data)
}

// loadLeader reads a record from the stream's leader, which knows every acknowledged write. Use it wherever
// acting on an outdated record would lose a task.
func (c *Client) loadLeader(ctx context.Context, tenant, id string) (storedRecord, error) {
	last, err := c.lastOfLeader(ctx, streamRecords, recordSubject(tenant, id))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return storedRecord{}, ErrUnknownTask
	}
	if err != nil {
		return storedRecord{}, fmt.Errorf("read record %s: %w", id, err)
	}
	return decodeRecord(id, last.Seq, last.Data)
}

// leaderMsg is a message that a stream's leader has returned.
type leaderMsg struct {
	Seq  uint64    `json:"seq"`
	Data []byte    `json:"data"`
	Time time.Time `json:"time"`
}

// lastOfLeader reads the last message with a subject from a stream's leader. The error is jetstream.ErrMsgNotFound if
// there is none.
func (c *Client) lastOfLeader(ctx context.Context, stream, subject string) (last leaderMsg, err error) {
	query, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return last, err
	}
	msg, err := c.request(ctx, "$JS.API.STREAM.MSG.GET."+stream, query)
	if err != nil {
		return last, err
	}
	var response struct {
		Error   *jetstream.APIError `json:"error"`
		Message leaderMsg           `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &response); err != nil {
		return last, err
	}
	if e := response.Error; e != nil {
		if e.ErrorCode == jetstream.JSErrCodeMessageNotFound {
			return last, jetstream.ErrMsgNotFound
		}
		return last, e
	}
	return response.Message, nil
}

// keyOfLeader reads a key from the leader of its bucket, because another replica may not have the latest value yet. The
// data is empty if the key was never stored, with the sequence 0, or was removed.
func (c *Client) keyOfLeader(ctx context.Context, bucket, key string) (leaderMsg, error) {
	last, err := c.lastOfLeader(ctx, "KV_"+bucket, "$KV."+bucket+"."+key)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		err = nil
	}
	return last, err
}

func decodeRecord(id string, rev uint64, data []byte) (storedRecord, error) {
	r := storedRecord{rev: rev}
	if err := json.Unmarshal(data, &r); err != nil {
		return storedRecord{}, fmt.Errorf("read record %s: %w", id, err)
	}
	return r, nil
}

// swap writes r if the stored record still has the revision r.rev, and sets r.rev to the new revision. Revision 0 means
// that no record exists yet. swap returns errStale if the record was changed since it was read, and errAmbiguous if it
// may or may not be written: read it to find out. Before it writes, swap withdraws the pending approvals of a task that
// has ended, clears what a task that does not run waits for, and moves a result that makes the record too large to the
// object store.
func (c *Client) swap(ctx context.Context, r *storedRecord) error {
	if r.Status.Terminal() {
		withdrawApprovals(&r.Record)
	}
	if r.Status != schemas.Running {
		r.WaitsFor = ""
	}
	data, err := c.encodeRecord(ctx, r)
	if err != nil {
		return fmt.Errorf("write record %s: %w", r.TaskID, err)
	}
	msg := nats.NewMsg(recordSubject(r.Tenant, r.TaskID))
	msg.Data = data
	msg.Header.Set(statusHeader, string(r.Status))
	if r.Status.Terminal() {
		msg.Header.Set(jetstream.MsgTTLHeader, ttl(c.opts.Storage.Retention))
	}
	ack, err := c.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(r.rev))
	switch _, refused := errors.AsType[*jetstream.APIError](err); {
	case err == nil:
		r.rev = ack.Sequence
		return nil
	case isWrongRevision(err):
		return errStale
	case refused || isUnstorable(err):
		return fmt.Errorf("write record %s: %w", r.TaskID, err)
	default:
		return fmt.Errorf("write record %s: %w: %w", r.TaskID, errAmbiguous, err)
	}
}

// ttl formats d for the server, which counts whole seconds.
func ttl(d time.Duration) string { return strconv.FormatInt(max(1, int64(d/time.Second)), 10) + "s" }

// isWrongRevision reports whether the server refused a write because it names an outdated revision.
func isWrongRevision(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// change reads a record, applies fn, and writes it if fn reports a change. If another process changed the record
// in between, change starts again, up to swapTries times. It returns the record before and after.
func (c *Client) change(
	ctx context.Context, tenant, id string, fn func(*storedRecord) (changed bool, err error),
) (before, after storedRecord, err error) {
	for try := range swapTries {
		if err = awaitReplication(ctx, try); err == nil {
			before, err = c.find(ctx, tenant, id)
		}
		if err != nil {
			return before, before, err
		}
		after = before
		changed, err := fn(&after)
		if err == nil && changed {
			err = c.swap(ctx, &after)
		}
		if errors.Is(err, errStale) || errors.Is(err, errAmbiguous) && ctx.Err() == nil {
			continue // read the record again
		}
		return before, after, err
	}
	return before, after, fmt.Errorf("change record %s: another process changed it first, %d times", id, swapTries)
}

// replicationPause is the pause before another try to change a record. Meanwhile, a cluster replicates the last change.
const replicationPause = 10 * time.Millisecond

// awaitReplication pauses before all tries but the first two. Tries are numbered from 0. While a cluster replicates a
// change of a record, it refuses the next one as outdated, but readers do not get the change yet.
func awaitReplication(ctx context.Context, try int) error {
	if try < 2 {
		return nil
	}
	return clock.Sleep(ctx, replicationPause)
}

// encodeRecord encodes a record. If the record is too large, it first moves the result to the object store.
func (c *Client) encodeRecord(ctx context.Context, r *storedRecord) ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errEncode, err)
	}
	if len(data) <= inlineMax || r.Result == nil {
		return data, nil
	}
	if r.Result.ResultRef == "" {
		if r.Result, err = c.spillResult(ctx, r); err != nil {
			return nil, err
		}
	}
	return json.Marshal(r)
}

// spillResult stores the whole result and returns what stays in the record.
func (c *Client) spillResult(ctx context.Context, r *storedRecord) (*schemas.Result, error) {
	name := r.Tenant + "/" + r.TaskID + "/result-" + strconv.Itoa(r.Run)
	whole, err := json.Marshal(r.Result)
	if err != nil {
		return nil, err
	}
	err = c.keepObject(ctx, r.Tenant, name, whole)
	if errors.Is(err, ErrStorageFull) {
		limit := "queue.payload_mb"
		if len(whole) > maxObject {
			limit = fmt.Sprintf("%d MiB", maxObject>>20)
		}
		return withoutRef(slim(r.Result, ""), "the whole result is larger than "+limit), nil
	}
	if err != nil {
		return nil, err
	}
	return slim(r.Result, objectRef(name)), nil
}

// whole returns the record. If its result was spilled, it reads the result back from the object store. If the object
// was removed, the record keeps the slim result.
func (c *Client) whole(ctx context.Context, r storedRecord) (schemas.Record, error) {
	if r.Result == nil || r.Result.ResultRef == "" {
		return r.Record, nil
	}
	ref := r.Result.ResultRef
	name, err := objectName(r.Tenant, ref)
	if err != nil {
		return r.Record, err
	}
	data, err := c.getObject(ctx, name)
	if objectMissing(err) {
		r.Result = withoutRef(r.Result, "later large results of the tenant took its place (queue.payload_mb)")
		return r.Record, nil
	}
	var result schemas.Result
	if err == nil {
		err = json.Unmarshal(data, &result)
	}
	if err != nil {
		return r.Record, fmt.Errorf("read result of task %s: %w", r.TaskID, err)
	}
	result.ResultRef = ref
	r.Result = &result
	return r.Record, nil
}

// Record returns the task's record with its whole result, or ErrUnknownTask.
func (c *Client) Record(ctx context.Context, tenant, id string) (schemas.Record, error) {
	r, err := c.find(ctx, tenant, id)
	if err != nil {
		return schemas.Record{}, err
	}
	return c.whole(ctx, r)
}

// find is like load, but in a cluster it also asks the leader before it returns ErrUnknownTask, unless the client is a
// Producer, which may not. tenant and id may be any text.
func (c *Client) find(ctx context.Context, tenant, id string) (storedRecord, error) {
	if schemas.CheckName("tenant", tenant) != nil || !names.IsTaskID(id) { // they become part of a subject
		return storedRecord{}, ErrUnknownTask
	}
	r, err := c.load(ctx, tenant, id)
	if errors.Is(err, ErrUnknownTask) && c.clustered() && !c.opts.Producer {
		r, err = c.loadLeader(ctx, tenant, id)
	}
	return r, err
}
