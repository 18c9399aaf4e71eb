package jobs

import (
	"strings"
	"testing"

	"github.com/codefleet/codefleet/schemas"
)

// A worker leaves the tasks of tenants that it does not accept to another worker.
func TestAccept(t *testing.T) {
	f := newFleet(t)
	f.work(t, WorkerOptions{
		Name: "weak", Handler: succeed,
		Tenants: Tenants{Accept: func(tenant string) bool { return tenant != "strict" }},
	})
	f.publish(t, "tasks.default.normal.strict", ceHeader("first"), `{"code":"1"}`)
	f.publish(t, "tasks.default.normal.acme", ceHeader("second"), `{"code":"2"}`)
	if rec := f.awaitForeign(t, "/foreign", "second"); rec.Worker != "weak" {
		t.Errorf("worker = %s, want weak", rec.Worker)
	}
	id := TaskID("strict", "/foreign", "first")
	if rec, err := f.Record(t.Context(), "strict", id); err == nil {
		t.Errorf("the weak worker claimed a task that it does not accept: %+v", rec)
	}
	f.work(t, WorkerOptions{Name: "strong", Handler: succeed})
	eventually(t, "the task of strict", func() error { _, err := f.Record(t.Context(), "strict", id); return err })
	rec, err := f.Wait(t.Context(), "strict", id)
	if err != nil || rec.Status != schemas.Succeeded || rec.Worker != "strong" || rec.Run != 1 {
		t.Errorf("record = %+v, %v, want one run by strong", rec, err)
	}
}

// JSON that no task could have as its inputs is refused in other events as well.
func TestDataOfOtherEvents(t *testing.T) {
	f := newFleet(t)
	for data, want := range map[string]string{
		strings.Repeat("[", 501) + strings.Repeat("]", 501): "bad_data: data: it is nested more than 500 levels deep",
		strings.Repeat("9", 4301):                           "bad_data: data: ",
		"1e400":                                             "bad_data: data: ",
		`{"a":1,"a":2}`:                                     "bad_data: data: ",
		strings.Repeat("[", 500) + strings.Repeat("]", 500): "",
		"no JSON": "", "": "",
	} {
		ev := taskEvent("1", "")
		ev.SetType("shop.order")
		ev.DataEncoded = []byte(data)
		err := f.PublishEvent(t.Context(), "acme", ev)
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("PublishEvent with data %.20q = %v, want %q…", data, err, want)
		}
	}
}
