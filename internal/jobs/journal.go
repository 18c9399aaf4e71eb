package jobs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// journalRef is the header that refers to a journal entry too large for a message.
const journalRef = "Codefleet-Ref"

// PutJournal stores a journal entry of a task for seven days. It replaces an earlier entry with the same key.
// The entry is durable when PutJournal returns. After an error, PutJournal may be repeated. A large entry may be
// removed to make room for later ones; then Journal returns short in its place.
func (c *Client) PutJournal(ctx context.Context, tenant, task, key string, data, short []byte) error {
	msg := nats.NewMsg(journalSubject(tenant, task) + digest(key))
	msg.Data = data
	if len(data) > inlineMax {
		msg.Data = short
		name := tenant + "/" + task + "/journal-" + digest(string(data))
		err := c.keepObject(ctx, tenant, name, data)
		if err != nil && !errors.Is(err, ErrStorageFull) {
			return fmt.Errorf("write journal of task %s: %w", task, err)
		}
		if err == nil {
			msg.Header.Set(journalRef, objectRef(name))
		}
	}
	if _, err := c.js.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("write journal of task %s: %w", task, err)
	}
	return nil
}

// Journal returns a task's journal entries in the order in which they were written.
func (c *Client) Journal(ctx context.Context, tenant, task string) ([][]byte, error) {
	var all []*nats.Msg
	err := c.readFrom(ctx, streamJournal, journalSubject(tenant, task)+"*", 1, func(m *nats.Msg) error {
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
			var data []byte
			if err == nil {
				data, err = c.getObject(ctx, name)
			}
			switch {
			case err == nil:
				out[i] = data
			case objectMissing(err) && len(m.Data) > 0: // out[i] is the short entry
			default:
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
