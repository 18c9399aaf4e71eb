package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// storedBytes returns the size of a stream on disk.
func storedBytes(t *testing.T, f *fleet, stream string) uint64 {
	t.Helper()
	return streamState(t, f, stream).Bytes
}

func streamState(t *testing.T, f *fleet, stream string) jetstream.StreamState {
	t.Helper()
	s, err := f.js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.State
}

// TestDeadLettersOfInvalidEventsAreTruncated publishes large invalid events. Only their beginnings are kept, with what
// identifies them.
func TestDeadLettersOfInvalidEventsAreTruncated(t *testing.T) {
	f := newFleet(t)
	large := strings.Repeat("x", 700<<10)
	const events = 20
	for i := range events / 2 {
		f.publish(t, "tasks.default.normal.acme", ceHeader(fmt.Sprint("a", i)), `{"code":1,"x":"`+large+`"}`)
		f.publish(t, "tasks.default.normal.acme", ceHeader(fmt.Sprint("b", i), "ce-dataschema", large[:50<<10],
			deadTask, TaskID("acme", "/foreign", "valid")), "")
	}
	forged := ceHeader("valid", deadCut, "1", strings.ToLower(deadTask), "x", deadTask, "x")
	f.publish(t, "tasks.default.normal.acme", forged, `{"code":"`+large+`"}`)
	f.work(t, WorkerOptions{Attempts: 1, Handler: func(context.Context, *Job) (*schemas.Result, error) {
		return nil, Permanent(errors.New("no"))
	}})
	eventually(t, "the dead letters", func() error {
		letters, err := f.DeadLetters(t.Context(), "acme", "", events+2)
		if err == nil && len(letters) != events+1 {
			err = fmt.Errorf("%d letters, want all", len(letters))
		}
		if err != nil {
			return err
		}
		for _, d := range letters {
			undecodable := strings.HasPrefix(d.Event["id"], "b") // such an event has no task id
			if d.TaskID == "" && !undecodable || d.Error.Code == "" || d.Event["id"] == "" ||
				d.Event["source"] != "/foreign" {
				t.Errorf("dead letter = %+v, want its identity and its error", d)
			}
		}
		return nil
	})
	if n := storedBytes(t, f, streamDead); n > 1<<20 {
		t.Errorf("%d dead letters take %d bytes, want at most 1 MiB", events+1, n)
	}
	var refused *NotRedrivableError
	if _, err := f.Redrive(t.Context(), "acme", TaskID("acme", "/foreign", "a1")); !errors.As(err, &refused) ||
		!strings.Contains(refused.Reason, "only its beginning") {
		t.Errorf("Redrive of a truncated event = %v, want a *NotRedrivableError that says so", err)
	}
	if rec, err := f.Redrive(t.Context(), "acme", TaskID("acme", "/foreign", "valid")); err != nil {
		t.Errorf("Redrive of a valid task = %+v, %v, want it queued", rec, err)
	}
}

// TestLargeForeignHeaders publishes tasks with headers that leave no room for the fleet's own. Those that the fleet
// does not read are no obstacle to a delay or a dead letter; tasks with others are refused.
func TestLargeForeignHeaders(t *testing.T) {
	f := newFleet(t)
	const lane = "tasks.default.normal.acme"
	pad := strings.Repeat("x", 64_000)
	f.publish(t, lane, ceHeader("later", "X-Pad", pad), `{"code":"x","not_before":"9000-01-01T00:00:00Z"}`)
	f.publish(t, lane, ceHeader("invalid", "X-Pad", pad), `{"code":1}`)
	f.publish(t, lane, ceHeader("wide", "Codefleet-Pad", pad), `{"code":"x"}`)
	f.publish(t, lane, ceHeader("fails", "X-Pad", pad), `{"code":"x"}`)
	f.work(t, WorkerOptions{Attempts: 1, Handler: func(context.Context, *Job) (*schemas.Result, error) {
		return nil, Permanent(errors.New(strings.Repeat("\x01é", 30_000)))
	}})
	for id, want := range map[string]schemas.Status{
		"invalid": schemas.Blocked, "wide": schemas.Blocked, "fails": schemas.Dead,
	} {
		if rec := f.awaitForeign(t, "/foreign", id); rec.Status != want {
			t.Errorf("task %s = %+v, want %s", id, rec, want)
		}
	}
	f.awaitEmpty(t)
	letters, err := f.DeadLetters(t.Context(), "acme", "", 10)
	if err != nil || len(letters) != 3 {
		t.Errorf("DeadLetters = %d, %v, want 3", len(letters), err)
	}
	stream, err := f.js.Stream(t.Context(), streamDelayed)
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.GetLastMsgForSubject(t.Context(), "delayed.acme.>")
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339Nano, strings.TrimPrefix(m.Header.Get("Nats-Schedule"), "@at "))
	if left := time.Until(at); err != nil || left < maxDelay/2 || left > maxDelay || m.Header.Get("X-Pad") != "" {
		t.Errorf("the task is delayed until %v, %v, want about %v from now, and no foreign header", at, err, maxDelay)
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
	next := events
	eventually(t, "the removal", func() error { // which a random letter causes
		f.publish(t, "tasks.default.normal.acme", ceHeader(strconv.Itoa(next)), "{")
		next++
		letters, err := f.DeadLetters(t.Context(), "acme", "", 1000)
		if n := len(letters); n == 0 || n > 5+trimInterval || letters[0].TaskID == "" {
			return fmt.Errorf("%d letters, %w", n, err)
		}
		return nil
	})
	if letters, err := f.DeadLetters(t.Context(), "other", "", events); len(letters) != 1 {
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
	_, err := f.Submit(t.Context(), "idle", taskEvent("1", `{"code":"`+strings.Repeat("x", 2<<20)+`"}`))
	r, ok := errors.AsType[*RefusedError](err)
	if !ok || r.Code != errcode.TooLarge || r.Message != "the data is 2097163 bytes; the limit is 2097152 "+
		"(queue.payload_mb)" || !strings.Contains(r.Hint, "queue.payload_mb") {
		t.Errorf("Submit of data above the limit = %+v, want %s with both sizes and the setting", err, errcode.TooLarge)
	}
	if _, err := f.Submit(t.Context(), "other", taskEvent("3", data)); err != nil {
		t.Errorf("Submit of another tenant = %v, want nil", err)
	}
	f.submit(t, "small", `{"code":"x"}`)
	if _, err := f.Cancel(t.Context(), "acme", first.TaskID); err != nil {
		t.Fatal(err)
	}
	f.work(t, WorkerOptions{Handler: func(context.Context, *Job) (*schemas.Result, error) {
		return &schemas.Result{Status: schemas.Succeeded}, nil
	}})
	if rec := f.await(t, second.TaskID); rec.Status != schemas.Succeeded {
		t.Errorf("second task = %+v, want succeeded", rec)
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
	f.forgetSizes()
	f.submit(t, "4", data)
}

// TestReadOfRemovedData removes an object after a read of it has begun: the content first, as the read finds it, and
// then the object.
func TestReadOfRemovedData(t *testing.T) {
	f := newFleet(t)
	ctx := t.Context()
	if err := f.putObject(ctx, "acme/x/data", []byte("data")); err != nil {
		t.Fatal(err)
	}
	stream, err := f.js.Stream(ctx, "OBJ_"+bucketObjects)
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSubject("$O."+bucketObjects+".C.>"))
	}
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := f.getObject(ctx, "acme/x/data")
		read <- err
	}()
	eventually(t, "a read that waits for the content", func() error {
		info, err := stream.Info(ctx)
		if err == nil && info.State.Consumers == 0 {
			err = errors.New("the stream has no consumer")
		}
		return err
	})
	if err := f.dropObject(ctx, "acme/x/data"); err != nil {
		t.Fatal(err)
	}
	if err := <-read; !objectMissing(err) {
		t.Errorf("the read returns %v, want %v", err, jetstream.ErrObjectNotFound)
	}
}

// forgetSizes makes the client list the objects again, as after sizesAge.
func (f *fleet) forgetSizes() {
	f.sizes.mu.Lock()
	defer f.sizes.mu.Unlock()
	f.sizes.byTenant = nil
}

// TestLargeResultsAreBounded completes tasks with more large results than a tenant may have in the queue. The oldest
// are removed: their records stay and say so. Results of other tenants stay.
func TestLargeResultsAreBounded(t *testing.T) {
	f := newFleet(t, func(o *Options) { o.Storage.PayloadBytes = 2 << 20 })
	f.work(t, WorkerOptions{Handler: func(_ context.Context, j *Job) (*schemas.Result, error) {
		n, err := strconv.Atoi(j.Task.Code)
		return &schemas.Result{Status: schemas.Succeeded, Output: strings.Repeat("x", n)}, err
	}})
	to, replies := f.inbox(t)
	run := func(tenant, id string, size int) string {
		ev := taskEvent(id, fmt.Sprintf(`{"code":"%d"}`, size))
		if id == "huge" {
			ev.SetExtension("replyto", to)
		}
		rec, err := f.Submit(t.Context(), tenant, ev)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Wait(t.Context(), tenant, rec.TaskID); err != nil {
			t.Fatal(err)
		}
		return rec.TaskID
	}
	whole := func(tenant, id string, size int) error {
		rec, err := f.Record(t.Context(), tenant, id)
		if err != nil || rec.Status != schemas.Succeeded {
			t.Fatalf("Record = %+v, %v, want succeeded", rec, err)
		}
		if rec.Result.ResultRef != "" && len(rec.Result.Output) == size && len(rec.Result.Guardrails) == 0 {
			return nil
		}
		if n := rec.Result.Guardrails; rec.Result.ResultRef != "" || rec.Result.Output != "" || len(n) != 1 ||
			n[0].Rule != "result" || !strings.Contains(n[0].Message, "queue.payload_mb") {
			t.Errorf("record without its large result = %+v, %+v, want a finding that names the setting",
				rec, rec.Result)
		}
		return errors.New("no longer kept")
	}
	const size = 400 << 10
	other := run("other", "1", size)
	var ids []string
	for i := range 12 {
		ids = append(ids, run("acme", strconv.Itoa(i), size))
	}
	if err := whole("other", other, size); err != nil {
		t.Errorf("result of another tenant = %v, want it kept", err)
	}
	kept := 0
	for i, id := range ids {
		switch err := whole("acme", id, size); {
		case err == nil:
			kept++
		case kept > 0:
			t.Errorf("result %d of %d was removed before an older one", i, len(ids))
		}
	}
	if kept < 3 || kept > 5 {
		t.Errorf("%d results of %d bytes are kept, want 3 to 5 in 2 MiB", kept, size)
	}
	// A result that alone exceeds the limit does not remove others, and its record says so at once.
	if huge := run("acme", "huge", 3<<20); whole("acme", huge, 3<<20) == nil || whole("acme", ids[11], size) != nil {
		t.Error("a result of 3 MiB was kept, or others were removed for it; want neither")
	}
	var res schemas.Result
	if ev := reply(t, replies); schemas.Decode(schemas.ResultV1, ev.Data(), &res) != nil ||
		res.Status != schemas.Succeeded || len(res.Guardrails) != 1 {
		t.Errorf("reply = %v, want the result that the record has", ev)
	}
	f.awaitEmpty(t)
}

// A result that is larger than any object is not kept, and its record says so.
func TestResultAboveTheLimitOfObjects(t *testing.T) {
	f := newFleet(t)
	rec := storedRecord{Record: schemas.Record{TaskID: "x", Tenant: "acme"}}
	rec.Result = &schemas.Result{Status: schemas.Succeeded, Output: strings.Repeat("x", maxObject)}
	if _, err := f.encodeRecord(t.Context(), &rec); err != nil {
		t.Fatal(err)
	}
	r := rec.Result
	if r.ResultRef != "" || r.Output != "" || len(r.Guardrails) != 1 ||
		!strings.HasSuffix(r.Guardrails[0].Message, "larger than 64 MiB") {
		t.Errorf("result = %+v, want a finding that names the limit", r)
	}
	if n := storedBytes(t, f, "OBJ_"+bucketObjects); n != 0 {
		t.Errorf("the object store has %d bytes, want none", n)
	}
}

// TestDataOfDeadLettersIsBounded dead-letters tasks with more data than a tenant may have in the queue. Tasks whose
// data is left can be redriven; for the others, the error says why not. None of the data counts against new tasks.
func TestDataOfDeadLettersIsBounded(t *testing.T) {
	f := newFleet(t, func(o *Options) { o.Storage.PayloadBytes = 2 << 20 })
	var healed atomic.Bool
	f.work(t, WorkerOptions{Attempts: 1, Handler: failing(&healed)})
	large := `{"code":"` + strings.Repeat("x", 700<<10) + `"}`
	var ids []string
	for i := range 10 {
		id := fmt.Sprint("a", i)
		if i%2 == 0 { // in the message
			f.publish(t, "tasks.default.normal.acme", ceHeader(id), large)
			ids = append(ids, f.awaitForeign(t, "/foreign", id).TaskID)
			continue
		}
		f.forgetSizes()
		ids = append(ids, f.await(t, f.submit(t, id, large).TaskID).TaskID)
		f.awaitEmpty(t) // then its data counts no longer
	}
	f.awaitEmpty(t)
	if n := storedBytes(t, f, streamDead); n > 1<<20 {
		t.Errorf("%d dead letters take %d bytes, want at most 1 MiB", len(ids), n)
	}
	if n := storedBytes(t, f, "OBJ_"+bucketObjects); n > 3<<20 {
		t.Errorf("the object store has %d bytes, want about 2 MiB", n)
	}
	healed.Store(true)
	redriven := 0
	for i, id := range ids {
		f.forgetSizes()
		_, err := f.Redrive(t.Context(), "acme", id)
		refused, isRefused := errors.AsType[*NotRedrivableError](err)
		switch {
		case err == nil:
			redriven++
			if rec := f.await(t, id); rec.Status != schemas.Succeeded {
				t.Errorf("redriven task %d = %+v, want succeeded", i, rec)
			}
		case !isRefused || !strings.Contains(refused.Reason, "no longer kept") || redriven > 0:
			t.Errorf("Redrive of task %d = %v, want an error only for the oldest, whose data was removed", i, err)
		}
	}
	if redriven == 0 || redriven > 2 {
		t.Errorf("%d tasks of %d bytes were redriven, want 1 or 2 in 2 MiB", redriven, len(large))
	}
}
