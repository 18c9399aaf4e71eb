package automation

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/codefleet/codefleet/schemas"
)

// told returns an event of the type told.
func told(t *testing.T, data string) *incoming {
	t.Helper()
	ev := event.New()
	ev.SetID("1")
	ev.SetSource("/test")
	ev.SetType("told")
	err := ev.SetData(event.ApplicationJSON, json.RawMessage(data))
	e, depthErr := newIncoming(ev)
	if err := errors.Join(err, depthErr); err != nil {
		t.Fatal(err)
	}
	return e
}

// A filter that is interrupted is an error, so that the event is delivered again.
func TestInterruptedFilter(t *testing.T) {
	m, err := newMatcher(schemas.TriggerSpec{Type: "told", Filter: "data.n == 1"})
	if err != nil {
		t.Fatal(err)
	}
	e := told(t, `{"n":1}`)
	ended, end := context.WithCancel(t.Context())
	end()
	if found, err := m.matches(ended, e); !errors.Is(err, context.Canceled) {
		t.Errorf("matches with a cancelled context = %+v, %v, want the error", found, err)
	}
	if found, err := m.matches(t.Context(), e); err != nil || found != (match{}) {
		t.Errorf("matches = %+v, %v, want that it matches", found, err)
	}
}

// A filter that cannot be evaluated rejects the event, and the automation says why.
func TestFilterThatFails(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	trigger := schemas.TriggerSpec{
		Name: "t", Type: "told", Filter: "data.none == 1", Task: json.RawMessage(`{"code":"x"}`),
	}
	if _, err := w.AddTrigger(t.Context(), "acme", trigger); err != nil {
		t.Fatal(err)
	}
	hook := schemas.WebhookSpec{
		Name: "w", Type: "told", Filter: "data.none == 1", URL: "https://example.com", NoHandshake: true,
	}
	if _, err := w.AddWebhook(t.Context(), "acme", hook); err != nil {
		t.Fatal(err)
	}
	c := newCache()
	ctx, stop := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() { watched <- w.store.Watch(ctx, c.learn) }()
	if err := w.dispatch(t.Context(), w.store, c, "acme", told(t, `{"n":1}`)); err != nil {
		t.Errorf("dispatch = %v, want nil", err)
	}
	stop()
	<-watched
	const want = "no such key: none"
	if doc, err := w.Trigger(t.Context(), "acme", "t"); err != nil || !strings.Contains(doc.LastError, want) {
		t.Errorf("last_error of the trigger = %q, %v, want %q", doc.LastError, err, want)
	}
	if list, err := w.Webhooks(t.Context(), "acme"); err != nil || !strings.Contains(list[0].LastError, want) {
		t.Errorf("webhooks = %+v, %v, want the last_error %q", list, err, want)
	}
}
