package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/schemas"
)

// Tools that processes of a tenant serve. None of it is stored: who serves says so every few seconds,
// and who wants to know listens.
//
//	offer.<tenant>.<instance>       what one process serves, in words of its own; empty: it has gone
//	offers, offers.<tenant>         somebody asks who serves: all, or those of a tenant, say it at once
//	tool.<tenant>.<server>.<tool>   a call, to one of the processes that serve it

const (
	// OfferEvery is how often a process says what it serves.
	OfferEvery = 3 * time.Second
	// MaxToolOffer bounds what one process says, in bytes.
	MaxToolOffer = 256 << 10
	// MaxToolResponse bounds what a tool answers, in bytes.
	MaxToolResponse = 1 << 20

	toolQueue     = "tools"             // the group of those that serve the same tool
	timeoutHeader = "Codefleet-Timeout" // of a call: milliseconds for which the answer is waited for
	leavingHeader = "Codefleet-Leaving" // of an answer: the call was not begun
	serveDefault  = 16                  // calls that a process carries out at once
	drainTime     = 10 * time.Second    // for calls under way when a process stops to serve
)

// Errors of CallTool. The call was not made.
var (
	ErrNoResponders = errors.New("no process serves the tool")
	ErrToolDraining = errors.New("the process that was asked stops to serve the tool") // another may: ask again
)

// ToolName is a tool that a process serves. Server and Tool are letters, digits, - and _.
type ToolName struct{ Server, Tool string }

func (n ToolName) subject(tenant string) string {
	return strings.Join([]string{"tool", tenant, n.Server, n.Tool}, ".")
}

func (n ToolName) check() error {
	for _, s := range []string{n.Server, n.Tool} {
		if s == "" || len(s) > 64 || strings.ContainsFunc(s, func(r rune) bool {
			return r != '_' && r != '-' && (r < '0' || r > '9') && (r|0x20 < 'a' || r|0x20 > 'z')
		}) {
			return fmt.Errorf("tool %q of server %q: a name is 1 to 64 letters, digits, - and _", n.Tool, n.Server)
		}
	}
	return nil
}

// WatchOffers calls fn with what the processes of all tenants say that they serve, whenever they do;
// data is empty when one has gone, and not to be changed. fn must be quick, and takes nothing of it
// for true but the tenant. Only the fleet's own user may watch. The watch ends with stop.
func (c *Client) WatchOffers(fn func(tenant, instance string, data []byte)) (stop func(), err error) {
	sub, err := c.nc.Subscribe("offer.*.*", func(m *nats.Msg) {
		words := strings.Split(m.Subject, ".")
		if len(words) == 3 && schemas.CheckName("tenant", words[1]) == nil && len(m.Data) <= MaxToolOffer {
			fn(words[1], words[2], m.Data)
		}
	})
	if err == nil {
		err = errors.Join(c.nc.Publish("offers", nil), c.nc.FlushTimeout(requestTimeout))
	}
	if err != nil {
		return nil, fmt.Errorf("watch for tools that processes serve: %w", err)
	}
	return func() { _ = sub.Unsubscribe() }, nil // of a closed connection, it has ended already
}

// CallTool calls a tool of a tenant's process and returns the answer's bytes, whatever they are. It
// waits for as long as ctx does. The error is ErrNoResponders or ErrToolDraining, or the call may have been made.
func (c *Client) CallTool(ctx context.Context, tenant string, name ToolName, data []byte) ([]byte, error) {
	if err := name.check(); err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNoResponders, err)
	}
	msg := nats.NewMsg(name.subject(tenant))
	msg.Data = data
	if end, ok := ctx.Deadline(); ok {
		msg.Header.Set(timeoutHeader, strconv.FormatInt(time.Until(end).Milliseconds(), 10))
	}
	answer, err := c.nc.RequestMsgWithContext(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, ErrNoResponders
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, fmt.Errorf("%w (the arguments are too large for one message)", ErrNoResponders)
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("call a tool of a process: %w", err)
	}
	if answer.Header.Get(leavingHeader) != "" {
		return nil, ErrToolDraining
	}
	return answer.Data, nil
}

// ToolService is what a process serves.
type ToolService struct {
	Tenant, Instance string // the instance is one word, and no other process's
	Tools            []ToolName
	Offer            []byte // what to say of them
	Concurrency      int    // calls at once; 0: 16
	// Handle answers a call. ctx ends when nobody waits for the answer any more.
	Handle func(ctx context.Context, name ToolName, data []byte) []byte
}

// ServeTools serves tools until stop is called, which returns when the calls under way are answered,
// or ten seconds later. Calls wait for a free place; several processes that serve the same tool share
// its calls.
func (c *Client) ServeTools(s ToolService) (stop func(), err error) {
	if len(s.Offer) > MaxToolOffer {
		return nil, fmt.Errorf("serve tools: what is said of them has %d bytes, more than %d: register them in smaller groups", len(s.Offer), MaxToolOffer)
	}
	if s.Concurrency == 0 {
		s.Concurrency = serveDefault
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &toolServer{ToolService: s, c: c, places: make(chan struct{}, s.Concurrency), ctx: ctx, ask: make(chan struct{}, 1)}
	if err := t.subscribe(); err != nil {
		cancel()
		t.unsubscribe()
		return nil, fmt.Errorf("serve tools: %w", err)
	}
	t.present.Go(t.say)
	return sync.OnceFunc(func() { t.stop(cancel) }), nil
}

type toolServer struct {
	ToolService
	c       *Client
	ctx     context.Context //nolint:containedctx // of the service itself, not of a call
	places  chan struct{}
	ask     chan struct{}
	subs    []*nats.Subscription
	present sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	calls   sync.WaitGroup
}

func (t *toolServer) subscribe() error {
	listen := func(subject, queue string, fn nats.MsgHandler) error {
		sub, err := t.c.nc.QueueSubscribe(subject, queue, fn)
		if err == nil {
			t.subs = append(t.subs, sub)
		}
		return err
	}
	asked := func(*nats.Msg) {
		select {
		case t.ask <- struct{}{}:
		default:
		}
	}
	for _, name := range t.Tools {
		if err := name.check(); err != nil {
			return err
		}
	}
	err := errors.Join(listen("offers", "", asked), listen("offers."+t.Tenant, "", asked))
	for _, name := range t.Tools {
		err = errors.Join(err, listen(name.subject(t.Tenant), toolQueue, func(m *nats.Msg) { t.take(name, m) }))
	}
	if err != nil {
		return err
	}
	return errors.Join(t.c.nc.Publish(t.subject(), t.Offer), t.c.nc.FlushTimeout(requestTimeout))
}

func (t *toolServer) subject() string { return "offer." + t.Tenant + "." + t.Instance }

// say says every few seconds, and when somebody asks, what is served.
func (t *toolServer) say() {
	every := time.NewTicker(OfferEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-t.ask:
		case <-t.ctx.Done():
			return
		}
		if err := t.c.nc.Publish(t.subject(), t.Offer); err != nil {
			t.c.opts.Log.WarnContext(t.ctx, "tools of this process not offered", "error", err)
		}
	}
}

// take begins a call once there is a place for it.
func (t *toolServer) take(name ToolName, m *nats.Msg) {
	ms, err := strconv.ParseInt(m.Header.Get(timeoutHeader), 10, 64)
	wait := time.Duration(ms) * time.Millisecond
	if err != nil || wait <= 0 || wait > time.Hour {
		wait = time.Minute
	}
	ctx, cancel := context.WithTimeout(t.ctx, wait)
	select {
	case t.places <- struct{}{}:
	case <-ctx.Done(): // nobody waits any more, or this process stops
		leaving(m)
		cancel()
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		leaving(m)
		cancel()
		<-t.places
		return
	}
	t.calls.Go(func() {
		defer func() { cancel(); <-t.places }()
		if err := m.Respond(t.Handle(ctx, name, m.Data)); err != nil {
			t.c.opts.Log.WarnContext(ctx, "answer of a tool not sent", "server", name.Server, "tool", name.Tool, "error", err)
		}
	})
}

// leaving says of a call that it was not begun.
func leaving(m *nats.Msg) {
	_ = m.RespondMsg(&nats.Msg{Header: nats.Header{leavingHeader: {"true"}}}) // unheard, the call times out
}

// unsubscribe takes what has arrived, and no more.
func (t *toolServer) unsubscribe() {
	for _, sub := range t.subs {
		_ = sub.Drain() // of a closed connection, it has ended already
	}
}

func (t *toolServer) stop(cancel context.CancelFunc) {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	t.unsubscribe()
	_ = t.c.nc.Publish(t.subject(), nil) // unheard, it is missed soon
	cut := time.AfterFunc(drainTime, cancel)
	t.calls.Wait()
	cut.Stop()
	cancel()
	t.present.Wait()
}
