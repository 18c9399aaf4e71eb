package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a queue that starts each task a second after its submission, and the first one twice.
type slow struct{ started func(int) }

func (q slow) submit(_ context.Context, task int) error {
	time.AfterFunc(time.Second, func() { q.started(task) })
	if task == 1 {
		time.AfterFunc(2*time.Second, func() { q.started(task) })
	}
	return nil
}

func (q slow) close() error { return nil }

// Waits do not include each other: a task is submitted on time although earlier ones have not started.
func TestAtRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		begin := time.Now()
		waits, err := l.atRate(t.Context(), slow{l.started}, 50)
		if err != nil || len(waits) != 250 {
			t.Fatalf("%d waits, error %v; want 250", len(waits), err)
		}
		for i, w := range waits {
			if w != 1000 {
				t.Errorf("task %d waited %v ms, want 1000", i, w)
			}
		}
		if took := time.Since(begin); took != steady+time.Second {
			t.Errorf("took %v, want %v", took, steady+time.Second)
		}
		synctest.Wait()
	})
}

func TestSubmitAllWaitsForTheLastStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		begin := time.Now()
		if err := l.submitAll(t.Context(), slow{l.started}, 100, 3); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("took %v, want 1s", took)
		}
		time.Sleep(time.Second) // the second delivery of task 1
	})
}
