package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

const (
	reread    = 2 * time.Second        // how often a waiter looks itself: a notification may be lost
	logSettle = 300 * time.Millisecond // for the last progress of an ended task, when its end mark is missing
)

// Wait returns the record once it is terminal. When ctx ends first it returns the latest record
// seen and ctx's error.
func (c *Client) Wait(ctx context.Context, tenant, id string) (schemas.Record, error) {
	return c.WaitUntil(ctx, tenant, id, func(schemas.Record) bool { return false })
}

// WaitUntil is Wait that returns sooner, too: with a record that done says yes to. done is quick, and
// sees records of earlier moments first.
func (c *Client) WaitUntil(ctx context.Context, tenant, id string, done func(schemas.Record) bool) (schemas.Record, error) {
	e, err := c.wait(ctx, tenant, id, done)
	if err != nil {
		return e.Record, err
	}
	return c.whole(ctx, e)
}

// wait subscribes first and reads after: no transition falls in between.
func (c *Client) wait(ctx context.Context, tenant, id string, done func(schemas.Record) bool) (entry, error) {
	if schemas.CheckName("tenant", tenant) != nil || !isTaskID(id) {
		return entry{}, ErrUnknownTask
	}
	sub, err := c.nc.SubscribeSync("notify." + tenant + "." + id)
	if err != nil {
		return entry{}, fmt.Errorf("wait for task %s: %w", id, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails on a closed connection only, where it is moot
	over := func(e entry) bool { return e.Status.Terminal() || e.TaskID != "" && done(e.Record) }
	var last entry
	for {
		e, err := c.find(ctx, tenant, id)
		switch {
		case err == nil:
			last = e
		case ctx.Err() != nil:
			return last, context.Cause(ctx)
		case errors.Is(err, ErrUnknownTask) && !c.opts.Producer:
			return last, err
		case errors.Is(err, nats.ErrConnectionClosed):
			return last, err
		}
		if over(last) {
			return last, nil
		}
		if last, err = next(ctx, sub, id, last, over); err != nil || over(last) {
			return last, err
		}
	}
}

// next waits for a record that is over among the notifications, until it is time to read again.
func next(ctx context.Context, sub *nats.Subscription, id string, last entry, over func(entry) bool) (entry, error) {
	until, cancel := context.WithTimeout(ctx, reread)
	defer cancel()
	for {
		msg, err := sub.NextMsgWithContext(until)
		switch {
		case ctx.Err() != nil:
			return last, context.Cause(ctx)
		case until.Err() != nil:
			return last, nil
		case err != nil:
			return last, err
		}
		e, err := decodeEntry(id, 0, msg.Data)
		if err != nil {
			return last, nil // a delete marker: read
		}
		if last = e; over(last) {
			return last, nil
		}
	}
}

// Watch calls fn with the task's progress and output in order, starting after sequence from (0: from
// the start of what is kept), until the task has ended and everything is delivered, fn fails, or ctx
// ends. Progress is not durable: pieces may be missing, never repeated. The last one's Stage is the
// terminal status, if the task made any progress at all. ErrUnknownTask.
func (c *Client) Watch(ctx context.Context, tenant, id string, from uint64, fn func(seq uint64, p schemas.Progress) error) error {
	if _, err := c.find(ctx, tenant, id); err != nil {
		return err
	}
	config := jetstream.OrderedConsumerConfig{FilterSubjects: []string{logSubject(tenant, id)}, DeliverPolicy: jetstream.DeliverAllPolicy}
	if from > 0 {
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, from+1
	}
	consumer, err := c.js.OrderedConsumer(ctx, streamLogs, config)
	if err != nil {
		return fmt.Errorf("watch task %s: %w", id, err)
	}
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
	defer func() {
		cancel()
		consuming.Stop()
		<-consuming.Closed()
	}()
	ended := make(chan error, 1)
	waiting := make(chan struct{})
	go func() { // ends with ctx, waited for below
		defer close(waiting)
		_, err := c.wait(ctx, tenant, id, func(schemas.Record) bool { return false })
		ended <- err
	}()
	defer func() { cancel(); <-waiting }()
	return follow(ctx, arrived, ended, fn)
}

// follow hands on what arrives until the end mark, or until nothing more comes after the task's end.
func follow(ctx context.Context, arrived <-chan jetstream.Msg, ended <-chan error, fn func(uint64, schemas.Progress) error) error {
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
				continue // not ours
			}
			if err := fn(meta.Sequence.Stream, p); err != nil {
				return err
			}
			if p.Stream == "" && schemas.Status(p.Stage).Terminal() {
				return nil
			}
			if quiet != nil {
				quiet = time.After(logSettle)
			}
		case err := <-ended:
			if err != nil {
				return err
			}
			quiet = time.After(logSettle)
		case <-quiet:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
