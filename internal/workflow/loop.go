package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// openLoop begins a loop. Its items are pending until the method loop begins them.
func (m *machine) openLoop(ctx context.Context, i int) {
	x := &m.run.Steps[i]
	items, err := m.items(ctx, i)
	if err != nil {
		m.giveUp(i, x, expressionError("for_each", err))
		return
	}
	x.Status, x.StartedAt, x.Before = schemas.WorkflowRunning, m.now, m.run.Generation
	x.Items = make([]schemas.StepRun, len(items))
	for k := range x.Items {
		x.Items[k].Status = schemas.WorkflowPending
	}
}

// items returns the list of a loop, and stores it.
func (m *machine) items(ctx context.Context, i int) (items []json.RawMessage, err error) {
	s := m.steps[i]
	if s.list != nil {
		value, err := m.value(ctx, s.list, site{i, -1})
		if err != nil {
			return nil, err
		}
		if string(value) == "null" || json.Unmarshal(value, &items) != nil {
			return nil, errors.New("the value is not a list: " + text.Truncate(string(value), 100))
		}
		if len(items) > s.ForEach.Max {
			return nil, fmt.Errorf("the list has %d items, more than max, which is %d", len(items), s.ForEach.Max)
		}
	}
	for _, t := range s.items {
		value, err := m.fill(ctx, t, site{i, -1})
		if err != nil {
			return nil, err
		}
		items = append(items, value)
	}
	total := len(m.run.Steps) + len(items)
	for _, other := range m.run.Steps {
		total += len(other.Items)
	}
	if total > maxInstances {
		return nil, fmt.Errorf("the run would have %d steps and items; the limit is %d", total, maxInstances)
	}
	if items == nil {
		items = []json.RawMessage{}
	}
	list, err := json.Marshal(items)
	if err == nil && len(list) > MaxValue {
		err = errTooLarge
	}
	if err != nil {
		return nil, err
	}
	m.values[itemsKey(s.ID)] = list
	m.run.Steps[i].ItemsKey = m.own(itemsKey(s.ID))
	return items, nil
}

// loop begins items of a loop, as many at once as the definition allows, and ends the loop once they have ended. If no
// more items may begin, because the run stops, or an item failed and on_error is not continue, it skips the pending
// ones. It reports whether it began an item or ended the loop.
func (m *machine) loop(ctx context.Context, i int) (progress bool) {
	s, x := m.steps[i], &m.run.Steps[i]
	active, failed := 0, -1
	for k, item := range x.Items {
		switch {
		case item.Status == schemas.WorkflowFailed && failed < 0:
			failed = k
		case item.Status == schemas.WorkflowRunning || item.Status == schemas.WorkflowWaiting:
			active++
		}
	}
	more := m.mayBegin(s) && (failed < 0 || s.OnError == schemas.OnErrorContinue)
	pending := false
	for k := range x.Items {
		item := &x.Items[k]
		if item.Status != schemas.WorkflowPending {
			continue
		}
		if !more {
			m.end(i, item, schemas.WorkflowSkipped, nil)
			continue
		}
		if active >= max(1, s.ForEach.Parallel) {
			pending = true
			continue
		}
		m.begin(ctx, i, k, item)
		progress = true
		if item.Status.Ended() { // it failed at once, so perhaps no more items may begin
			return true
		}
		active++
	}
	if active > 0 || pending || progress {
		return progress
	}
	m.closeLoop(i, failed)
	return true
}

// closeLoop ends a loop with the list of its items' results.
func (m *machine) closeLoop(i, failed int) {
	s, x := m.steps[i], &m.run.Steps[i]
	list := make([]json.RawMessage, len(x.Items))
	size := 0
	cancelled := false
	for k, item := range x.Items {
		list[k] = json.RawMessage("null")
		cancelled = cancelled || item.Status == schemas.WorkflowCancelled
		if item.Status == schemas.WorkflowSucceeded && size <= MaxValue {
			value, err := m.result(s.ID, k, &x.Items[k])
			if err != nil && m.loadErr == nil {
				size = MaxValue + 1 // an item's result was too large
				continue
			}
			list[k] = value
			size += len(value)
		}
	}
	if size > MaxValue {
		x.ResultBytes = size
	}
	switch {
	case failed >= 0:
		e := x.Items[failed].Error
		m.giveUp(i, x, &schemas.WorkflowError{Code: e.Code, Message: fmt.Sprintf("item %d: %s", failed, e.Message)})
	case cancelled:
		m.end(i, x, schemas.WorkflowCancelled, nil)
	default:
		m.end(i, x, schemas.WorkflowSucceeded, nil)
	}
	if size > MaxValue {
		return
	}
	value, err := json.Marshal(list)
	if err != nil {
		m.loadErr = err
		return
	}
	m.keep(ResultKey(s.ID, -1), x, value)
	x.ResultKey = m.own(ResultKey(s.ID, -1)) // in another process, another answer may end the last item
}
