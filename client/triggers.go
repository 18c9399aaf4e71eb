package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/codefleet/codefleet/schemas"
)

// Types for triggers and their events. Package schemas documents their fields.
type (
	// TriggerSpec is what a trigger does: it submits its task for each event that it matches.
	TriggerSpec = schemas.TriggerSpec
	// Trigger is a stored trigger.
	Trigger = schemas.Trigger
	// TriggerTest is what a trigger would do with an event.
	TriggerTest = schemas.TriggerTest
	// AcceptedEvent is an event that was stored for the tenant's triggers.
	AcceptedEvent = schemas.AcceptedEvent
)

// AddTrigger stores a trigger that submits task for each event that t matches, with the event's data as inputs. t.Task
// is ignored. The task must not set Inputs, IdempotencyKey, Source, ExpiresAt or NotBefore. Adding the same trigger
// again changes nothing; if a different trigger has the name, the error has the code "automation_exists". Over NATS,
// all methods for triggers fail with the code "http_only".
func (c *Client) AddTrigger(ctx context.Context, t TriggerSpec, task Submission) (Trigger, error) {
	var err error
	if t.Task, err = json.Marshal(task); err != nil {
		return Trigger{}, fmt.Errorf("encode task: %w", err)
	}
	return sendJSON[Trigger](ctx, c, http.MethodPost, t, "triggers")
}

// Triggers returns the tenant's triggers, sorted by name.
func (c *Client) Triggers(ctx context.Context) ([]Trigger, error) {
	return get[[]Trigger](ctx, c, url.Values{}, "triggers")
}

// Trigger returns a trigger. If it does not exist, the error has the code "unknown_automation".
func (c *Client) Trigger(ctx context.Context, name string) (Trigger, error) {
	return get[Trigger](ctx, c, url.Values{}, "triggers", name)
}

// RemoveTrigger deletes a trigger. Tasks that the trigger has submitted continue. The request is not retried.
func (c *Client) RemoveTrigger(ctx context.Context, name string) error {
	return c.remove(ctx, "triggers", name)
}

// TestTrigger returns what a trigger would do with a CloudEvent in JSON. Nothing is submitted.
func (c *Client) TestTrigger(ctx context.Context, name string, event []byte) (TriggerTest, error) {
	return sendRequest[TriggerTest](ctx, c, httpRequest{
		method: http.MethodPost, header: cloudEventHeader(), body: event,
	}, "triggers", name, "test")
}

// SendEvent stores a CloudEvent for the tenant's triggers. event is its JSON, and is not the event of a task. The call
// may be repeated: if an event with the same source and id is sent again, a trigger submits no second task.
func (c *Client) SendEvent(ctx context.Context, event []byte) (AcceptedEvent, error) {
	return sendRequest[AcceptedEvent](ctx, c, httpRequest{
		method: http.MethodPost, header: cloudEventHeader(), body: event,
	}, "events")
}

func cloudEventHeader() http.Header {
	return http.Header{"Content-Type": {"application/cloudevents+json"}}
}
