package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/tools/broker"
)

// journal is a broker.Journal that is stored in the queue.
type journal struct{ queue *jobs.Client }

func (j journal) Lookup(ctx context.Context, tenant, task string) ([]broker.JournalEntry, error) {
	entries, err := j.queue.Journal(ctx, tenant, task)
	if err != nil {
		return nil, err
	}
	all := make([]broker.JournalEntry, len(entries))
	for i, n := range entries {
		if err := json.Unmarshal(n.Data, &all[i]); err != nil {
			return nil, fmt.Errorf("read the journal of task %s: %w", task, err)
		}
		all[i].Version = n.Version
	}
	slices.SortStableFunc(all, func(a, b broker.JournalEntry) int { return a.At.Compare(b.At) })
	return all, nil
}

func (j journal) Intent(ctx context.Context, r broker.JournalEntry) (uint64, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	version, err := j.queue.ReplaceJournal(ctx, r.Key.Tenant, r.Key.Task, journalKey(r.Key), data, r.Version)
	if errors.Is(err, jobs.ErrJournalChanged) {
		return 0, broker.ErrOvertaken
	}
	return version, err
}

// journalKey returns the key of an entry within the journal of its task.
func journalKey(k broker.Key) string {
	return fmt.Sprintf("%s\x00%s\x00%s\x00%d", k.Server, k.Tool, k.ArgsHash, k.N)
}

func (j journal) Record(ctx context.Context, r broker.JournalEntry) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// PutJournal stores this shorter entry if it cannot store the whole one. The call is then in doubt.
	short, err := json.Marshal(broker.JournalEntry{Key: r.Key, State: broker.Intended, Run: r.Run, At: r.At})
	if err != nil {
		return err
	}
	return j.queue.PutJournal(ctx, r.Key.Tenant, r.Key.Task, journalKey(r.Key), data, short)
}
