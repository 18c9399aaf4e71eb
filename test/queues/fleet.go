package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

// fleet is codefleet's queue with a worker that has no sandbox.
type fleet struct {
	server *process
	client *jobs.Client
	stop   context.CancelFunc
	ended  <-chan error
}

func startFleet(ctx context.Context, dir string, run func(int)) (queue, error) {
	server, address, err := startNATS(ctx, "fleet", dir)
	if err != nil {
		return nil, err
	}
	client, err := jobs.Connect(ctx, jobs.Options{
		Server:      jobs.Server{URL: address.URL},
		Credentials: jobs.Credentials{User: address.User, Password: address.Password},
		Log:         slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = client.Provision(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, server.close())
	}
	w := jobs.NewWorker(client, jobs.WorkerOptions{
		Slots: slots, Handler: func(_ context.Context, j *jobs.Job) (*schemas.Result, error) {
			task, err := strconv.Atoi(j.Task.Code)
			if err != nil {
				return nil, jobs.Permanent(err)
			}
			run(task)
			return &schemas.Result{Status: schemas.Succeeded}, nil
		},
	})
	accept, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(accept, ctx) }()
	return &fleet{server, client, stop, ended}, nil
}

// submit does what package client does over NATS for a task without an idempotency key.
func (f *fleet) submit(ctx context.Context, task int) error {
	ev := event.New()
	ev.SetID(strconv.Itoa(task))
	ev.SetSource("codefleet/bench")
	ev.SetType(schemas.TypeTask)
	if err := ev.SetData(event.ApplicationJSON, fmt.Appendf(nil, `{"code":"%d"}`, task)); err != nil {
		return err
	}
	_, err := f.client.SubmitNew(ctx, "bench", ev)
	return err
}

func (f *fleet) close() error {
	f.stop()
	err := <-f.ended
	f.client.Close()
	return errors.Join(err, f.server.close())
}
