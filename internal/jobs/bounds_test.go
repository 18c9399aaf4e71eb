package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

// storedBytes returns the size of a stream on disk.
func storedBytes(t *testing.T, f *fleet, stream string) uint64 {
	t.Helper()
	s, err := f.js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Bytes
}

// TestDeadLettersOfInvalidEventsAreTruncated publishes large invalid events. Only their beginnings are kept, with what
// identifies them.
func TestDeadLettersOfInvalidEventsAreTruncated(t *testing.T) {
	f := newFleet(t)
	large := strings.Repeat("x", 700<<10)
	const events = 20
	for i := range events / 2 {
		f.publish(t, "tasks.default.normal.acme", ceHeader(fmt.Sprint("a", i)), `{"code":1,"x":"`+large+`"}`)
		f.publish(t, "tasks.default.normal.acme", ceHeader(fmt.Sprint("b", i), "ce-dataschema", large[:50<<10]), "")
	}
	f.publish(t, "tasks.default.normal.acme", ceHeader("valid"), `{"code":"`+large+`"}`)
	f.work(t, WorkerOptions{Attempts: 1, Handler: func(context.Context, *Job) (*schemas.Result, error) {
		return nil, Permanent(errors.New("no"))
	}})
	eventually(t, "the dead letters", func() error {
		letters, err := f.DeadLetters(t.Context(), "acme", events+2)
		if len(letters) != events+1 {
			return fmt.Errorf("%d letters, %w", len(letters), err)
		}
		for _, d := range letters {
			undecodable := strings.HasPrefix(d.Event["id"], "b") // such an event has no task id
			if d.TaskID == "" && !undecodable || d.Error.Code == "" || d.Event["id"] == "" ||
				d.Event["source"] != "/foreign" {
				t.Errorf("dead letter = %+v", d)
			}
		}
		return nil
	})
	if n := storedBytes(t, f, streamDead); n > 1<<20 {
		t.Errorf("%d dead letters have %d bytes", events+1, n)
	}
	var refused *NotRedrivableError
	if _, err := f.Redrive(t.Context(), "acme", TaskID("acme", "/foreign", "a1")); !errors.As(err, &refused) ||
		!strings.Contains(refused.Reason, "only its beginning") {
		t.Errorf("Redrive of a truncated event = %v", err)
	}
	if rec, err := f.Redrive(t.Context(), "acme", TaskID("acme", "/foreign", "valid")); err != nil {
		t.Errorf("Redrive of a valid task = %+v, %v", rec, err)
	}
}

// TestDeadLettersAreBounded stores more dead letters than a tenant may have. The oldest are removed, and those of
// other tenants are kept.
func TestDeadLettersAreBounded(t *testing.T) {
	f := newFleet(t, func(o *Options) { o.Storage.DeadLetters = 5 })
	f.work(t, WorkerOptions{Handler: succeed})
	f.publish(t, "tasks.default.normal.other", ceHeader("x"), "{")
	const events = 4*trimInterval + 2
	for i := range events {
		f.publish(t, "tasks.default.normal.acme", ceHeader(strconv.Itoa(i)), "{")
	}
	f.awaitForeign(t, "/foreign", strconv.Itoa(events-1))
	eventually(t, "the removal", func() error {
		letters, err := f.DeadLetters(t.Context(), "acme", events)
		if n := len(letters); n == 0 || n > 5+trimInterval || letters[0].TaskID == "" {
			return fmt.Errorf("%d letters, %w", n, err)
		}
		return nil
	})
	if letters, err := f.DeadLetters(t.Context(), "other", events); len(letters) != 1 {
		t.Errorf("dead letters of another tenant = %v, %v, want 1", letters, err)
	}
}

// TestLargeDataIsBounded submits more large data than a tenant may have in the queue. The data is removed when its
// tasks have ended or are cancelled, and other tenants have their own share.
func TestLargeDataIsBounded(t *testing.T) {
	f := newFleet(t, func(o *Options) { o.Storage.PayloadBytes = 2 << 20 })
	data := `{"code":"` + strings.Repeat("x", 900<<10) + `"}`
	first, second := f.submit(t, "1", data), f.submit(t, "2", data)
	if rec, err := f.Submit(t.Context(), "acme", taskEvent("3", data)); !errors.Is(err, ErrStorageFull) {
		t.Errorf("the third Submit = %+v, %v, want %v", rec, err, ErrStorageFull)
	}
	if _, err := f.Submit(t.Context(), "other", taskEvent("3", data)); err != nil {
		t.Errorf("Submit of another tenant = %v", err)
	}
	f.submit(t, "small", `{"code":"x"}`)
	if _, err := f.Cancel(t.Context(), "acme", first.TaskID); err != nil {
		t.Fatal(err)
	}
	f.work(t, WorkerOptions{Handler: func(context.Context, *Job) (*schemas.Result, error) {
		return &schemas.Result{Status: schemas.Succeeded}, nil
	}})
	if rec := f.await(t, second.TaskID); rec.Status != schemas.Succeeded {
		t.Errorf("second task = %+v", rec)
	}
	store, err := f.js.ObjectStore(t.Context(), bucketObjects)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range []schemas.Record{first, second} {
		eventually(t, "the removal of data", func() error {
			_, err := store.GetInfo(t.Context(), "acme/"+rec.TaskID+dataName)
			if !errors.Is(err, jetstream.ErrObjectNotFound) {
				return fmt.Errorf("GetInfo = %w", err)
			}
			return nil
		})
	}
	f.usage.mu.Lock()
	f.usage.byTenant = nil // as after usageAge
	f.usage.mu.Unlock()
	f.submit(t, "4", data)
}
