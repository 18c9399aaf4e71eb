package jobs

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/schemas"
)

// ErrNoMailbox means that no process of the fleet has the mailbox: it was closed, or never existed.
var ErrNoMailbox = errors.New("the mailbox does not exist")

var mailboxID = regexp.MustCompile(`^[a-z0-9]{16,32}$`)

// mailboxSubject returns the subject of a mailbox. The credentials of a tenant permit subjects below
// _INBOX.TENANT only. No tenant's name begins with an underscore, so none can send to a mailbox or read it.
func mailboxSubject(tenant, id string) (string, error) {
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return "", err
	}
	if !mailboxID.MatchString(id) {
		return "", ErrNoMailbox
	}
	return "_INBOX._mailbox." + tenant + "." + id, nil
}

// OpenMailbox receives messages that any process of the fleet delivers to the mailbox id of the tenant, until done is
// called. handle returns the response, and is called for one message at a time. OpenMailbox needs the
// credentials of the fleet.
func (c *Client) OpenMailbox(tenant, id string, handle func(data []byte) []byte) (done func(), err error) {
	subject, err := mailboxSubject(tenant, id)
	if err != nil {
		return nil, err
	}
	sub, err := c.nc.Subscribe(subject, func(m *nats.Msg) {
		_ = m.Respond(handle(m.Data)) // without a response, the sender times out
	})
	if err == nil {
		err = c.nc.FlushTimeout(requestTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("open mailbox: %w", err)
	}
	return func() { unsubscribe(sub) }, nil
}

// Deliver sends a message to a mailbox and returns the response, or ErrNoMailbox.
func (c *Client) Deliver(ctx context.Context, tenant, id string, data []byte) ([]byte, error) {
	subject, err := mailboxSubject(tenant, id)
	if err != nil {
		return nil, err
	}
	m, err := c.nc.RequestWithContext(ctx, subject, data)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, ErrNoMailbox
	}
	if err != nil {
		return nil, fmt.Errorf("deliver to mailbox: %w", err)
	}
	return m.Data, nil
}
