package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

// lastProgress is how long Watch waits for progress after the task's end, unless the last piece arrives first.
const lastProgress = 300 * time.Millisecond

// Watch calls fn, in order, with the pieces of the task's progress and output that follow the sequence number from; 0
// starts with the oldest piece that is kept. It returns nil when the task has ended and all progress was delivered, or
// fn's error, ErrUnknownTask, or the cause of ctx's end. Progress is not durable: pieces may be missing, but none is
// repeated. If the run that ended the task had any progress, the last piece has the terminal status as its Stage.
// Watch calls began once the queue delivers, before the first call of fn; nil is allowed.
func (c *Client) Watch(
	ctx context.Context, tenant, id string, from uint64, began func(), fn func(seq uint64, p schemas.Progress) error,
) error {
	if _, err := c.find(ctx, tenant, id); err != nil {
		return err
	}
	config := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{logSubject(tenant, id)}, DeliverPolicy: jetstream.DeliverAllPolicy,
		InactiveThreshold: watchIdle,
	}
	if from > 0 {
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, from+1
	}
	consumer, err := c.js.OrderedConsumer(ctx, streamLogs, config)
	if err != nil {
		return fmt.Errorf("watch task %s: %w", id, err)
	}
	defer c.removeWatch(ctx, consumer)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	arrived := make(chan jetstream.Msg)
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		select {
		case arrived <- m:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return fmt.Errorf("watch task %s: %w", id, err)
	}
	if began != nil {
		began()
	}
	defer func() {
		cancel()
		consuming.Stop()
		<-consuming.Closed()
	}()
	ended := make(chan error, 1)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		_, err := c.wait(ctx, tenant, id, func(schemas.Record) bool { return false })
		ended <- err
	})
	defer func() { cancel(); waiting.Wait() }()
	return follow(ctx, arrived, ended, fn)
}

// watchIdle is the time after which the server removes the consumer of a process that was lost.
const watchIdle = 10 * time.Second

// removeWatch removes the consumer of Watch. The client library would leave that to the server, which keeps an idle
// consumer for watchIdle, and permits a thousand consumers of the stream.
func (c *Client) removeWatch(ctx context.Context, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryTimeout)
	defer cancel()
	info := consumer.CachedInfo()
	if info == nil {
		return
	}
	if err := c.js.DeleteConsumer(ctx, streamLogs, info.Name); err != nil {
		c.opts.Log.DebugContext(ctx, "consumer of a watch not removed", "error", err)
	}
}

// follow calls fn until the last piece of progress, or until none came for lastProgress after the task's end.
func follow(
	ctx context.Context, arrived <-chan jetstream.Msg, ended <-chan error, fn func(uint64, schemas.Progress) error,
) error {
	var quiet <-chan time.Time
	for {
		select {
		case m := <-arrived:
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			var p schemas.Progress
			if err := json.Unmarshal(m.Data(), &p); err != nil {
				continue // a foreign message
			}
			if err := fn(meta.Sequence.Stream, p); err != nil {
				return err
			}
			if p.Stream == "" && schemas.Status(p.Stage).Terminal() {
				return nil
			}
			if quiet != nil {
				quiet = time.After(lastProgress)
			}
		case err := <-ended:
			if err != nil {
				return err
			}
			quiet = time.After(lastProgress)
		case <-quiet:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
