package jobs

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/nats-io/nats.go"
)

// journalRef is the header that names the object of an entry which is too large for a message.
const journalRef = "Codefleet-Ref"

// PutJournal stores an entry of a task's journal under key, where it replaces an earlier one, for seven days.
// It is durable when PutJournal returns, and may be repeated.
func (c *Client) PutJournal(ctx context.Context, tenant, task, key string, data []byte) error {
	msg := nats.NewMsg(journalSubject(tenant, task) + digest(key))
	msg.Data = data
	if len(data) > inlineMax {
		name := tenant + "/" + task + "/journal-" + digest(string(data))
		if err := c.putObject(ctx, name, data); err != nil {
			return fmt.Errorf("write journal of task %s: %w", task, err)
		}
		msg.Data = nil
		msg.Header.Set(journalRef, objectRef(name))
	}
	if _, err := c.js.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("write journal of task %s: %w", task, err)
	}
	return nil
}

// Journal returns the entries of a task's journal in the order in which they were written.
func (c *Client) Journal(ctx context.Context, tenant, task string) ([][]byte, error) {
	var all []*nats.Msg
	err := c.from(ctx, streamJournal, journalSubject(tenant, task)+"*", 1, func(m *nats.Msg) error {
		all = append(all, m)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read journal of task %s: %w", task, err)
	}
	out := make([][]byte, len(all))
	for i, m := range all {
		out[i] = m.Data
		if ref := m.Header.Get(journalRef); ref != "" {
			name, err := objectName(tenant, ref)
			if err == nil {
				out[i], err = c.getObject(ctx, name)
			}
			if err != nil {
				return nil, fmt.Errorf("read journal of task %s: %w", task, err)
			}
		}
	}
	return out, nil
}

func journalSubject(tenant, task string) string {
	return "journal." + tenant + "." + task + "."
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return subjectEncoding.EncodeToString(sum[:16])
}
