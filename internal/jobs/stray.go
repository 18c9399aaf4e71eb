package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/errcode"
)

// sweepMost bounds how many entries one scan takes out of TASKS.
const sweepMost = 100

// serves tells whether this worker looks at a lane: one of its pools, of a tenant whom it may serve,
// or one that is closed to the tenant. To refuse a task every worker is good enough, and nobody may serve that pool.
func (w *Worker) serves(l lane) bool {
	if slices.Contains(w.opts.Pools, l.pool) {
		return w.opts.Tenants.Accept == nil || w.opts.Tenants.Accept(l.tenant)
	}
	if w.opts.Policy == nil {
		return false
	}
	p, known := w.opts.Policy(l.tenant)
	return !known || len(p.Pools) > 0 && !slices.Contains(p.Pools, l.pool)
}

// sweep moves entries that lie on subjects which are no lane's to the dead letters of their tenant:
// no consumer would ever see them. What several workers do at once they do once.
func (w *Worker) sweep(ctx context.Context, subjects []string) {
	for i, subject := range subjects {
		if i == sweepMost || ctx.Err() != nil {
			return
		}
		w.logged(ctx, "sweep "+streamTasks, w.buryFirst(ctx, subject))
	}
}

// buryFirst moves the first entry of a subject.
func (w *Worker) buryFirst(ctx context.Context, subject string) error {
	stream, err := w.c.js.Stream(ctx, streamTasks)
	if err != nil {
		return err
	}
	m, err := stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(subject))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil // another worker was faster
	}
	if err != nil {
		return err
	}
	t := strings.Split(subject, ".")
	l := lane{pool: t[1], priority: t[2], tenant: t[3]}
	why := refuse(errcode.BadSubject, "", "%s is not tasks.<pool>.<high|normal|low>.<tenant>", subject)
	if err := w.c.bury(ctx, l, strconv.FormatUint(m.Sequence, 10), "", m.Header, m.Data, why.asError()); err != nil {
		return err
	}
	w.c.tel.refused.Add(ctx, 1)
	return stream.DeleteMsg(ctx, m.Sequence)
}

// taskSubjects returns how many entries TASKS has on each subject, those that run included.
func (c *Client) taskSubjects(ctx context.Context) (map[string]int, error) {
	msg, err := c.request(ctx, "$JS.API.STREAM.INFO."+streamTasks, []byte(`{"subjects_filter": "tasks.>"}`))
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
		State struct {
			Subjects map[string]int `json:"subjects"`
		} `json:"state"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return nil, fmt.Errorf("read the state of %s: %w", streamTasks, err)
	}
	if answer.Error != nil {
		return nil, answer.Error
	}
	return answer.State.Subjects, nil
}

// byLane sorts counts by lane. strays are the subjects that are none's, in order.
func byLane(subjects map[string]int) (counts map[lane]int, strays []string) {
	counts = make(map[lane]int, len(subjects))
	for subject, n := range subjects {
		if l, ok := laneOf(subject); ok {
			counts[l] = n
		} else {
			strays = append(strays, subject)
		}
	}
	slices.Sort(strays)
	return counts, strays
}
