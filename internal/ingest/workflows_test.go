package ingest_test

import (
	"testing"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// TestForgedSteps sends events that claim to be a step of a workflow, or what a step has emitted. They are refused,
// because the task of such an event would count as the end of the step.
func TestForgedSteps(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	const source = `"source":"/codefleet/workflows/a2wntt52fwmbq3ezlg6zelfsfu/0"`
	cloudEvent := map[string]string{"Content-Type": "application/cloudevents+json"}
	for _, body := range []string{
		`{"specversion":"1.0","id":"pay/-1/1","type":"codefleet.task.v1",` + source + `,"data":{"code":"result = 1"}}`,
		`{"specversion":"1.0","id":"pay/-1/1","type":"told",` + source + `,"data":{"n":1}}`,
	} {
		var e apierror.Error
		wantStatus(t, f, 400, &e, "POST", "/v1/events", cloudEvent, body)
		if e.Code != "bad_event" || e.Path != "/source" {
			t.Errorf("%s is refused with %+v, want bad_event at /source", body, e)
		}
	}
}
