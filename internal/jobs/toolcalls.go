package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/schemas"
)

// Registered tools are served by other processes of a tenant. Nothing is stored: each process publishes an offer
// every few seconds.
//
//	offer.<tenant>.<instance>       an offer: the tools of one process; empty when the process stops
//	offers, offers.<tenant>         a request to publish offers now, to all processes or those of a tenant
//	tool.<tenant>.<server>.<tool>   a call, to one of the processes that serve the tool

const (
	// MaxToolOffer is the largest offer of one process, in bytes.
	MaxToolOffer = 256 << 10
	// MaxToolResponse is the largest response of a tool, in bytes.
	MaxToolResponse = 1 << 20

	maxAccepted   = 1024 // calls that a process holds at once; it refuses more
	offerEvery    = 3 * time.Second
	toolQueue     = "tools"             // the queue group of all processes
	timeoutHeader = "Codefleet-Timeout" // in a call: how long the caller waits, in milliseconds

	notBegunHeader   = "Codefleet-Leaving" // in a response: the call was not begun, and why
	notBegunStopping = "true"              // earlier versions set no other value
	notBegunBusy     = "busy"
)

// Errors of CallTool. The call was not made.
var (
	ErrNoResponders = errors.New("no process serves the tool")
	ErrToolNotBegun = errors.New("the process that serves the tool did not begin the call") // try again with another
)

// ToolName names a registered tool. Server and Tool consist of letters, digits, - and _.
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

// WatchOffers calls fn with every offer of every tenant's processes, until stop is called. fn must be quick.
// data is empty when a process stops, and must not be changed. Only tenant is authenticated; instance and data
// are untrusted. WatchOffers needs the credentials of the fleet.
func (c *Client) WatchOffers(fn func(tenant, instance string, data []byte)) (stop func(), err error) {
	sub, err := c.nc.Subscribe("offer.*.*", func(m *nats.Msg) {
		t := strings.Split(m.Subject, ".")
		if len(t) == 3 && schemas.CheckName("tenant", t[1]) == nil && len(m.Data) <= MaxToolOffer {
			fn(t[1], t[2], m.Data)
		}
	})
	if err == nil {
		err = errors.Join(c.nc.Publish("offers", nil), c.nc.FlushTimeout(requestTimeout))
	}
	if err != nil {
		return nil, fmt.Errorf("watch offers of tools: %w", err)
	}
	return func() { unsubscribe(sub) }, nil
}

// CallTool calls a tool of a tenant's process and returns the response, unchecked. It waits for the response until ctx
// ends. After errors other than ErrNoResponders and ErrToolNotBegun the call may have been made.
func (c *Client) CallTool(ctx context.Context, tenant string, name ToolName, data []byte) ([]byte, error) {
	if err := name.check(); err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNoResponders, err)
	}
	msg := nats.NewMsg(name.subject(tenant))
	msg.Data = data
	if end, ok := ctx.Deadline(); ok {
		msg.Header.Set(timeoutHeader, strconv.FormatInt(time.Until(end).Milliseconds(), 10))
	}
	response, err := c.nc.RequestMsgWithContext(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, ErrNoResponders
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, fmt.Errorf("%w (the arguments are too large for one message)", ErrNoResponders)
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("call registered tool: %w", err)
	}
	switch response.Header.Get(notBegunHeader) {
	case "":
		return response.Data, nil
	case notBegunBusy:
		return nil, fmt.Errorf("%w: too many calls wait for it", ErrToolNotBegun)
	default:
		return nil, fmt.Errorf("%w: it is shutting down", ErrToolNotBegun)
	}
}
