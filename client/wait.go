package client

import (
	"context"
	"time"
)

// SubmitFor submits a task and returns its record once the task has ended, or after d; over HTTP, after at most a
// minute. Another call with the same IdempotencyKey continues to wait for the same task.
func (c *Client) SubmitFor(ctx context.Context, s Submission, d time.Duration) (Record, error) {
	return c.conn.submit(ctx, c.withSource(s), wait{time: d})
}

// WaitFor returns the record of a task once the task has ended, or after d; over HTTP, after at most a minute. It may
// return earlier, before the task has ended, if the process that serves the request stops.
func (c *Client) WaitFor(ctx context.Context, id string, d time.Duration) (Record, error) {
	return c.conn.record(ctx, id, wait{time: d})
}
