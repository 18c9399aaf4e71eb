package broker

import (
	"context"
	"errors"
	"sync"
)

// auditQueue writes audit records in the background.
type auditQueue struct {
	slots chan struct{} // holds one value per pending write
	mu    sync.Mutex
	last  chan struct{} // closed when all writes so far are done; nil before the first
	err   error
}

// maxPendingAudits bounds the pending writes. At the limit, enqueue blocks.
const maxPendingAudits = 16

func newAuditQueue() *auditQueue { return &auditQueue{slots: make(chan struct{}, maxPendingAudits)} }

// enqueue calls write in the background.
func (q *auditQueue) enqueue(write func() error) {
	q.slots <- struct{}{}
	q.mu.Lock()
	before, done := q.last, make(chan struct{})
	q.last = done
	q.mu.Unlock()
	go func() { // ends at most writeTimeout after the context that write uses; Execution.Close waits for it
		err := write()
		if before != nil {
			<-before
		}
		q.mu.Lock()
		q.err = errors.Join(q.err, err)
		q.mu.Unlock()
		close(done)
		<-q.slots
	}()
}

// failure returns the errors of the writes so far.
func (q *auditQueue) failure() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// wait waits for all writes and returns their errors.
func (q *auditQueue) wait(ctx context.Context) error {
	q.mu.Lock()
	last := q.last
	q.mu.Unlock()
	if last != nil {
		select {
		case <-last:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return q.failure()
}
