package jobs

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// A worker with a free slot claims a task so soon after it is published that the record which Submit
// would create is but a write in its way: one of four on the path to the result. So Submit gives the
// worker a moment, and creates the record only when nobody has claimed by then. When claims stay out,
// as with a fleet that is busy, it stops waiting for them, and tries again now and then.

const (
	claimGrace = 3 * time.Millisecond
	maxMisses  = 2  // in a row, after which Submit does not wait
	tryEvery   = 16 // submissions
)

// earlyClaim listens for the record of one task.
type earlyClaim struct {
	c   *Client
	id  string
	sub *nats.Subscription // nil: not listening
}

func (c *Client) listen(rec *entry) (earlyClaim, error) {
	n := c.misses.Load()
	if n >= maxMisses && n%tryEvery != 0 || c.opts.Producer {
		c.misses.CompareAndSwap(n, n+1)
		return earlyClaim{}, nil
	}
	sub, err := c.nc.SubscribeSync("notify." + rec.Tenant + "." + rec.TaskID)
	return earlyClaim{c: c, id: rec.TaskID, sub: sub}, err
}

// wait returns the record when somebody creates it within the moment of grace.
func (e earlyClaim) wait(ctx context.Context) (entry, bool) {
	if e.sub == nil {
		return entry{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, claimGrace)
	defer cancel()
	msg, err := e.sub.NextMsgWithContext(ctx)
	if err != nil {
		e.c.misses.Add(1)
		return entry{}, false
	}
	rec, err := decodeEntry(e.id, 0, msg.Data)
	if err != nil {
		return entry{}, false
	}
	e.c.misses.Store(0)
	return rec, true
}

func (e earlyClaim) stop() {
	if e.sub != nil {
		_ = e.sub.Unsubscribe() // fails on a closed connection only, where it is moot
	}
}
