package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// Kind names the payload for River.
func (payload) Kind() string { return "noop" }

// noop is River's worker.
type noop struct {
	river.WorkerDefaults[payload]
	run func(int)
}

// Work runs a task.
func (w *noop) Work(_ context.Context, job *river.Job[payload]) error {
	w.run(job.Args.Task)
	return nil
}

// postgresQueue is River, with Postgres.
type postgresQueue struct {
	server *process
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

func (s servers) startRiver(ctx context.Context, dir string, run func(int)) (queue, error) {
	server, url, err := s.startPostgres(dir)
	if err != nil {
		return nil, err
	}
	q := &postgresQueue{server: server}
	if err := q.connect(ctx, url, run); err != nil {
		if q.pool != nil {
			q.pool.Close()
		}
		return nil, errors.Join(err, server.close())
	}
	return q, nil
}

func (q *postgresQueue) connect(ctx context.Context, url string, run func(int)) (err error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	config.MaxConns = producers + slots
	if q.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	if _, err := awaitServer(ctx, func() (struct{}, error) { return struct{}{}, q.pool.Ping(ctx) }); err != nil {
		return err
	}
	driver := riverpgxv5.New(q.pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &noop{run: run})
	q.client, err = river.NewClient(driver, &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}}, Workers: workers,
		FetchCooldown: time.Millisecond, // between two fetches; the default is 100 ms
		Logger:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return q.client.Start(ctx)
}

func (q *postgresQueue) submit(ctx context.Context, task int) error {
	_, err := q.client.Insert(ctx, payload{task}, nil)
	return err
}

func (q *postgresQueue) close() error {
	stop, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := q.client.Stop(stop)
	q.pool.Close()
	return errors.Join(err, q.server.close())
}
