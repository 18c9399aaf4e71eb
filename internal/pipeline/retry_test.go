package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/plugin"
	"github.com/codefleet/codefleet/schemas"
)

// A failed attempt is not committed if the task runs again: a later run would find the commit, and not execute the
// program.
func TestCommitsOnlyTheLastRun(t *testing.T) {
	noLog := slog.New(slog.DiscardHandler)
	srv, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{
		Dir: t.TempDir(), Log: noLog, MaxStoreBytes: 16 << 30,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	c, err := jobs.Connect(t.Context(), jobs.Options{
		Server:      jobs.Server{InProcess: srv},
		Credentials: jobs.Credentials{User: srv.Fleet().User, Password: srv.Fleet().Password},
		AckWait:     10 * time.Second, Log: noLog,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	var commits []bool
	w := jobs.NewWorker(c, jobs.WorkerOptions{
		Handler: func(_ context.Context, j *jobs.Job) (*schemas.Result, error) {
			failed := attempt{outcome: plugin.Result{Status: schemas.Failed}}
			commits = append(commits, steps{task: task{job: j}}.commits(failed))
			return &schemas.Result{Status: schemas.Failed, Error: &schemas.Error{Code: "exit", Message: "1"}}, nil
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, t.Context()) }()
	ev := event.New()
	ev.SetID("1")
	ev.SetSource("/test")
	ev.SetType(schemas.TypeTask)
	err = ev.SetData(event.ApplicationJSON, []byte(
		`{"code":"x","commit":"always","retry":{"on":["failed"],"attempts":3,"backoff_s":0.01}}`))
	if err != nil {
		t.Fatal(err)
	}
	rec, err := c.Submit(t.Context(), "acme", ev)
	if err == nil {
		rec, err = c.Wait(t.Context(), "acme", rec.TaskID)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	if err != nil || rec.Status != schemas.Failed {
		t.Fatalf("task = %s, %v, want failed", rec.Status, err)
	}
	if got, want := fmt.Sprint(commits), "[false false true]"; got != want {
		t.Errorf("runs commit: %s, want %s", got, want)
	}
}
