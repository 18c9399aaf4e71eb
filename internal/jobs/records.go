package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

// entry is a record as it is stored, with its revision: the stream sequence that the next write must
// name.
type entry struct {
	schemas.Record
	DataHash string `json:"data_hash,omitempty"` // SHA-256 of the event's data: is it the same event?

	rev uint64
}

var (
	errStale     = errors.New("record was changed by another") // the write did not happen
	errAmbiguous = errors.New("outcome of the write unknown")
)

const inlineMax = 256 << 10 // bytes of event data or record above which they go to the object store

// load reads a record from any replica: cheap, and on a cluster possibly a moment old.
func (c *Client) load(ctx context.Context, tenant, id string) (entry, error) {
	subject := recordSubject(tenant, id)
	msg, err := c.request(ctx, "$JS.API.DIRECT.GET."+streamRecords+"."+subject, nil)
	if err != nil {
		return entry{}, fmt.Errorf("read record %s: %w", id, err)
	}
	if status := msg.Header.Get("Status"); status == "404" || status == "408" {
		return entry{}, ErrUnknownTask
	} else if status != "" {
		return entry{}, fmt.Errorf("read record %s: server says %s %s", id, status, msg.Header.Get("Description"))
	}
	rev, err := strconv.ParseUint(msg.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return entry{}, fmt.Errorf("read record %s: sequence: %w", id, err)
	}
	return decodeEntry(id, rev, msg.Data)
}

// loadLeader reads a record where writes are decided: what it returns is not older than any write
// that was acknowledged before. Needed wherever acting on an old record would lose a task.
func (c *Client) loadLeader(ctx context.Context, tenant, id string) (entry, error) {
	query, err := json.Marshal(map[string]string{"last_by_subj": recordSubject(tenant, id)})
	if err != nil {
		return entry{}, err
	}
	msg, err := c.request(ctx, "$JS.API.STREAM.MSG.GET."+streamRecords, query)
	if err != nil {
		return entry{}, fmt.Errorf("read record %s: %w", id, err)
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Seq  uint64 `json:"seq"`
			Data []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return entry{}, fmt.Errorf("read record %s: %w", id, err)
	}
	if e := answer.Error; e != nil {
		if e.ErrorCode == jetstream.JSErrCodeMessageNotFound {
			return entry{}, ErrUnknownTask
		}
		return entry{}, fmt.Errorf("read record %s: %w", id, e)
	}
	return decodeEntry(id, answer.Message.Seq, answer.Message.Data)
}

func decodeEntry(id string, rev uint64, data []byte) (entry, error) {
	e := entry{rev: rev}
	if err := json.Unmarshal(data, &e); err != nil {
		return entry{}, fmt.Errorf("read record %s: %w", id, err)
	}
	return e, nil
}

// request asks the server something, within requestTimeout.
func (c *Client) request(ctx context.Context, subject string, data []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.nc.RequestWithContext(ctx, subject, data)
}

// swap writes e in the place of the revision it was read from (0: of nothing) and sets its new one.
// errStale: somebody else was first. errAmbiguous: it may or may not be written; read and see.
// A result that makes the record too large is moved to the object store first.
func (c *Client) swap(ctx context.Context, e *entry) error {
	if e.Status.Terminal() {
		e.withdraw()
	}
	if e.Status != schemas.Running {
		e.WaitsFor = ""
	}
	data, err := c.encodeEntry(ctx, e)
	if err != nil {
		return fmt.Errorf("write record %s: %w", e.TaskID, err)
	}
	msg := nats.NewMsg(recordSubject(e.Tenant, e.TaskID))
	msg.Data = data
	if e.Status.Terminal() {
		msg.Header.Set(jetstream.MsgTTLHeader, strconv.FormatInt(max(1, int64(c.opts.Storage.Retention/time.Second)), 10)+"s")
	}
	ack, err := c.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(e.rev))
	if err == nil {
		e.rev = ack.Sequence
		return nil
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		if c := api.ErrorCode; c == jetstream.JSErrCodeStreamWrongLastSequence || c == jetstream.JSErrCodeStreamWrongLastSequenceConstant {
			return errStale
		}
		return fmt.Errorf("write record %s: %w", e.TaskID, err)
	}
	return fmt.Errorf("write record %s: %w: %w", e.TaskID, errAmbiguous, err)
}

func (c *Client) encodeEntry(ctx context.Context, e *entry) ([]byte, error) {
	data, err := json.Marshal(e)
	if err != nil || len(data) <= inlineMax || e.Result == nil {
		return data, err
	}
	if e.Result.ResultRef == "" {
		if e.Result, err = c.spillResult(ctx, e); err != nil {
			return nil, err
		}
	}
	return json.Marshal(e)
}

// spillResult stores the whole result and returns what stays in the record: everything but the
// parts without a bound.
func (c *Client) spillResult(ctx context.Context, e *entry) (*schemas.Result, error) {
	name := e.Tenant + "/" + e.TaskID + "/result-" + strconv.Itoa(e.Run)
	whole, err := json.Marshal(e.Result)
	if err != nil {
		return nil, err
	}
	if err := c.putObject(ctx, name, whole); err != nil {
		return nil, err
	}
	return slim(e.Result, objectRef(name)), nil
}

// slim returns a copy of r without its large parts; they are at ref.
func slim(r *schemas.Result, ref string) *schemas.Result {
	s := *r
	s.ResultRef = ref
	s.Result, s.Output, s.Stderr, s.Code = nil, "", "", ""
	s.Guardrails, s.Egress, s.Artifacts = nil, nil, []schemas.Artifact{}
	s.Tools.Calls = []schemas.ToolCall{}
	s.Workspace.Changed, s.Workspace.Conflicts = []string{}, []string{}
	if s.Error != nil {
		e := *s.Error
		e.Message, e.Cause, e.Hint = head(e.Message), head(e.Cause), head(e.Hint)
		s.Error = &e
	}
	return &s
}

func head(s string) string {
	const most = 1000
	if len(s) <= most {
		return s
	}
	return string(bytes.ToValidUTF8([]byte(s[:most]), nil)) + "…"
}

// whole returns the record with its result brought back from the object store, if it is there.
func (c *Client) whole(ctx context.Context, e entry) (schemas.Record, error) {
	if e.Result == nil || e.Result.ResultRef == "" {
		return e.Record, nil
	}
	name, err := objectName(e.Tenant, e.Result.ResultRef)
	if err != nil {
		return e.Record, err
	}
	data, err := c.getObject(ctx, name)
	if err != nil {
		return e.Record, fmt.Errorf("read result of task %s: %w", e.TaskID, err)
	}
	ref := e.Result.ResultRef
	var r schemas.Result
	if err := json.Unmarshal(data, &r); err != nil {
		return e.Record, fmt.Errorf("read result of task %s: %w", e.TaskID, err)
	}
	r.ResultRef = ref
	e.Result = &r
	return e.Record, nil
}

// Record returns the task's record, its result made whole. ErrUnknownTask when there is none.
func (c *Client) Record(ctx context.Context, tenant, id string) (schemas.Record, error) {
	e, err := c.find(ctx, tenant, id)
	if err != nil {
		return schemas.Record{}, err
	}
	return c.whole(ctx, e)
}

// find is load that does not take a replica's word for it that there is no record.
func (c *Client) find(ctx context.Context, tenant, id string) (entry, error) {
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return entry{}, ErrUnknownTask
	}
	if !isTaskID(id) { // it becomes part of a subject
		return entry{}, ErrUnknownTask
	}
	e, err := c.load(ctx, tenant, id)
	if errors.Is(err, ErrUnknownTask) && c.opts.Storage.Replicas > 1 && !c.opts.Producer {
		e, err = c.loadLeader(ctx, tenant, id)
	}
	return e, err
}
