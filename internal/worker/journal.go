package worker

import (
	"context"
	"encoding/json"
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
		if err := json.Unmarshal(n, &all[i]); err != nil {
			return nil, fmt.Errorf("read the journal of task %s: %w", task, err)
		}
	}
	slices.SortStableFunc(all, func(a, b broker.JournalEntry) int { return a.At.Compare(b.At) })
	return all, nil
}

func (j journal) Intent(ctx context.Context, r broker.JournalEntry) error { return j.Record(ctx, r) }

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
	key := fmt.Sprintf("%s\x00%s\x00%s\x00%d", r.Key.Server, r.Key.Tool, r.Key.ArgsHash, r.Key.N)
	return j.queue.PutJournal(ctx, r.Key.Tenant, r.Key.Task, key, data, short)
}
