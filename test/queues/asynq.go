package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/hibiken/asynq"
)

// payload is the data of a task.
type payload struct {
	Task int `json:"task"`
}

func parseTask(data []byte) (int, error) {
	var p payload
	err := json.Unmarshal(data, &p)
	return p.Task, err
}

// redisQueue is Asynq, with Redis in append-only mode.
type redisQueue struct {
	server *process
	client *asynq.Client
	worker *asynq.Server
}

func (s servers) startAsynq(ctx context.Context, dir string, run func(int)) (queue, error) {
	server, addr, err := s.startRedis(dir)
	if err != nil {
		return nil, err
	}
	options := asynq.RedisClientOpt{Addr: addr}
	client := asynq.NewClient(options)
	if _, err := awaitServer(ctx, func() (struct{}, error) { return struct{}{}, client.Ping() }); err != nil {
		return nil, errors.Join(err, client.Close(), server.close())
	}
	worker := asynq.NewServer(options, asynq.Config{
		Concurrency: slots, LogLevel: asynq.FatalLevel,
		TaskCheckInterval: time.Millisecond, // how often an idle worker looks for tasks; the default is one second
	})
	err = worker.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		task, err := parseTask(t.Payload())
		run(task)
		return err
	}))
	if err != nil {
		return nil, errors.Join(err, client.Close(), server.close())
	}
	return &redisQueue{server, client, worker}, nil
}

func (q *redisQueue) submit(ctx context.Context, task int) error {
	data, err := json.Marshal(payload{task})
	if err != nil {
		return err
	}
	// The record of a completed task is kept, as in the other queues.
	_, err = q.client.EnqueueContext(ctx, asynq.NewTask("noop", data), asynq.Retention(time.Hour))
	return err
}

func (q *redisQueue) close() error {
	q.worker.Shutdown()
	return errors.Join(q.client.Close(), q.server.close())
}
