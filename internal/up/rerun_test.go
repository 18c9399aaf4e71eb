package up_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/s3"
)

// TestRerunAfterGarbageCollection runs a workflow again from its second step after garbage collection has removed all
// versions that it may remove: the new run has the files with which the step began.
func TestRerunAfterGarbageCollection(t *testing.T) {
	f, c, stop := startFleet(t, tracetest.NewSpanRecorder(), t.Output())
	defer stop()
	const definition = `{"name": "w", "steps": [
		{"id": "write", "code": "open('n.txt', 'w').write('first')"},
		{"id": "read", "code": "result = open('n.txt').read()\nwith open('n.txt', 'w') as f: f.write('second')"}],
		"outputs": {"n": {"value": "${ steps.read.result }"}}}`
	run, err := c.RunWorkflow(t.Context(), client.WorkflowRequest{Workflow: json.RawMessage(definition)})
	if err == nil {
		run, err = c.WaitWorkflow(t.Context(), run.RunID, nil)
	}
	if err != nil || string(run.Outputs) != `{"n":"first"}` {
		t.Fatalf("run = %s with %s, %v, want first", run.Status, run.Outputs, err)
	}
	for i := range 3 {
		code := fmt.Sprintf("open('n.txt', 'w').write('later %d')", i)
		rec, err := c.Run(t.Context(), client.Submission{Task: client.Task{Code: code}})
		if err != nil || rec.Status != client.Succeeded {
			t.Fatalf("task = %s, %v", rec.Status, err)
		}
	}
	at := f.File.S3
	bucket, err := s3.Open(s3.Options{
		Endpoint: at.Endpoint, Bucket: at.Bucket, AccessKey: at.AccessKey, SecretKey: at.SecretKey,
	})
	if err != nil {
		t.Fatal(err)
	}
	repo := state.New(bucket, state.Options{}).Repo()
	expired := maintenance.GCOptions{Grace: 1, Retention: maintenance.Retention{Newest: 1, All: 1, Daily: 1}}
	for range 3 { // a pass removes what the previous one has marked
		if _, err := maintenance.CollectGarbage(t.Context(), repo, f.File.Tenant, expired); err != nil {
			t.Fatal(err)
		}
	}
	ref := state.Ref{Tenant: f.File.Tenant, Workspace: "main"}
	if _, err := history.Fork(t.Context(), repo, ref, 3, "gone", ""); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("fork of a version with which no step began = %v, want %v", err, state.ErrNotFound)
	}
	again, err := c.RerunWorkflow(t.Context(), run.RunID, client.WorkflowRerun{From: "read"})
	if err == nil {
		again, err = c.WaitWorkflow(t.Context(), again.RunID, nil)
	}
	if err != nil || string(again.Outputs) != `{"n":"first"}` || !again.Steps[0].Kept {
		t.Errorf("the second run = %s with %s, %v, want first, and step write kept", again.Status, again.Outputs, err)
	}
	if until := run.CreatedAt.Add(30 * 24 * time.Hour); !retained(t, bucket, ref, 1, until) {
		t.Errorf("generation 1 is not retained until %s", until)
	}
}

// retained reports whether a generation is kept until a time.
func retained(t *testing.T, bucket *s3.Objects, ref state.Ref, generation int64, until time.Time) bool {
	t.Helper()
	prefix := ref.RetainedPrefix(generation)
	for o, err := range bucket.List(t.Context(), prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		var at int64
		if _, err := fmt.Sscan(o.Key[len(prefix):], &at); err == nil && time.Unix(at, 0).After(until) {
			return true
		}
	}
	return false
}

// TestRerunOfRerun runs a workflow again from a question, and the second run again: each begins with the files that the
// workspace had before the first one.
func TestRerunOfRerun(t *testing.T) {
	_, c, stop := startFleet(t, tracetest.NewSpanRecorder(), t.Output())
	defer stop()
	for i := range 2 { // so that the numbers of the fork's versions are lower
		code := fmt.Sprintf("open('other.txt', 'w').write('%d')", i)
		if rec, err := c.Run(t.Context(), client.Submission{Task: client.Task{Code: code}}); err != nil ||
			rec.Status != client.Succeeded {
			t.Fatalf("task = %s, %v", rec.Status, err)
		}
	}
	const definition = `{"name": "w", "steps": [
		{"id": "ask", "ask": {"form": {"type": "object", "properties": {"ok": {"type": "boolean"}}}}},
		{"id": "write", "code": "with open('n.txt', 'a') as f: f.write('line.')\nresult = open('n.txt').read()"}],
		"outputs": {"n": {"value": "${ steps.write.result }"}}}`
	run, err := c.RunWorkflow(t.Context(), client.WorkflowRequest{Workflow: json.RawMessage(definition)})
	for i := range 3 {
		if err == nil && i > 0 {
			in := client.WorkflowRerun{From: "ask", Key: "k"}
			old := run.RunID
			run, err = c.RerunWorkflow(t.Context(), old, in)
			if again, err := c.RerunWorkflow(t.Context(), old, in); err != nil || again.RunID != run.RunID {
				t.Errorf("rerun with the same key = %s, %v, want %s", again.RunID, err, run.RunID)
			}
		}
		if err == nil {
			answer := client.WorkflowAnswer{Step: "ask", Values: json.RawMessage(`{"ok": true}`)}
			run, err = c.AnswerWorkflow(t.Context(), run.RunID, answer)
		}
		if err == nil {
			run, err = c.WaitWorkflow(t.Context(), run.RunID, nil)
		}
		if err != nil || string(run.Outputs) != `{"n":"line."}` {
			t.Fatalf("run %d = %s with %s, %v, want one line", i, run.Status, run.Outputs, err)
		}
	}
}
