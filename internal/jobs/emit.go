package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

const (
	eventSource = "/codefleet" // of the events that the fleet emits

	deadError  = "Codefleet-Error"  // headers of a dead letter: JSON of a schemas.Error, percent-encoded
	deadTask   = "Codefleet-Task"   // its task's id, if it has one
	deadOrigin = "Codefleet-Origin" // the subject on which its event came
)

// reply publishes the result event of a task to the subject that its event asked for, if any. The
// result of a large task is named, not sent: dataref and result_ref say where it is.
func (c *Client) reply(ctx context.Context, to string, rec entry, result *schemas.Result) error {
	if to == "" {
		return nil
	}
	data, err := json.Marshal(result)
	if err != nil {
		return err
	}
	ev := event.New()
	ev.SetID(rec.TaskID + "." + strconv.Itoa(rec.Run))
	ev.SetSource(eventSource)
	ev.SetType(schemas.TypeResult)
	ev.SetSubject(rec.TaskID)
	ev.SetTime(rec.EndedAt)
	ev.SetExtension("tenant", rec.Tenant)
	if rec.Result != nil && rec.Result.ResultRef != "" && len(data) > inlineMax {
		if data, err = json.Marshal(rec.Result); err != nil {
			return err
		}
		ev.SetExtension("dataref", rec.Result.ResultRef)
	}
	if err := ev.SetData(event.ApplicationJSON, data); err != nil {
		return err
	}
	header, data, err := EncodeNATS(ev)
	if err != nil {
		return err
	}
	inject(ctx, header)
	return c.nc.PublishMsg(&nats.Msg{Subject: to, Header: header, Data: data})
}

// log publishes progress, without waiting for the server.
func (c *Client) log(tenant string, p schemas.Progress) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return c.nc.PublishMsg(&nats.Msg{
		Subject: logSubject(tenant, p.TaskID),
		Header: nats.Header{
			"ce-specversion":     {event.CloudEventsVersionV1},
			"ce-type":            {schemas.TypeProgress},
			"ce-source":          {eventSource},
			"ce-id":              {p.TaskID + "." + strconv.FormatInt(p.Time.UnixNano(), 36)},
			"ce-subject":         {p.TaskID},
			"ce-datacontenttype": {event.ApplicationJSON},
		},
		Data: data,
	})
}

func logSubject(tenant, id string) string { return "log." + tenant + "." + id }

// bury puts a message among the dead letters of its tenant, under key, with the reason.
func (c *Client) bury(ctx context.Context, l lane, key, task string, header nats.Header, data []byte, why *schemas.Error) error {
	reason, err := json.Marshal(why)
	if err != nil {
		return err
	}
	h := ownHeaders(header)
	h.Set(deadError, percentEncode(string(reason)))
	h.Set(deadOrigin, l.subject())
	if task != "" {
		h.Set(deadTask, task)
	}
	msg := &nats.Msg{Subject: "dlq." + l.tenant + "." + key, Header: h, Data: data}
	if _, err := c.js.PublishMsg(ctx, msg, jetstream.WithMsgID(key+"."+why.Code)); err != nil {
		return fmt.Errorf("dead letter %s: %w", key, err)
	}
	return nil
}

// DeadLetters returns the tenant's dead letters, newest first. limit 0 means 100.
func (c *Client) DeadLetters(ctx context.Context, tenant string, limit int) ([]schemas.DeadTask, error) {
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return nil, err
	}
	if limit <= 0 {
		limit = defaultList
	}
	var all []schemas.DeadTask
	err := c.latest(ctx, streamDead, "dlq."+tenant+".>", func(m *nats.Msg) error {
		d, err := readDead(tenant, m)
		all = append(all, d)
		return err
	}, func() bool { return len(all) >= limit }, func() { all = nil })
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	return newest(all, limit), nil
}

func readDead(tenant string, m *nats.Msg) (schemas.DeadTask, error) {
	seq, seqErr := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	at, timeErr := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	d := schemas.DeadTask{
		Seq: seq, Time: at, Tenant: tenant, Event: map[string]string{},
		TaskID: m.Header.Get(deadTask), Subject: m.Header.Get(deadOrigin),
	}
	errs := errors.Join(seqErr, timeErr, json.Unmarshal([]byte(percentDecode(m.Header.Get(deadError))), &d.Error))
	if ev, err := DecodeNATS(m.Header, m.Data); err == nil {
		maps.Copy(d.Event, map[string]string{"id": ev.ID(), "source": ev.Source(), "type": ev.Type()})
		for name := range ev.Extensions() {
			d.Event[name] = extension(ev, name)
		}
	}
	return d, errs
}
