package jobs

import (
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/schemas"
)

// skillsPrefix begins the subject skills.<tenant>. A message on it says that the tenant's skills have changed. The
// messages are empty, and may be lost: package skills also reads a tenant's skills again when it needs a copy that is
// over a minute old.
const skillsPrefix = "skills."

// SkillsChanged tells all processes of the fleet that a tenant's skills have changed.
func (c *Client) SkillsChanged(tenant string) error {
	err := c.nc.Publish(skillsPrefix+tenant, nil)
	if err == nil {
		err = c.nc.FlushTimeout(requestTimeout)
	}
	if err != nil {
		return fmt.Errorf("announce skills of tenant %s: %w", tenant, err)
	}
	return nil
}

// WatchSkills calls changed with each tenant whose skills have changed, and missed when messages may have been lost
// because the connection broke. It does so until stop is called. Both functions must be quick.
func (c *Client) WatchSkills(changed func(tenant string), missed func()) (stop func(), err error) {
	sub, err := c.nc.Subscribe(skillsPrefix+"*", func(m *nats.Msg) {
		if tenant := strings.TrimPrefix(m.Subject, skillsPrefix); schemas.CheckName("tenant", tenant) == nil {
			changed(tenant)
		}
	})
	if err == nil {
		err = c.nc.FlushTimeout(requestTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("watch skills: %w", err)
	}
	connected := c.nc.StatusChanged(nats.CONNECTED)
	var watching sync.WaitGroup
	watching.Go(func() {
		for range connected {
			missed()
		}
	})
	return func() {
		unsubscribe(sub)
		c.nc.RemoveStatusListener(connected)
		watching.Wait()
	}, nil
}
