package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/internal/errcode"
)

const (
	defaultConcurrency = 16
	toolDrainTime      = 10 * time.Second // time limit for running calls when a process stops
	maxWait            = time.Hour        // time limit of a call, whatever its caller says
)

// ToolService describes the tools that a process serves.
type ToolService struct {
	Tenant, Instance string // Instance is one token of a subject, unique to the process
	Tools            []ToolName
	Offer            []byte // what is published about the tools; at most MaxToolOffer
	Concurrency      int    // calls at once; default 16
	// Handle returns the response to a call. ctx ends when the caller no longer waits.
	Handle func(ctx context.Context, name ToolName, data []byte) []byte
}

// ServeTools serves tools until stop is called. stop waits for running calls, and cancels them after ten
// seconds. Processes that serve the same tool share its calls.
func (c *Client) ServeTools(s ToolService) (stop func(), err error) {
	if len(s.Offer) > MaxToolOffer {
		r := refuse(errcode.TooLarge, "", "the definitions of the tools are %d bytes; the limit is %d",
			len(s.Offer), MaxToolOffer)
		r.Hint = "register them in smaller groups"
		return nil, r
	}
	s.Concurrency = cmp.Or(s.Concurrency, defaultConcurrency)
	ctx, cancel := context.WithCancel(context.Background())
	t := &toolServer{
		ToolService: s, c: c, ctx: ctx,
		semaphore: make(chan struct{}, s.Concurrency), offerNow: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
	if err := t.subscribe(); err != nil {
		cancel()
		t.drainSubscriptions()
		return nil, fmt.Errorf("serve tools: %w", err)
	}
	t.offering.Go(t.publishOffers)
	return sync.OnceFunc(func() { t.stop(cancel) }), nil
}

type toolServer struct {
	ToolService
	c         *Client
	ctx       context.Context //nolint:containedctx // the life of the service, not of a call
	semaphore chan struct{}   // one element per running call
	offerNow  chan struct{}   // a request to publish the offer
	subs      []*nats.Subscription
	offering  sync.WaitGroup

	mu       sync.Mutex // held to close stopped, and to add a call
	stopped  chan struct{}
	accepted int            // calls that run or wait for their turn
	calls    sync.WaitGroup // the same
}

func (t *toolServer) subscribe() error {
	for _, name := range t.Tools {
		if err := name.check(); err != nil {
			return err
		}
	}
	add := func(subject, queue string, fn nats.MsgHandler) error {
		sub, err := t.c.nc.QueueSubscribe(subject, queue, fn)
		if err == nil {
			t.subs = append(t.subs, sub)
		}
		return err
	}
	requestOffer := func(*nats.Msg) {
		select {
		case t.offerNow <- struct{}{}:
		default:
		}
	}
	err := errors.Join(add("offers", "", requestOffer), add("offers."+t.Tenant, "", requestOffer))
	for _, name := range t.Tools {
		err = errors.Join(err, add(name.subject(t.Tenant), toolQueue, func(m *nats.Msg) { t.serve(name, m) }))
	}
	if err != nil {
		return err
	}
	return errors.Join(t.c.nc.Publish(t.offerSubject(), t.Offer), t.c.nc.FlushTimeout(requestTimeout))
}

func (t *toolServer) offerSubject() string { return "offer." + t.Tenant + "." + t.Instance }

// publishOffers publishes the offer every few seconds, and on request.
func (t *toolServer) publishOffers() {
	every := time.NewTicker(offerEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-t.offerNow:
		case <-t.stopped:
			return
		}
		if err := t.c.nc.Publish(t.offerSubject(), t.Offer); err != nil {
			t.c.opts.Log.WarnContext(t.ctx, "offer of tools not published", "error", err)
		}
	}
}

// serve starts a call as soon as fewer than Concurrency calls run. It does not wait for that, so that the call's time
// begins when it arrives, as it does for the caller.
func (t *toolServer) serve(name ToolName, m *nats.Msg) {
	wait := time.Minute
	if ms, err := strconv.ParseInt(m.Header.Get(timeoutHeader), 10, 64); err == nil {
		wait = time.Duration(min(max(ms, 0), maxWait.Milliseconds())) * time.Millisecond
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hasStopped() || t.accepted == maxAccepted {
		t.respondNotBegun(m)
		return
	}
	t.accepted++
	ctx, cancel := context.WithTimeout(t.ctx, wait)
	t.calls.Go(func() {
		response, begun := t.handle(ctx, name, m.Data)
		cancel()
		t.mu.Lock()
		t.accepted--
		t.mu.Unlock()
		if !begun {
			t.respondNotBegun(m)
		} else if err := m.Respond(response); err != nil {
			t.c.opts.Log.WarnContext(t.ctx, "tool response not sent", "server", name.Server, "tool",
				name.Tool, "error", err)
		}
	})
}

// handle handles a call when it has its turn, unless the caller no longer waits then, or this process stops.
func (t *toolServer) handle(ctx context.Context, name ToolName, data []byte) (response []byte, begun bool) {
	select {
	case t.semaphore <- struct{}{}:
		defer func() { <-t.semaphore }()
	case <-ctx.Done():
	case <-t.stopped:
	}
	if ctx.Err() != nil || t.hasStopped() {
		return nil, false
	}
	return t.Handle(ctx, name, data), true
}

// respondNotBegun responds that the call was not begun, and why. If that fails, the call times out.
func (t *toolServer) respondNotBegun(m *nats.Msg) {
	why := notBegunBusy
	if t.hasStopped() {
		why = notBegunStopping
	}
	_ = m.RespondMsg(&nats.Msg{Header: nats.Header{notBegunHeader: {why}}})
}

func (t *toolServer) hasStopped() bool {
	select {
	case <-t.stopped:
		return true
	default:
		return false
	}
}

// drainSubscriptions stops receiving calls. Those that have arrived still reach serve.
func (t *toolServer) drainSubscriptions() {
	for _, sub := range t.subs {
		_ = sub.Drain() // fails only on a closed connection
	}
}

func (t *toolServer) stop(cancel context.CancelFunc) {
	t.mu.Lock()
	close(t.stopped)
	t.mu.Unlock()
	t.drainSubscriptions()
	t.offering.Wait()                         // an offer after the empty one would list the tools again
	_ = t.c.nc.Publish(t.offerSubject(), nil) // if it fails, the offer expires
	timeout := time.AfterFunc(toolDrainTime, cancel)
	t.calls.Wait()
	timeout.Stop()
	cancel()
}
