package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/choria-io/asyncjobs"
	"github.com/nats-io/nats.go"
	"github.com/sirupsen/logrus"
)

// asyncjobsQueue is asyncjobs, which stores tasks and their states in JetStream. Its NATS server is the same program
// as codefleet's.
type asyncjobsQueue struct {
	server *process
	conn   *nats.Conn
	client *asyncjobs.Client
	stop   context.CancelFunc
	ended  <-chan error
}

func startAsyncjobs(ctx context.Context, dir string, run func(int)) (queue, error) {
	server, address, err := startNATS(ctx, "bare", dir)
	if err != nil {
		return nil, err
	}
	q := &asyncjobsQueue{server: server}
	if err := q.connect(ctx, address.URL, run); err != nil {
		return nil, errors.Join(err, server.close())
	}
	return q, nil
}

func (q *asyncjobsQueue) connect(ctx context.Context, url string, run func(int)) (err error) {
	if q.conn, err = nats.Connect(url, nats.UseOldRequestStyle()); err != nil {
		return err
	}
	silent := logrus.New()
	silent.SetOutput(io.Discard)
	q.client, err = asyncjobs.NewClient(asyncjobs.NatsConn(q.conn), asyncjobs.CustomLogger(logrus.NewEntry(silent)),
		asyncjobs.ClientConcurrency(slots), asyncjobs.WorkQueue(&asyncjobs.Queue{
			Name: "BENCH", MaxRunTime: time.Minute, MaxConcurrent: slots, MaxTries: 10,
		}))
	if err != nil {
		return err
	}
	router := asyncjobs.NewTaskRouter()
	err = router.HandleFunc("noop", func(_ context.Context, _ asyncjobs.Logger, t *asyncjobs.Task) (any, error) {
		task, err := parseTask(t.Payload)
		run(task)
		return "done", err
	})
	if err != nil {
		return err
	}
	accept, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- q.client.Run(accept, router) }()
	q.stop, q.ended = stop, ended
	return nil
}

func (q *asyncjobsQueue) submit(ctx context.Context, task int) error {
	t, err := asyncjobs.NewTask("noop", payload{task})
	if err != nil {
		return err
	}
	return q.client.EnqueueTask(ctx, t)
}

func (q *asyncjobsQueue) close() error {
	q.stop()
	err := <-q.ended
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	q.conn.Close()
	return errors.Join(err, q.server.close())
}
