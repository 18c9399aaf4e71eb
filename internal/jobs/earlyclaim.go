package jobs

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// A worker with a free slot claims a task so soon after its message is published that it creates the record
// itself; the record that Submit would create is then one of four writes on the way to the result, and not
// needed. So Submit waits for a claim for a moment, and creates the record only if none came. On a busy fleet,
// where claims take longer, it stops waiting after a few misses and waits again now and then.

const (
	claimGrace = 3 * time.Millisecond
	maxMisses  = 2  // in a row, after which Submit does not wait
	retryEvery = 16 // submissions
)

// earlyClaim waits for the record of one task. The zero value does not wait.
type earlyClaim struct {
	c   *Client
	id  string
	sub *nats.Subscription // nil: it does not wait
}

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
