package jobs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/clock"
)

// journalRef is the header that refers to a journal entry too large for a message.
const journalRef = "Codefleet-Ref"

// ErrJournalChanged is returned by ReplaceJournal if the entry is not the expected one.
var ErrJournalChanged = errors.New("another run has written this journal entry")

// JournalEntry is an entry of a task's journal. Versions grow with each write to any journal.
type JournalEntry struct {
	Data    []byte
	Version uint64
}

// PutJournal stores a journal entry of a task for seven days. It replaces an earlier entry with the same key.
// The entry is durable when PutJournal returns. After an error, PutJournal may be repeated. A large entry may be
// removed to make room for later ones; then Journal returns short in its place.
func (c *Client) PutJournal(ctx context.Context, tenant, task, key string, data, short []byte) error {
	msg := nats.NewMsg(journalSubject(tenant, task) + hashToken(key))
	msg.Data = data
	if len(data) > inlineMax {
		msg.Data = short
		name := tenant + "/" + task + "/journal-" + hashToken(string(data))
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

// ReplaceJournal stores a small entry, as PutJournal does, and returns its version. It returns ErrJournalChanged unless
// the last entry with this key has the given version; version 0 means that there is none. Of several runs that replace
// the same version, one succeeds. After any other error, ReplaceJournal may be repeated with the same data.
func (c *Client) ReplaceJournal(
	ctx context.Context, tenant, task, key string, data []byte, version uint64,
) (uint64, error) {
	subject := journalSubject(tenant, task) + hashToken(key)
	ack, err := c.js.Publish(ctx, subject, data, jetstream.WithExpectLastSequencePerSubject(version))
	if err == nil {
		return ack.Sequence, nil
	}
	if isWrongRevision(err) { // an earlier attempt may have stored it
		last, readErr := c.lastOfLeader(ctx, streamJournal, subject)
		switch {
		case readErr == nil && bytes.Equal(last.Data, data):
			return last.Seq, nil
		case readErr == nil || errors.Is(readErr, jetstream.ErrMsgNotFound):
			return 0, fmt.Errorf("write journal of task %s: %w", task, ErrJournalChanged)
		}
		err = readErr
	}
	return 0, fmt.Errorf("write journal of task %s: %w", task, err)
}

// barrierKey is the key of an entry that Journal writes. It is not part of the journal.
const barrierKey = "\x00barrier"

// Journal returns a task's journal entries in the order in which they were written. It misses none that was written
// before the call.
func (c *Client) Journal(ctx context.Context, tenant, task string) ([]JournalEntry, error) {
	barrier := journalSubject(tenant, task) + hashToken(barrierKey)
	var until uint64
	if c.clustered() { // a replica that lags behind may respond: read until it has what is written now
		ack, err := c.js.Publish(ctx, barrier, nil)
		if err != nil {
			return nil, fmt.Errorf("read journal of task %s: %w", task, err)
		}
		until = ack.Sequence
	}
	for {
		all, last, err := c.readJournal(ctx, tenant, task, barrier)
		if err != nil {
			return nil, fmt.Errorf("read journal of task %s: %w", task, err)
		}
		if last >= until {
			return all, nil
		}
		if err := clock.Sleep(ctx, lagDelay); err != nil {
			return nil, fmt.Errorf("read journal of task %s: %w", task, err)
		}
	}
}

// lagDelay is the time between two reads of a replica that lags behind.
const lagDelay = 50 * time.Millisecond

// readJournal reads a task's journal without the barrier from any replica. last is the version of the last entry, the
// barrier included.
func (c *Client) readJournal(
	ctx context.Context, tenant, task, barrier string,
) (all []JournalEntry, last uint64, err error) {
	var messages []*nats.Msg
	err = c.readFrom(ctx, streamJournal, journalSubject(tenant, task)+"*", 1, func(m *nats.Msg) error {
		messages = append(messages, m)
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	for _, m := range messages {
		if last, err = strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64); err != nil {
			return nil, 0, fmt.Errorf("sequence: %w", err)
		}
		if m.Header.Get(jetstream.SubjectHeader) == barrier {
			continue
		}
		data, err := c.journalData(ctx, tenant, m)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, JournalEntry{data, last})
	}
	return all, last, nil
}

// journalData returns the whole entry in a message, or its short form if the rest was removed.
func (c *Client) journalData(ctx context.Context, tenant string, m *nats.Msg) ([]byte, error) {
	ref := m.Header.Get(journalRef)
	if ref == "" {
		return m.Data, nil
	}
	name, err := objectName(tenant, ref)
	var data []byte
	if err == nil {
		data, err = c.getObject(ctx, name)
	}
	if objectMissing(err) && len(m.Data) > 0 {
		return m.Data, nil
	}
	return data, err
}

func journalSubject(tenant, task string) string {
	return "journal." + tenant + "." + task + "."
}

// hashToken returns a hash of s that can be a token of a subject.
func hashToken(s string) string {
	sum := sha256.Sum256([]byte(s))
	return subjectEncoding.EncodeToString(sum[:16])
}
