package jobs

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// Errors of DrainWorker.
var (
	ErrUnknownWorker = errors.New("unknown worker")
	ErrNotDrainable  = errors.New("the worker does not obey orders to drain")
)

// drainOrder is a control: an operator's order to one process to drain and exit. It does not apply to a later worker of
// the same name, which has started at another time.
type drainOrder struct {
	Worker  string    `json:"worker"`
	Started time.Time `json:"started"`
	By      string    `json:"by,omitempty"`
}

func drainKeyOf(worker string) string {
	return drainKey + subjectEncoding.EncodeToString([]byte(worker))
}

// DrainWorker orders a worker to claim no more tasks, to finish its tasks or requeue them after its grace time, and to
// exit. It returns the worker's presence. The error is ErrUnknownWorker if no worker has this name, and ErrNotDrainable
// if the worker does not obey orders.
func (c *Client) DrainWorker(ctx context.Context, name, by string) (schemas.Worker, error) {
	workers, err := c.Workers(ctx)
	if err != nil {
		return schemas.Worker{}, err
	}
	i := slices.IndexFunc(workers, func(w schemas.Worker) bool { return w.Name == name })
	switch {
	case i < 0:
		return schemas.Worker{}, ErrUnknownWorker
	case !workers[i].Drains:
		return workers[i], ErrNotDrainable
	}
	if err := c.dropOldDrains(ctx, workers); err != nil {
		return workers[i], err
	}
	order := drainOrder{Worker: name, Started: workers[i].Started, By: by}
	return workers[i], c.putControl(ctx, drainKeyOf(name), order)
}

// dropOldDrains removes the orders to workers that are gone and did not remove the orders themselves.
func (c *Client) dropOldDrains(ctx context.Context, workers []schemas.Worker) error {
	set, err := c.readControls(ctx, drainKey+">")
	if err != nil {
		return err
	}
	for _, order := range set.drains {
		gone := !slices.ContainsFunc(workers, func(w schemas.Worker) bool {
			return w.Name == order.Worker && w.Started.Equal(order.Started)
		})
		if gone {
			if _, err := c.dropControl(ctx, drainKeyOf(order.Worker)); err != nil {
				return err
			}
		}
	}
	return nil
}

// obeyDrain calls Drain if an operator has ordered this worker to drain.
func (w *Worker) obeyDrain(ctx context.Context) {
	key := subjectEncoding.EncodeToString([]byte(w.opts.Name))
	order, ok := w.c.controls.Load().drains[key]
	if !ok || w.opts.Drain == nil || !order.Started.Equal(w.started) || w.ordered.Swap(true) {
		return
	}
	w.log.InfoContext(ctx, "drain ordered", "by", order.By)
	w.opts.Drain()
}

// dropOrder removes the order that this worker has obeyed.
func (w *Worker) dropOrder(ctx context.Context) {
	if w.ordered.Load() {
		_, err := w.c.dropControl(ctx, drainKeyOf(w.opts.Name))
		w.logError(ctx, "order to drain not removed", err)
	}
}
