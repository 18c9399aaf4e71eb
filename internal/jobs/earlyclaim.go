package jobs

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// A worker with a free slot claims a task as soon as its message is published, and then creates the record. So
// Submit waits briefly for a claim, and creates the record only if none comes: that saves one of the four writes
// on the way to the result. On a busy fleet, where claims take longer, Submit stops waiting after a few misses
// and tries again at intervals.

const (
	claimGrace = 3 * time.Millisecond
	maxMisses  = 2  // misses in a row after which Submit does not wait
	retryEvery = 16 // after that, one submission in this many waits again
)

// earlyClaim waits for the claim of one task. The zero value does not wait.
type earlyClaim struct {
	c   *Client
	id  string
	sub *nats.Subscription // nil if it does not wait
}

// watchForClaim begins to watch for the claim of a task that is about to be published. The caller calls stop.
func (c *Client) watchForClaim(r *storedRecord) (earlyClaim, error) {
	n := c.misses.Load()
	if n >= maxMisses && n%retryEvery != 0 || c.opts.Producer {
		c.misses.CompareAndSwap(n, n+1)
		return earlyClaim{}, nil
	}
	sub, err := c.nc.SubscribeSync(notifySubject(r.Tenant, r.TaskID))
	return earlyClaim{c: c, id: r.TaskID, sub: sub}, err
}

// wait returns the record if a worker creates it within claimGrace.
func (e earlyClaim) wait(ctx context.Context) (storedRecord, bool) {
	if e.sub == nil {
		return storedRecord{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, claimGrace)
	defer cancel()
	msg, err := e.sub.NextMsgWithContext(ctx)
	if err != nil {
		e.c.misses.Add(1)
		return storedRecord{}, false
	}
	r, err := decodeRecord(e.id, 0, msg.Data)
	if err != nil {
		return storedRecord{}, false
	}
	e.c.misses.Store(0)
	return r, true
}

func (e earlyClaim) stop() {
	if e.sub != nil {
		unsubscribe(e.sub)
	}
}
