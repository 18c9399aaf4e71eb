package jobs

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/schemas"
)

const eventSource = "/codefleet" // source of the events that the fleet publishes

// reply publishes a task's result event to the subject that the submitted event requested, if any. Instead of a large
// result, it publishes what stays in the record; dataref and result_ref refer to the whole result in NATS's object
// store, if it is kept there.
func (c *Client) reply(ctx context.Context, to string, rec storedRecord, result *schemas.Result) error {
	if to == "" {
		return nil
	}
	data, err := json.Marshal(result)
	if err != nil {
		return err
	}
	ref := ""
	if rec.Result != nil && len(data) > inlineMax {
		result, ref = rec.Result, rec.Result.ResultRef
	}
	ev, err := resultEvent(rec, result)
	if err != nil {
		return err
	}
	if ref != "" {
		ev.SetExtension("dataref", ref)
	}
	header, data, err := encodeNATS(ev)
	if err != nil {
		return err
	}
	inject(ctx, header)
	return c.nc.PublishMsg(&nats.Msg{Subject: to, Header: header, Data: data})
}

// publishProgress publishes progress, without waiting for the server.
func (c *Client) publishProgress(tenant string, p schemas.Progress) error {
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
