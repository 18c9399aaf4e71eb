package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

// Backlog returns the load of every pool that has tasks, sorted by name.
func (c *Client) Backlog(ctx context.Context) ([]schemas.Backlog, error) {
	load, err := c.readLoad(ctx)
	if err != nil {
		return nil, err
	}
	pools := map[string]*schemas.Backlog{}
	for queue, part := range load.queues {
		p := pools[queue.pool]
		if p == nil {
			p = &schemas.Backlog{Pool: queue.pool}
			pools[queue.pool] = p
		}
		p.Queued += part.Queued
		p.Running += part.Running
		p.SlotSeconds += part.SlotSeconds
		p.OldestAgeS = max(p.OldestAgeS, part.OldestAgeS)
	}
	all := make([]schemas.Backlog, 0, len(pools))
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		all = append(all, *pools[name])
	}
	return all, nil
}

// safeBacklog returns the limit of unfinished tasks per lane with which TASKS is to be provisioned. When a limit is
// lowered, the server deletes the oldest tasks of a lane that holds more. So safeBacklog returns the stream's higher
// limit while a lane holds more than half of the limit in the options, and otherwise that of the options. The other
// half is a margin for tasks that arrive meanwhile.
func (c *Client) safeBacklog(ctx context.Context) (int64, error) {
	limit := c.opts.Storage.MaxBacklog
	info, err := c.streamInfo(ctx, streamTasks)
	if err != nil || info == nil {
		return limit, err
	}
	current := info.Config.MaxMsgsPerSubject
	if current > 0 && current <= limit { // otherwise, current is higher or unlimited
		return limit, nil
	}
	subjects, err := c.taskSubjects(ctx)
	if err != nil {
		return 0, err
	}
	for subject, n := range subjects {
		if int64(n) > limit/2 {
			c.opts.Log.WarnContext(ctx, "queue.backlog not lowered yet: too many tasks are queued",
				"subject", subject, "tasks", n, "current", current, "new", limit)
			return current, nil
		}
	}
	return limit, nil
}

// taskSubjects returns how many messages TASKS holds on each subject, including those of running tasks.
func (c *Client) taskSubjects(ctx context.Context) (map[string]int, error) {
	return c.subjectCounts(ctx, streamTasks, "tasks.>")
}

// subjectCounts returns how many messages a stream holds on each subject that matches filter.
func (c *Client) subjectCounts(ctx context.Context, stream, filter string) (map[string]int, error) {
	query := fmt.Appendf(nil, `{"subjects_filter": %q}`, filter)
	msg, err := c.request(ctx, "$JS.API.STREAM.INFO."+stream, query)
	if err != nil {
		return nil, err
	}
	var response struct {
		Error *jetstream.APIError `json:"error"`
		State struct {
			Subjects map[string]int `json:"subjects"`
		} `json:"state"`
	}
	if err := json.Unmarshal(msg.Data, &response); err != nil {
		return nil, fmt.Errorf("read the state of %s: %w", stream, err)
	}
	if response.Error != nil {
		return nil, response.Error
	}
	return response.State.Subjects, nil
}

// countFrom returns how many messages on subjects that match filter a stream holds from sequence seq on.
func (c *Client) countFrom(ctx context.Context, stream, filter string, seq uint64) (n int, err error) {
	query := map[string]any{"seq": max(1, seq), "next_by_subj": filter, "batch": 1}
	_, _, err = c.directGet(ctx, stream, query, func(m *nats.Msg, _ uint64) error {
		n, err = strconv.Atoi(m.Header.Get(numPendingHeader)) // how many follow this one
		n++
		return err
	})
	return n, err
}
