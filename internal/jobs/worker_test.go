package jobs

import (
	gocmp "cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

func ceHeader(id string, more ...string) nats.Header {
	h := nats.Header{
		"ce-specversion": {"1.0"}, "ce-id": {id}, "ce-source": {"/foreign"}, "ce-type": {schemas.TypeTask},
		"ce-datacontenttype": {"application/json"},
	}
	for i := 0; i < len(more); i += 2 {
		h[more[i]] = []string{more[i+1]}
	}
	return h
}

// A foreign producer needs only NATS and CloudEvents to submit tasks.
func TestForeignProducer(t *testing.T) {
	f := newFleet(t)
	f.work(t, WorkerOptions{Handler: succeed, Pools: []string{"default", "gpu"}})
	f.publish(t, "tasks.gpu.high.acme", ceHeader("binary"), `{"code":"b"}`)
	f.publish(t, "tasks.default.low.acme", nats.Header{"Content-Type": {"application/cloudevents+json"}},
		`{"specversion":"1.0","id":"structured","source":"/foreign","type":"codefleet.task.v1","data":{"code":"s"}}`)
	f.awaitForeign(t, "/foreign", "binary")
	f.publish(t, "tasks.default.normal.acme", ceHeader("binary"), `{"code":"b"}`) // the same event on another subject
	for id, want := range map[string]string{"binary": "gpu high b", "structured": "default low s"} {
		rec := f.awaitForeign(t, "/foreign", id)
		if got := rec.Pool + " " + rec.Priority + " " + rec.Result.Output; got != want || rec.Run != 1 {
			t.Errorf("task %s = %q run %d, want %q run 1", id, got, rec.Run, want)
		}
	}
	f.awaitEmpty(t)
}

// awaitForeign waits for a task that was not submitted through this client.
func (f *fleet) awaitForeign(t testing.TB, source, key string) schemas.Record {
	t.Helper()
	id := TaskID("acme", source, key)
	eventually(t, "record of "+key, func() error { _, err := f.Record(t.Context(), "acme", id); return err })
	return f.await(t, id)
}

// A refused event is dead-lettered with the reason, and its producer gets a result if replyto is valid.
func TestRefused(t *testing.T) {
	policy := func(tenant string) (TenantPolicy, bool) {
		return TenantPolicy{Pools: []string{"default"}, MaxMemory: 100, MaxOutput: 100}, tenant == "acme"
	}
	f := newFleet(t, func(o *Options) { o.Policy = policy })
	f.work(t, WorkerOptions{Handler: succeed, Pools: []string{"default", "gpu"}})
	to, replies := f.inbox(t)
	for id, c := range map[string]struct {
		header  nats.Header
		data    string
		subject string
		want    string
	}{
		"schema": {ceHeader("schema", "ce-replyto", to), `{"code":1}`, "", "bad_data: /code: "},
		"json":   {ceHeader("json", "ce-replyto", to), `{"code"`, "", "bad_data: not valid JSON"},
		"none":   {ceHeader("none", "ce-replyto", to), ``, "", "bad_data: the event has no data"},
		"two":    {ceHeader("two", "ce-replyto", to), `{"code":"x","description":"y"}`, "", "bad_data: /: "},
		"type":   {ceHeader("type", "ce-replyto", to, "ce-type", "other"), `{"code":"x"}`, "", "bad_event: type: "},
		"tenant": {
			ceHeader("tenant", "ce-replyto", to, "ce-tenant", "other"), `{"code":"x"}`, "",
			"tenant_mismatch: tenant: ",
		},
		"workspace": {
			ceHeader("workspace", "ce-replyto", to, "ce-workspace", "A b"), `{"code":"x"}`, "",
			"bad_name: workspace ",
		},
		"priority": {
			ceHeader("priority", "ce-replyto", to, "ce-priority", "high"), `{"code":"x"}`, "",
			"bad_event: priority: ",
		},
		"pool": {ceHeader("pool", "ce-replyto", to), `{"code":"x","pool":"gpu"}`, "", "bad_data: /pool: "},
		"pattern": {
			ceHeader("pattern", "ce-replyto", to), `{"code":"x","artifacts":["*","["]}`, "",
			"bad_data: /artifacts/1: ",
		},
		"files": {
			ceHeader("files", "ce-replyto", to),
			`{"code":"x","files":[{"name":"a/x","text":"1"},{"name":"x","text":"2"},{"name":"a/x","text":"3"}]}`, "",
			"bad_data: /files/2/name: two files",
		},
		"policy": {
			ceHeader("policy", "ce-replyto", to), `{"code":"x"}`, "tasks.gpu.normal.acme",
			"not_allowed: /pool: ",
		},
		"memory": {
			ceHeader("memory", "ce-replyto", to), `{"code":"x","limits":{"memory_mb":101}}`, "",
			"not_allowed: /limits/memory_mb: ",
		},
		"output": {
			ceHeader("output", "ce-replyto", to), `{"code":"x","limits":{"output_bytes":101}}`, "",
			"not_allowed: /limits/output_bytes: ",
		},
		"dataref": {
			ceHeader("dataref", "ce-replyto", to, "ce-dataref", objectRef("other/x/data")), ``, "",
			"bad_event: dataref: ",
		},
		"long": {
			ceHeader("long", "ce-replyto", to, "ce-dataref", objectRef("acme/"+strings.Repeat("x", 8000))), ``, "",
			"bad_event: dataref: ",
		},
		"both": {
			ceHeader("both", "ce-replyto", to, "ce-dataref", "x"), `{"code":"x"}`, "tasks.gpu.normal.acme",
			"bad_event: dataref: the event has both",
		},
		"content": {
			ceHeader("content", "ce-replyto", to, "ce-datacontenttype", "text/plain"), `{"code":"x"}`, "",
			"bad_data: datacontenttype: ",
		},
	} {
		f.publish(t, gocmp.Or(c.subject, "tasks.default.normal.acme"), c.header, c.data)
		rec := f.awaitForeign(t, "/foreign", id)
		if rec.Status != schemas.Blocked || rec.Run != 0 || !strings.HasPrefix(rec.Result.Error.Error(), c.want) {
			t.Errorf("task %s = %s, %v, want blocked, %q…", id, rec.Status, rec.Result.Error, c.want)
		}
		var res schemas.Result
		if ev := reply(t, replies); schemas.Decode(schemas.ResultV1, ev.Data(), &res) != nil ||
			res.Status != schemas.Blocked || res.EventID != id {
			t.Errorf("reply of %s = %v, want its refusal", id, ev)
		}
	}

	// A result is not sent to another tenant's subject. A message that is not an event gets no record.
	stolen, err := f.nc.SubscribeSync("_INBOX.other.x")
	if err != nil {
		t.Fatal(err)
	}
	f.publish(t, "tasks.default.normal.acme", ceHeader("steal", "ce-replyto", "_INBOX.other.x"), `{"code":"x"}`)
	if rec := f.awaitForeign(t, "/foreign", "steal"); rec.Status != schemas.Blocked ||
		rec.Result.Error.Code != "bad_replyto" {
		t.Errorf("task steal = %+v, want blocked, bad_replyto", rec)
	}
	f.publish(t, "tasks.default.normal.acme", nil, "garbage")
	f.awaitEmpty(t)
	if msg, err := stolen.NextMsg(time.Millisecond); err == nil {
		t.Errorf("reply to another tenant's inbox = %s, want none", msg.Data)
	}
	dead, err := f.DeadLetters(t.Context(), "acme", "", 0)
	if err != nil || len(dead) != 20 {
		t.Fatalf("DeadLetters = %d, %v, want 20", len(dead), err)
	}
	if d := dead[0]; d.TaskID != "" || d.Error.Code != "bad_event" || d.Subject != "tasks.default.normal.acme" {
		t.Errorf("dead letter of garbage = %+v, want bad_event without a task id", d)
	}
	if d := dead[1]; d.TaskID == "" || d.Error.Code != "bad_replyto" || d.Event["id"] != "steal" {
		t.Errorf("dead letter of steal = %+v, want bad_replyto with a task id", d)
	}
	if _, err := f.Submit(t.Context(), "nobody", taskEvent("1", `{"code":"x"}`)); refusal(err) != "unknown_tenant" {
		t.Errorf("Submit for an unknown tenant = %v, want unknown_tenant", err)
	}
}

// A message for a closed pool, or on an invalid subject, does not stay in the queue.
func TestRefusedWithoutItsPool(t *testing.T) {
	policy := func(tenant string) (TenantPolicy, bool) {
		return TenantPolicy{Pools: []string{"default", "later"}}, tenant == "acme"
	}
	f := newFleet(t, func(o *Options) { o.Policy = policy })
	f.work(t, WorkerOptions{Handler: succeed})
	f.publish(t, "tasks.gpu.normal.acme", ceHeader("gpu"), `{"code":"x"}`)
	rec := f.awaitForeign(t, "/foreign", "gpu")
	if rec.Status != schemas.Blocked || rec.Result.Error.Code != "not_allowed" {
		t.Errorf("task of a closed pool = %s, %v, want blocked, not_allowed",
			rec.Status, rec.Result.Error)
	}
	for _, subject := range []string{"tasks.default.urgent.acme", "tasks.GPU.normal.acme"} {
		f.publish(t, subject, ceHeader(subject), `{"code":"x"}`)
	}
	f.publish(t, "tasks.later.normal.acme", ceHeader("valid"), `{"code":"x"}`) // no worker serves this pool
	forged := ceHeader("forged", "Nats-Subject", "tasks.later.normal.acme", "Nats-Sequence", "1")
	f.publish(t, "tasks.*.normal.acme", forged, `{"code":"x"}`)
	eventually(t, "removal of the invalid subjects", func() error {
		subjects, err := f.taskSubjects(t.Context())
		if diff := cmp.Diff(map[string]int{"tasks.later.normal.acme": 1}, subjects); err != nil || diff != "" {
			return fmt.Errorf("subjects (-want +got): %s, %w", diff, err)
		}
		return nil
	})
	dead, err := f.DeadLetters(t.Context(), "acme", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, d := range dead {
		got[d.Subject] = d.Error.Code
	}
	want := map[string]string{
		"tasks.gpu.normal.acme": "not_allowed", "tasks.default.urgent.acme": "bad_subject",
		"tasks.GPU.normal.acme": "bad_subject", "tasks.*.normal.acme": "bad_subject",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("dead letters (-want +got):\n%s", d)
	}
}

// A task that a tenant publishes on NATS cannot reach hosts or use limits that the tenant may not.
func TestPublishedBeyondThePolicy(t *testing.T) {
	policy := func(string) (TenantPolicy, bool) {
		return TenantPolicy{Network: []allowlist.Pattern{{Name: "example.com"}}, MaxMemory: 64}, true
	}
	f := newFleet(t, func(o *Options) { o.Policy = policy })
	f.work(t, WorkerOptions{Handler: succeed})
	for data, want := range map[string]string{
		`{"code":"x","network":{"allow":["example.com"]}}`: "",
		`{"code":"x","network":{"allow":["example.org"]}}`: "not_allowed",
		`{"code":"x","limits":{"memory_mb":65}}`:           "not_allowed",
	} {
		f.publish(t, "tasks.default.normal.acme", ceHeader(data), data)
		rec, got := f.awaitForeign(t, "/foreign", data), ""
		if rec.Result.Error != nil {
			got = rec.Result.Error.Code
		}
		if got != want || (rec.Status == schemas.Succeeded) != (want == "") {
			t.Errorf("%s = %s, %q; want %q", data, rec.Status, got, want)
		}
	}
}

func refusal(err error) string {
	if r, ok := errors.AsType[*RefusedError](err); ok {
		return r.Code
	}
	return fmt.Sprint(err)
}

func TestSubmitRefuses(t *testing.T) {
	f := newFleet(t)
	past := time.Now().Add(-time.Second).Format(time.RFC3339)
	long := strings.Repeat("9", 4301)
	for _, c := range []struct{ tenant, data, attr, value, want string }{
		{"acme", `{"code":1}`, "", "", "bad_data: /code"},
		{"acme", `{}`, "", "", "bad_data: /"},
		{"acme", `{"code":"x","inputs":{"n":[-` + long + `]}}`, "", "", "bad_data: a number has more than 4300 digits"},
		{"acme", `{"code":"x"}`, "tenant", "other", "tenant_mismatch: tenant"},
		{"acme", `{"code":"x"}`, "replyto", "tasks.default.normal.acme", "bad_replyto: replyto"},
		{"acme", `{"code":"x"}`, "replyto", "notify.acme.reply.>", "bad_replyto: replyto"},
		{"acme", `{"code":"x"}`, "replyto", "_INBOX.x", "bad_replyto: replyto"},
		{"acme", `{"code":"x"}`, "expirytime", past, "expired: expirytime"},
		{"acme", `{"code":"x"}`, "expirytime", "soon", "bad_event: expirytime"},
		{"acme", `{"code":"x"}`, "session", "a/b", "bad_name: session"},
		{"acme", `{"code":"x"}`, "dataref", "file:///etc/passwd", "bad_event: dataref"},
		{"acme", `{"code":"` + strings.Repeat("x", MaxData) + `"}`, "", "", "too_large"},
		{"A.b", `{"code":"x"}`, "", "", "bad_name: tenant"},
	} {
		ev := taskEvent("1", c.data)
		if c.attr != "" {
			ev.SetExtension(c.attr, c.value)
		}
		_, err := f.Submit(t.Context(), c.tenant, ev)
		if _, ok := errors.AsType[*RefusedError](err); !ok || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("Submit(%s %s=%s) = %v, want %s", text.Truncate(c.data, 100), c.attr, c.value, err, c.want)
		}
	}
	f.awaitEmpty(t)
}

func TestRefusedErrorHasPathOnce(t *testing.T) {
	for _, c := range []struct {
		e    RefusedError
		want string
	}{
		{RefusedError{Code: "bad_data", Path: "/pool", Message: "/pool: too long"}, "/pool: too long"},
		{RefusedError{Code: "bad_data", Path: "/pool", Message: "too long"}, "/pool: too long"},
		{RefusedError{Code: "bad_data", Message: "no data"}, "no data"},
	} {
		if got, want := c.e.Error(), "bad_data: "+c.want; got != want {
			t.Errorf("Error() = %q, want %q", got, want)
		}
		if got := c.e.asError().Message; got != c.want {
			t.Errorf("asError().Message = %q, want %q", got, c.want)
		}
	}
}

func TestDoubled(t *testing.T) {
	for _, c := range []struct {
		base time.Duration
		n    int
		want time.Duration
	}{
		{time.Second, 0, time.Second},
		{time.Second, -1, time.Second},
		{time.Second, 3, 8 * time.Second},
		{time.Second, 9, 512 * time.Second},
		{time.Second, 10, maxBackoff},
		{time.Second, maxRuns, maxBackoff},
		{24 * time.Hour, maxRuns, 24 * time.Hour}, // the longest that a task may request
		{0, maxRuns, 0},
	} {
		if got := doubled(c.base, c.n); got != c.want {
			t.Errorf("doubled(%v, %d) = %v, want %v", c.base, c.n, got, c.want)
		}
	}
}

func TestBacklogFull(t *testing.T) {
	f := newFleet(t, func(o *Options) { o.Storage.MaxBacklog = 2 })
	f.submit(t, "1", `{"code":"x"}`)
	f.submit(t, "2", `{"code":"x"}`)
	for _, code := range []string{"x", strings.Repeat("x", 300<<10)} {
		_, err := f.Submit(t.Context(), "acme", taskEvent("3", `{"code":"`+code+`"}`))
		if !errors.Is(err, ErrBacklogFull) {
			t.Errorf("Submit of %d bytes = %v, want %v", len(code), err, ErrBacklogFull)
		}
	}
	if list, err := f.listObjects(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("after the refusals, the store has %d objects, %v, want none", len(list), err)
	}
	if _, err := f.Submit(t.Context(), "other", taskEvent("3", `{"code":"x"}`)); err != nil {
		t.Errorf("Submit of another tenant = %v, want nil", err)
	}
}

// A limit below the number of queued tasks is provisioned later, because the server would delete tasks.
func TestBacklogIsLoweredWithoutLoss(t *testing.T) {
	f := newFleet(t, func(o *Options) { o.Storage.MaxBacklog = 4 })
	provisioned := func(limit int64) jetstream.StreamInfo {
		t.Helper()
		o := f.opts
		o.Storage.MaxBacklog = limit
		c := connect(t, o)
		err := c.Provision(t.Context())
		info, infoErr := c.streamInfo(t.Context(), streamTasks)
		if err := errors.Join(err, infoErr); err != nil {
			t.Fatal(err)
		}
		return *info
	}
	for _, id := range []string{"1", "2", "3"} {
		f.submit(t, id, `{"code":"x"}`)
	}
	for _, c := range []struct{ option, want int64 }{{2, 4}, {5, 5}, {6, 6}, {2, 6}} {
		info := provisioned(c.option)
		if got := info.Config.MaxMsgsPerSubject; got != c.want || info.State.Msgs != 3 {
			t.Errorf("with MaxBacklog %d: limit %d and %d tasks, want %d and 3", c.option, got, info.State.Msgs, c.want)
		}
	}
	f.work(t, WorkerOptions{Handler: succeed})
	f.awaitEmpty(t)
	if got := provisioned(2).Config.MaxMsgsPerSubject; got != 2 {
		t.Errorf("limit with MaxBacklog 2 and an empty queue = %d, want 2", got)
	}
}

// The data of a task is removed when its message is delivered again after the record was completed, and when it was
// submitted twice at once.
func TestLargeDataIsRemoved(t *testing.T) {
	f := newFleet(t)
	data := `{"code":"` + strings.Repeat("x", 300<<10) + `"}`
	for range 2 {
		if _, err := f.SubmitNew(t.Context(), "acme", taskEvent("1", data)); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := f.listObjects(t.Context()); err != nil || len(list) != 1 {
		t.Fatalf("after two submissions, the store has %d objects, %v, want one", len(list), err)
	}
	rec := f.submit(t, "1", data)
	m, _, err := f.queuedMessage(t.Context(), storedRecord{Record: rec})
	if err != nil {
		t.Fatal(err)
	}
	name, err := objectName("acme", m.Header.Get("ce-dataref"))
	if err != nil {
		t.Fatal(err)
	}
	f.work(t, WorkerOptions{Handler: func(context.Context, *Job) (*schemas.Result, error) {
		return &schemas.Result{Status: schemas.Succeeded}, nil
	}})
	f.await(t, rec.TaskID)
	f.awaitEmpty(t)
	removed := func() error {
		list, err := f.listObjects(t.Context())
		for _, o := range list {
			if strings.HasSuffix(o.Name, dataName) {
				err = errors.Join(err, fmt.Errorf("the store has %s", o.Name))
			}
		}
		return err
	}
	eventually(t, "data removed", removed)
	if err := f.putObject(t.Context(), name, []byte(data)); err != nil {
		t.Fatal(err)
	}
	f.publish(t, m.Subject, keptHeaders(m.Header), string(m.Data))
	f.awaitEmpty(t)
	eventually(t, "data removed again", removed)
}

// Data in the object store must not expire before the task may run.
func TestLargeDataIsKeptUntilNotBefore(t *testing.T) {
	f := newFleet(t, func(o *Options) { o.Storage.Retention = 7 * 24 * time.Hour })
	data := func(days, size int) string {
		at := time.Now().AddDate(0, 0, days).UTC().Format(time.RFC3339)
		return `{"not_before":"` + at + `","code":"` + strings.Repeat("x", size) + `"}`
	}
	f.submit(t, "small", data(10, 10))
	f.submit(t, "soon", data(6, inlineMax))
	_, err := f.Submit(t.Context(), "acme", taskEvent("late", data(10, inlineMax)))
	if r, ok := errors.AsType[*RefusedError](err); !ok || r.Code != errcode.BadData || r.Path != "/not_before" {
		t.Errorf("Submit of large data for later than it is kept = %v, want bad_data at /not_before", err)
	}
}

// Data and results that are too large for a message go through the object store.
func TestLarge(t *testing.T) {
	f := newFleet(t)
	to, replies := f.inbox(t)
	f.work(t, WorkerOptions{Handler: succeed})
	code := strings.Repeat("x", 3<<20)
	rec := f.await(t, f.submit(t, "1", `{"code":"`+code+`"}`, "replyto", to).TaskID)
	if rec.Status != schemas.Succeeded || rec.Result.Output != code || rec.Result.ResultRef == "" {
		t.Errorf("result = %s, %d bytes of output, ref %q; want all output and a ref",
			rec.Status, len(rec.Result.Output), rec.Result.ResultRef)
	}
	ev := reply(t, replies)
	if extension(ev, "dataref") != rec.Result.ResultRef || len(ev.Data()) > inlineMax {
		t.Errorf("reply = %d bytes, dataref %q; want a small one with the ref",
			len(ev.Data()), extension(ev, "dataref"))
	}
	if again := f.submit(t, "1", `{"code":"`+code+`"}`); again.Result.Output != code {
		t.Errorf("Submit again = %d bytes of output, want all", len(again.Result.Output))
	}
}

func TestRetries(t *testing.T) {
	f := newFleet(t)
	to, replies := f.inbox(t)
	f.work(t, WorkerOptions{Slots: 4, Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		switch n := j.Record.Run; j.Task.Code {
		case "flaky", "slow-flaky":
			if n < 3 {
				return nil, errors.New("no box")
			}
		case "broken":
			return nil, errors.New("no box")
		case "full":
			return nil, fmt.Errorf("run: %w", WithDetails(errors.New("no space"),
				schemas.Error{Code: "disk_full", Message: "m"}))
		case "permanent":
			return nil, Permanent(errors.New("no engine"))
		case "panic":
			panic("oops")
		case "failed":
			if n < 2 {
				return &schemas.Result{Status: schemas.Failed, Error: &schemas.Error{Code: "exit", Message: "1"}}, nil
			}
		case "invalid":
			return &schemas.Result{Status: schemas.Succeeded, Tools: schemas.ToolsUsed{Share: 2}}, nil
		case "nothing":
			return nil, nil
		}
		return succeed(ctx, j)
	}})
	for _, c := range []struct {
		code, more string
		status     schemas.Status
		run        int
		err        string
		outcomes   string
	}{
		{"flaky", `"retry":{"backoff_s":0.01}`, schemas.Succeeded, 3, "", "error error succeeded"},
		{"slow-flaky", `"retry":{"backoff_s":2.1}`, schemas.Succeeded, 3, "", "error error succeeded"},
		{"broken", `"retry":{"backoff_s":0.01,"attempts":2}`, schemas.Dead, 2, "attempts_exhausted", "error dead"},
		{"full", `"retry":{"backoff_s":0.01,"attempts":2}`, schemas.Dead, 2, "disk_full", "error dead"},
		{"panic", `"retry":{"backoff_s":0.01,"attempts":1}`, schemas.Dead, 1, "attempts_exhausted", "dead"},
		{"nothing", `"retry":{"attempts":1}`, schemas.Dead, 1, "attempts_exhausted", "dead"},
		{"permanent", `"retry":{}`, schemas.Dead, 1, "fleet_error", "dead"},
		{"failed", `"retry":{"backoff_s":0.01,"on":["failed"]}`, schemas.Succeeded, 2, "", "failed succeeded"},
		{"failed", `"retry":{"backoff_s":0.01}`, schemas.Failed, 1, "exit", "failed"},
		{"invalid", `"retry":{}`, schemas.Dead, 1, "invalid_result", "dead"},
	} {
		t.Run(c.code+string(c.status), func(t *testing.T) {
			t.Parallel()
			rec := f.await(t, f.submit(t, t.Name(), `{"code":"`+c.code+`",`+c.more+`}`, "replyto", to).TaskID)
			var outcomes []string
			for _, a := range rec.Attempts {
				outcomes = append(outcomes, a.Outcome)
			}
			var code string
			if rec.Result.Error != nil {
				code = rec.Result.Error.Code
			}
			if rec.Status != c.status || rec.Run != c.run || code != c.err ||
				strings.Join(outcomes, " ") != c.outcomes {
				t.Errorf("record = %s, run %d, error %q, outcomes %v; want %s, %d, %q, %s", rec.Status, rec.Run, code,
					outcomes, c.status, c.run, c.err, c.outcomes)
			}
			reply(t, replies)
		})
	}
	t.Cleanup(func() {
		dead, err := f.DeadLetters(context.WithoutCancel(t.Context()), "acme", "", 0)
		if err != nil || len(dead) != 6 {
			t.Errorf("DeadLetters = %+v, %v, want 6", dead, err)
		}
	})
}

func TestCancel(t *testing.T) {
	f := newFleet(t)
	to, replies := f.inbox(t)
	queued := f.submit(t, "queued", `{"code":"x"}`, "replyto", to)
	later := f.submit(t, "later", `{"code":"x","not_before":"2100-01-01T00:00:00Z"}`, "replyto", to)
	rec, err := f.Cancel(t.Context(), "acme", queued.TaskID)
	if err != nil || rec.Status != schemas.Cancelled || rec.Result == nil {
		t.Errorf("Cancel queued = %+v, %v, want cancelled with a result", rec, err)
	}
	reply(t, replies)

	started := make(chan struct{}, 1)
	f.work(t, WorkerOptions{Slots: 2, Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		started <- struct{}{}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}})
	eventually(t, "timer", func() error {
		rec, err := f.Record(t.Context(), "acme", later.TaskID)
		if err == nil && rec.QueueSeq != 0 {
			err = errors.New("still in TASKS")
		}
		return err
	})
	if rec, err = f.Cancel(t.Context(), "acme", later.TaskID); err != nil || rec.Status != schemas.Cancelled {
		t.Errorf("Cancel delayed = %+v, %v, want cancelled", rec, err)
	}
	reply(t, replies)

	running := f.submit(t, "running", `{"code":"x"}`, "replyto", to)
	<-started
	began, endLag := time.Now(), faulttest.MeasureLag()
	if rec, err = f.Cancel(t.Context(), "acme", running.TaskID); err != nil || !rec.CancelRequested ||
		rec.Status != schemas.Running {
		t.Errorf("Cancel running = %+v, %v, want a request while it runs", rec, err)
	}
	rec = f.await(t, running.TaskID)
	if rec.Status != schemas.Cancelled || rec.Result.Error.Code != "cancelled" {
		t.Errorf("record = %+v, want cancelled", rec)
	}
	if elapsed := time.Since(began) - endLag(); elapsed > 2*time.Second {
		t.Errorf("cancellation took %v, want at most 2s: the notification was lost", elapsed)
	}
	reply(t, replies)
	if rec, err := f.Cancel(t.Context(), "acme", running.TaskID); err != nil || rec.Status != schemas.Cancelled {
		t.Errorf("Cancel again = %+v, %v, want cancelled", rec, err)
	}
	if _, err := f.Cancel(t.Context(), "acme", TaskID("acme", "x", "y")); !errors.Is(err, ErrUnknownTask) {
		t.Errorf("Cancel unknown = %v, want %v", err, ErrUnknownTask)
	}
	f.awaitEmpty(t)
}

// A task that is cancelled before its submission does not run, whether or not the submission looks for the task.
func TestCancelEarly(t *testing.T) {
	f := newFleet(t)
	f.work(t, WorkerOptions{Slots: 1, Handler: func(_ context.Context, j *Job) (*schemas.Result, error) {
		t.Errorf("task %s runs, although it was cancelled", j.Record.EventID)
		return &schemas.Result{Status: schemas.Succeeded}, nil
	}})
	for id, submit := range map[string]func(context.Context, string, event.Event) (schemas.Record, error){
		"known": f.Submit, "new": f.SubmitNew,
	} {
		ev := taskEvent(id, `{"code":"x"}`)
		for range 2 {
			rec, err := f.CancelEarly(t.Context(), "acme", ev)
			if err != nil || rec.Status != schemas.Cancelled || rec.Result == nil {
				t.Errorf("CancelEarly = %+v, %v, want cancelled with a result", rec, err)
			}
		}
		rec, err := submit(t.Context(), "acme", ev)
		if err != nil || rec.Status != schemas.Cancelled {
			t.Errorf("submit of %s = %+v, %v, want the cancelled task", id, rec, err)
		}
	}
	f.awaitEmpty(t)
	waiting := f.submit(t, "waiting", `{"code":"x","not_before":"2100-01-01T00:00:00Z"}`)
	other := taskEvent("waiting", `{"code":"y"}`)
	if rec, err := f.CancelEarly(t.Context(), "acme", other); err != nil || rec.TaskID != waiting.TaskID ||
		rec.Status != schemas.Cancelled {
		t.Errorf("CancelEarly of a task that exists = %+v, %v, want it cancelled", rec, err)
	}
	refused := taskEvent("refused", `{}`)
	if _, err := f.CancelEarly(t.Context(), "acme", refused); err == nil {
		t.Error("CancelEarly of an invalid task succeeds, want it refused")
	}
}

// Cancel also removes the timer of an earlier version, whose subject does not name the run.
func TestCancelEarlierTimer(t *testing.T) {
	f := newFleet(t)
	const tenant = "acme-eu"
	rec, err := f.Submit(t.Context(), tenant, taskEvent("later", `{"code":"x","not_before":"2100-01-01T00:00:00Z"}`))
	if err != nil {
		t.Fatal(err)
	}
	f.work(t, WorkerOptions{Handler: succeed})
	s, err := f.js.Stream(t.Context(), streamDelayed)
	if err != nil {
		t.Fatal(err)
	}
	var timer *jetstream.RawStreamMsg
	eventually(t, "timer", func() (err error) {
		timer, err = s.GetLastMsgForSubject(t.Context(), delayedSubject(tenant, rec.TaskID, 0))
		return err
	})
	f.awaitEmpty(t)
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	earlier := &nats.Msg{
		Subject: "delayed." + tenant + "." + rec.TaskID, Header: keptHeaders(timer.Header), Data: timer.Data,
	}
	for _, name := range []string{"Nats-Schedule", "Nats-Schedule-Target"} {
		earlier.Header.Set(name, timer.Header.Get(name))
	}
	if _, err := f.js.PublishMsg(t.Context(), earlier); err != nil {
		t.Fatal(err)
	}
	if rec, err = f.Cancel(t.Context(), tenant, rec.TaskID); err != nil || rec.Status != schemas.Cancelled {
		t.Errorf("Cancel = %+v, %v, want cancelled", rec, err)
	}
	if info, err := s.Info(t.Context()); err != nil || info.State.Msgs != 0 {
		t.Errorf("DELAYED has %d messages, %v, want none", info.State.Msgs, err)
	}
}

func TestDeadlines(t *testing.T) {
	f := newFleet(t)
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339Nano) }
	soon := in(3 * time.Second)
	queued := f.submit(t, "queued", `{"code":"x"}`, "expirytime", soon)
	eventually(t, "expiry", func() error {
		if time.Now().Before(queued.ExpiresAt) {
			return errors.New("not yet")
		}
		return nil
	})
	if again := f.submit(t, "queued", `{"code":"x"}`, "expirytime", soon); again.TaskID != queued.TaskID {
		t.Errorf("the same submission after its expirytime is %s, want the task %s", again.TaskID, queued.TaskID)
	}
	started := make(chan struct{}, 1)
	f.work(t, WorkerOptions{Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		if j.Task.Code == "hang" {
			started <- struct{}{}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return succeed(ctx, j)
	}})
	running := f.submit(t, "running", `{"code":"hang"}`, "expirytime", in(10*time.Second))
	<-started
	for id, run := range map[string]int{queued.TaskID: 0, running.TaskID: 1} {
		rec := f.await(t, id)
		if rec.Status != schemas.Expired || rec.Run != run || rec.Result.Error.Code != "expired" {
			t.Errorf("record = %+v, want expired in run %d", rec, run)
		}
	}
	at := time.Now().Add(700 * time.Millisecond)
	rec := f.await(t, f.submit(t, "later", `{"code":"x","not_before":"`+at.UTC().Format(time.RFC3339Nano)+`"}`).TaskID)
	if rec.Status != schemas.Succeeded || rec.Run != 1 || rec.StartedAt.Before(at) {
		t.Errorf("task with not_before %v = %+v, want it to succeed in run 1 after that", at, rec)
	}
	f.awaitEmpty(t)
}

// A worker that shuts down requeues its tasks, and their runs do not count as attempts.
func TestDrain(t *testing.T) {
	f := newFleet(t)
	started := make(chan struct{}, 2)
	hang := func(ctx context.Context, _ *Job) (*schemas.Result, error) {
		started <- struct{}{}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	w := NewWorker(f.Client, WorkerOptions{Handler: hang, Name: "first"})
	accept, stop := context.WithCancel(t.Context())
	work, cut := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(accept, work) }()
	rec := f.submit(t, "1", `{"code":"x","retry":{"attempts":1}}`)
	<-started
	stop()
	eventually(t, "draining", func() error {
		if info := w.Info(); info.State != "draining" || info.Busy != 1 {
			return fmt.Errorf("worker = %+v, want it draining and busy", info)
		}
		return nil
	})
	cut()
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	waiting, err := f.Record(t.Context(), "acme", rec.TaskID)
	if err != nil || waiting.Status != schemas.RetryWait || waiting.Attempts[0].Outcome != "drained" {
		t.Errorf("record = %+v, %v, want retry_wait after a drained run", waiting, err)
	}
	f.work(t, WorkerOptions{Handler: succeed, Name: "second"})
	if rec := f.await(t, rec.TaskID); rec.Status != schemas.Succeeded || rec.Run != 2 || rec.Worker != "second" {
		t.Errorf("record = %+v, want run 2 of second to succeed", rec)
	}
}

// A task that crashes its workers ends dead when it has no attempts left.
func TestPoison(t *testing.T) {
	f := newFleet(t, func(o *Options) { o.AckWait = 600 * time.Millisecond })
	var runs atomic.Int32
	rec := f.submit(t, "1", `{"code":"x","retry":{"attempts":2}}`)
	for range 2 {
		f.claimAndDisappear(t)
	}
	f.work(t, WorkerOptions{Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		runs.Add(1)
		return succeed(ctx, j)
	}})
	rec = f.await(t, rec.TaskID)
	if rec.Status != schemas.Dead || rec.Result.Error.Code != "worker_lost" || runs.Load() != 0 {
		t.Errorf("record = %+v after %d more runs, want dead after none", rec, runs.Load())
	}
	dead, err := f.DeadLetters(t.Context(), "acme", "", 1)
	if err != nil || len(dead) != 1 || dead[0].TaskID != rec.TaskID || dead[0].Error.Code != "worker_lost" {
		t.Errorf("DeadLetters = %+v, %v, want worker_lost", dead, err)
	}
}

// After a crash between record and reply, the next worker sends the reply.
func TestReplyAgain(t *testing.T) {
	f := newFleet(t, func(o *Options) { o.AckWait = 600 * time.Millisecond })
	to, replies := f.inbox(t)
	rec := f.submit(t, "1", `{"code":"x"}`, "replyto", to)
	w := NewWorker(f.Client, WorkerOptions{Handler: succeed})
	r, err := w.claim(t.Context(), f.fetch(t, w.lanes), nil)
	if err != nil {
		t.Fatal(err)
	}
	res := &schemas.Result{Status: schemas.Succeeded}
	r.fill(res)
	if err := r.update(t.Context(), func(e *storedRecord) {
		e.Status, e.EndedAt, e.Result = res.Status, res.EndedAt, res
	}); err != nil {
		t.Fatal(err)
	}
	w.lanes.close()
	f.work(t, WorkerOptions{Handler: func(context.Context, *Job) (*schemas.Result, error) {
		t.Error("the task ran again")
		return nil, nil
	}})
	if ev := reply(t, replies); ev.Subject() != rec.TaskID {
		t.Errorf("reply = %v, want the task's", ev)
	}
	f.awaitEmpty(t)
}

func TestWatch(t *testing.T) {
	f := newFleet(t)
	f.work(t, WorkerOptions{Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		j.Emit(ctx, schemas.Progress{Stage: "run"})
		for i := range 5 {
			j.Emit(ctx, schemas.Progress{Stream: "stdout", Text: strconv.Itoa(i)})
		}
		return succeed(ctx, j)
	}})
	rec := f.submit(t, "1", `{"code":"x"}`)
	watch := func(from uint64) (seqs []uint64, text string) {
		err := f.Watch(t.Context(), "acme", rec.TaskID, from, nil, func(seq uint64, p schemas.Progress) error {
			seqs, text = append(seqs, seq), text+p.Stage+p.Text+" "
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return seqs, text
	}
	seqs, text := watch(0)
	if want := "run 0 1 2 3 4 succeeded "; text != want {
		t.Errorf("Watch = %q, want %q", text, want)
	}
	if _, text := watch(seqs[3]); text != "3 4 succeeded " {
		t.Errorf("Watch from %d = %q, want 3 and 4, and the end", seqs[3], text)
	}
	enough := errors.New("enough")
	if err := f.Watch(t.Context(), "acme", rec.TaskID, 0, nil,
		func(uint64, schemas.Progress) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("Watch = %v, want the callback's error", err)
	}
	if err := f.Watch(t.Context(), "acme", TaskID("a", "b", "c"), 0, nil, nil); !errors.Is(err, ErrUnknownTask) {
		t.Errorf("Watch = %v, want %v", err, ErrUnknownTask)
	}
	// The server has room for a thousand consumers of a stream, so none may stay.
	stream, err := f.js.Stream(t.Context(), streamLogs)
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Consumers; n != 0 {
		t.Errorf("%d consumers after all watches have ended, want none", n)
	}
}

func TestListsAndNumbers(t *testing.T) {
	f := newFleet(t)
	var want []string
	for i := range 5 {
		want = append([]string{f.submit(t, strconv.Itoa(i), `{"code":"x"}`).TaskID}, want...)
	}
	if _, err := f.Submit(t.Context(), "other", taskEvent("1", `{"code":"x","pool":"gpu"}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Cancel(t.Context(), "acme", want[0]); err != nil {
		t.Fatal(err)
	}
	list := func(o ListOptions) (ids []string) {
		all, err := f.List(t.Context(), "acme", o)
		if err != nil {
			t.Error(err)
		}
		for _, r := range all {
			ids = append(ids, r.TaskID)
		}
		return ids
	}
	if d := cmp.Diff(want, list(ListOptions{})); d != "" {
		t.Errorf("List (-want +got):\n%s", d)
	}
	if d := cmp.Diff(want[1:3], list(ListOptions{Limit: 2, Status: []schemas.Status{schemas.Queued}})); d != "" {
		t.Errorf("List queued (-want +got):\n%s", d)
	}
	backlog, err := f.Backlog(t.Context())
	if err != nil || len(backlog) != 2 || backlog[0].Pool != "default" || backlog[0].Queued != 4 ||
		backlog[1].Queued != 1 || backlog[0].OldestAgeS <= 0 {
		t.Errorf("Backlog = %+v, %v, want 4 and 1 queued", backlog, err)
	}
	release := make(chan struct{})
	stop := f.work(t, WorkerOptions{
		Name: "a worker", Slots: 3,
		Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
			<-release
			return succeed(ctx, j)
		}, Hooks: Hooks{Info: func() schemas.Worker { return schemas.Worker{Version: "v1"} }},
	})
	eventually(t, "running", func() error {
		backlog, err := f.Backlog(t.Context())
		if err == nil && (backlog[0].Running != 3 || backlog[0].Queued != 1) {
			err = fmt.Errorf("backlog = %+v, want 3 running and 1 queued", backlog)
		}
		return err
	})
	workers, err := f.Workers(t.Context())
	if err != nil || len(workers) != 1 || workers[0].Name != "a worker" || workers[0].Slots != 3 ||
		workers[0].Version != "v1" {
		t.Errorf("Workers = %+v, %v, want the one worker", workers, err)
	}
	close(release)
	for _, id := range want {
		f.await(t, id)
	}
	stop()
	if workers, err := f.Workers(t.Context()); err != nil || len(workers) != 0 {
		t.Errorf("Workers after the worker stopped = %+v, %v, want none", workers, err)
	}
}

// The record says what a task waits for while it waits.
func TestWaitsFor(t *testing.T) {
	f := newFleet(t)
	type step struct{ WaitsFor, Status string }
	var steps []step
	recordStep := func(ctx context.Context, id string) error {
		r, err := f.Record(ctx, "acme", id)
		steps = append(steps, step{r.WaitsFor, string(r.Status)})
		return err
	}
	f.work(t, WorkerOptions{Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		id := j.Record.TaskID
		return nil, errors.Join(
			j.SetWaitsFor(ctx, "memory"), recordStep(ctx, id), j.SetWaitsFor(ctx, ""), recordStep(ctx, id),
			j.SetWaitsFor(ctx, "sandbox"), recordStep(ctx, id),
			Permanent(errors.New("gone")))
	}})
	rec := f.await(t, f.submit(t, "1", `{"code":"x"}`).TaskID)
	if d := cmp.Diff([]step{{"memory", "running"}, {"", "running"}, {"sandbox", "running"}}, steps); d != "" {
		t.Errorf("records of the running task (-want +got):\n%s", d)
	}
	if rec.WaitsFor != "" || !rec.Status.Terminal() {
		t.Errorf("terminal record = %s, waits for %q, want nothing", rec.Status, rec.WaitsFor)
	}
}

// The next run of a task gets the saved program.
func TestSaveProgram(t *testing.T) {
	f := newFleet(t)
	f.work(t, WorkerOptions{Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		if j.Record.Code == "" {
			return nil, errors.Join(j.SaveProgram(ctx, "print(2)", "llm"), errors.New("lost the box"))
		}
		return succeed(ctx, j)
	}})
	rec := f.await(t, f.submit(t, "1", `{"description":"d","retry":{"backoff_s":0.01}}`).TaskID)
	if rec.Status != schemas.Succeeded || rec.Run != 2 || rec.Code != "print(2)" || rec.Result.GeneratedBy != "llm" {
		t.Errorf("record = %+v, want run 2 to succeed with the saved program", rec)
	}
}

func TestWaitEnds(t *testing.T) {
	f := newFleet(t)
	rec := f.submit(t, "1", `{"code":"x"}`)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // enough to read the record
	defer cancel()
	if got, err := f.Wait(ctx, "acme", rec.TaskID); !errors.Is(err, context.DeadlineExceeded) ||
		got.Status != schemas.Queued {
		t.Errorf("Wait = %+v, %v, want the queued record and %v", got, err, context.DeadlineExceeded)
	}
	for _, id := range []string{"", ">", TaskID("a", "b", "c")} {
		if _, err := f.Wait(t.Context(), "acme", id); !errors.Is(err, ErrUnknownTask) {
			t.Errorf("Wait(%q) = %v, want %v", id, err, ErrUnknownTask)
		}
	}
}

// The NATS user of a tenant has enough permissions to submit and wait.
func TestProducer(t *testing.T) {
	f := newFleet(t)
	opts := f.opts
	opts.Server, opts.Credentials = Server{URL: f.srv.URL()}, Credentials{User: "acme", Password: "a"}
	opts.Producer = true
	p := connect(t, opts)
	rec, err := p.Submit(t.Context(), "acme", taskEvent("1", `{"code":"x"}`, "replyto", "_INBOX.acme.me"))
	if err != nil {
		t.Fatal(err)
	}
	sub, err := p.nc.SubscribeSync("_INBOX.acme.me")
	if err != nil || p.nc.Flush() != nil {
		t.Fatal(err)
	}
	f.work(t, WorkerOptions{Handler: succeed})
	ctx, cancel := context.WithTimeout(t.Context(), hangTime)
	defer cancel()
	if rec, err = p.Wait(ctx, "acme", rec.TaskID); err != nil || rec.Status != schemas.Succeeded {
		t.Errorf("Wait = %+v, %v, want succeeded", rec, err)
	}
	if ev := reply(t, sub); ev.Subject() != rec.TaskID {
		t.Errorf("reply = %v, want the task's", ev)
	}
}

// The first run uses the handler that Prepare returned, later runs the worker's.
func TestPrepare(t *testing.T) {
	f := newFleet(t)
	var prepared, stopped atomic.Int32
	got := make(chan string, 2)
	prepare := func(_ context.Context, rec schemas.Record) (Handler, func()) {
		value := fmt.Sprint(rec.TaskID, prepared.Add(1))
		return func(context.Context, *Job) (*schemas.Result, error) {
			got <- value
			return nil, errors.New("no box")
		}, func() { stopped.Add(1) }
	}
	hooks := Hooks{Prepare: prepare}
	f.work(t, WorkerOptions{Hooks: hooks, Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		got <- fmt.Sprint("stopped ", stopped.Load())
		return succeed(ctx, j)
	}})
	rec := f.await(t, f.submit(t, "1", `{"code":"x","retry":{"backoff_s":0.01}}`).TaskID)
	if first, second := <-got, <-got; first != rec.TaskID+"1" || second != "stopped 1" || rec.Run != 2 {
		t.Errorf("handlers = %q and %q in %d runs, want %s1 and stopped 1 in 2", first, second, rec.Run, rec.TaskID)
	}
}

func TestPrepareOnceDespiteSecondClaim(t *testing.T) {
	var prepared, stopped int
	w := &Worker{opts: WorkerOptions{Hooks: Hooks{Prepare: func(context.Context, schemas.Record) (Handler, func()) {
		prepared++
		return nil, func() { stopped++ }
	}}}}
	r := &run{w: w}
	r.prepare(t.Context())
	r.prepare(t.Context()) // for a second claim, after another process changed the record
	r.release()
	if prepared != 1 || stopped != 1 {
		t.Errorf("prepared %d times and stopped %d times, want once each", prepared, stopped)
	}
}

// A second submission of an event finds the task that SubmitNew created.
func TestSubmitNew(t *testing.T) {
	f := newFleet(t)
	ev := taskEvent("1", `{"code":"x"}`)
	first, err := f.SubmitNew(t.Context(), "acme", ev)
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.Submit(t.Context(), "acme", ev)
	if err != nil || again.TaskID != first.TaskID {
		t.Errorf("Submit = %+v, %v, want task %s", again, err, first.TaskID)
	}
}
