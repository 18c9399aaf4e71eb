package ingest_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

func clientWith(t *testing.T, f *ingesttest.Fleet, token string) *client.Client {
	t.Helper()
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: token, RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestCreatedTokens creates a tenant and a token over HTTP as an operator. The token works at once and until it is
// revoked, and the tenant sees only its own tasks.
func TestCreatedTokens(t *testing.T) {
	f := ingesttest.Start(t, 2, nil)
	root := clientWith(t, f, ingesttest.Operator)
	if _, err := root.CreateTenant(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	created, err := root.CreateToken(t.Context(), client.TokenOptions{Name: "ci", Tenant: "acme"})
	if err != nil || created.CreatedBy != "operator" {
		t.Fatalf("CreateToken = %+v, %v, want one created by operator", created.Token, err)
	}
	acme := clientWith(t, f, created.Secret)
	id, err := acme.WhoAmI(t.Context())
	if err != nil || id.Tenant != "acme" || id.Name != "ci" || !slices.Equal(id.Scopes, []string{"read", "submit"}) {
		t.Errorf("WhoAmI = %+v, %v, want ci of acme, read and submit", id, err)
	}
	if _, err := acme.Tokens(t.Context(), ""); errcodeOf(err) != errcode.Forbidden {
		t.Errorf("Tokens without the scope operator = %v, want %s", err, errcode.Forbidden)
	}
	rec, err := acme.Submit(t.Context(), client.Submission{Task: client.Task{Code: "block"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = clientWith(t, f, ingesttest.Token).Get(t.Context(), rec.TaskID)
	if errcodeOf(err) != errcode.UnknownTask {
		t.Errorf("Get by another tenant = %v, want %s", err, errcode.UnknownTask)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", f.URL+"/v1/tasks/"+rec.TaskID+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+created.Secret)
	resp, err := http.DefaultClient.Do(req) //nolint:bodyclose // it is closed below
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatalf("stream: status %d, want 200", resp.StatusCode)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for buf := make([]byte, 1024); ; {
			if _, err := resp.Body.Read(buf); err != nil {
				return
			}
		}
	}()
	list, err := root.Tokens(t.Context(), "acme")
	if err != nil || len(list) != 1 || list[0].ID != created.ID {
		t.Errorf("Tokens(acme) = %+v, %v, want the new one", list, err)
	}
	if err := root.RevokeToken(t.Context(), created.ID); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(ingesttest.WaitTimeout):
		t.Error("the stream continues after the revocation, want its end")
	}
	if _, err := acme.WhoAmI(t.Context()); errcodeOf(err) != errcode.Unauthorized {
		t.Errorf("WhoAmI after the revocation = %v, want %s", err, errcode.Unauthorized)
	}
	if err := root.RevokeToken(t.Context(), created.ID); errcodeOf(err) != errcode.UnknownToken {
		t.Errorf("RevokeToken again = %v, want %s", err, errcode.UnknownToken)
	}
	if strings.Contains(f.Log.String(), created.Secret) {
		t.Error("the log has the token, want it without")
	}
}

// TestExpiredToken checks that a token is refused with 401 once it has expired.
func TestExpiredToken(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	root := clientWith(t, f, ingesttest.Operator)
	created, err := root.CreateToken(t.Context(), client.TokenOptions{
		Tenant: "default", ExpiresAt: time.Now().Add(3 * time.Second),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := clientWith(t, f, created.Secret)
	if _, err := c.WhoAmI(t.Context()); err != nil {
		t.Errorf("WhoAmI before the expiry = %v, want nil", err)
	}
	for { // until the time has come
		_, err = c.WhoAmI(t.Context())
		if err != nil || time.Now().After(created.ExpiresAt.Add(5*time.Second)) {
			break
		}
	}
	e, ok := errors.AsType[*client.APIError](err)
	if !ok || e.Status != http.StatusUnauthorized ||
		!strings.Contains(e.Message, "expired") || time.Now().Before(created.ExpiresAt) {
		t.Errorf("WhoAmI after the expiry = %v, want 401 that says so", err)
	}
	_, err = root.CreateToken(t.Context(), client.TokenOptions{Tenant: "acme", ExpiresAt: time.Now().Add(-time.Second)})
	if errcodeOf(err) != errcode.BadData {
		t.Errorf("CreateToken in the past = %v, want %s", err, errcode.BadData)
	}
}

// TestTenantOfBoth checks that a tenant that was created and was added to the settings later is listed once.
func TestTenantOfBoth(t *testing.T) {
	f := ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) { o.Access.Tenants = []string{"both"} })
	root := clientWith(t, f, ingesttest.Operator)
	if made, err := root.CreateTenant(t.Context(), "both"); err != nil || made.Settings {
		t.Fatalf("CreateTenant = %+v, %v, want one that is not from the settings", made, err)
	}
	got, err := root.Tenants(t.Context())
	if diff := cmp.Diff([]client.Tenant{{Name: "both", Settings: true}}, got); err != nil || diff != "" {
		t.Errorf("Tenants = %v (-want +got):\n%s", err, diff)
	}
}

// TestRemovedTenant checks that a tenant leaves no automation to a later one of the same name, and that tokens of a
// tenant that was removed from the settings are unknown and can be revoked.
func TestRemovedTenant(t *testing.T) {
	var gone atomic.Bool
	f := ingesttest.Start(t, 0, func(_ *ingest.Options, o *jobs.Options) {
		o.Policy = func(tenant string) (jobs.TenantPolicy, bool) {
			return jobs.TenantPolicy{}, tenant == "default" || tenant == "acme" && !gone.Load()
		}
	})
	root := clientWith(t, f, ingesttest.Operator)
	if _, err := root.CreateTenant(t.Context(), "new"); err != nil {
		t.Fatal(err)
	}
	tokenOf := func(tenant string) *client.Client {
		t.Helper()
		created, err := root.CreateToken(t.Context(), client.TokenOptions{Tenant: tenant})
		if err != nil {
			t.Fatal(err)
		}
		return clientWith(t, f, created.Secret)
	}
	task := client.Submission{Task: client.Task{Code: "1"}}
	c := tokenOf("new")
	_, err := c.AddSchedule(t.Context(), client.ScheduleSpec{Name: "s", Cron: "@hourly"}, task)
	if err == nil {
		_, err = c.AddTrigger(t.Context(), client.TriggerSpec{Name: "t", Type: "*"}, task)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := root.RemoveTenant(t.Context(), "new"); err != nil {
		t.Fatal(err)
	}
	if err := root.RemoveTenant(t.Context(), "new"); errcodeOf(err) != errcode.UnknownTenant {
		t.Errorf("RemoveTenant again = %v, want %s", err, errcode.UnknownTenant)
	}
	if _, err := root.CreateTenant(t.Context(), "new"); err != nil {
		t.Fatal(err)
	}
	c = tokenOf("new")
	schedules, err := c.Schedules(t.Context())
	triggers, errTriggers := c.Triggers(t.Context())
	if err != nil || errTriggers != nil || len(schedules)+len(triggers) != 0 {
		t.Errorf("a later tenant has the schedules %v and triggers %v (%v, %v), want none",
			schedules, triggers, err, errTriggers)
	}

	c = tokenOf("acme")
	gone.Store(true)
	if _, err := c.WhoAmI(t.Context()); errcodeOf(err) != errcode.Unauthorized {
		t.Errorf("WhoAmI with a token of a tenant that has left the settings = %v, want %s", err, errcode.Unauthorized)
	}
	if err := root.RemoveTenant(t.Context(), "acme"); err != nil {
		t.Errorf("RemoveTenant of a tenant that has left the settings = %v, want its tokens revoked", err)
	}
	if tokens, err := root.Tokens(t.Context(), "acme"); err != nil || len(tokens) != 0 {
		t.Errorf("its tokens are %v, %v, want none", tokens, err)
	}
}

// TestRetryAndRerun checks that a failed or blocked task is retried as one new task, a dead one under its own id, and
// that other tasks cannot be retried. A rerun submits a changed copy.
func TestRetryAndRerun(t *testing.T) {
	f := ingesttest.Start(t, 2, nil)
	c := clientWith(t, f, ingesttest.Token)
	run := func(code string) client.Record {
		t.Helper()
		rec, err := c.Run(t.Context(), client.Submission{
			Task: client.Task{Code: code, Inputs: json.RawMessage(`{"n":1}`)}, Workspace: "ws", Priority: "low",
		})
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	failed, blocked, dead, ok := run("fail x"), run("refuse"), run("die"), run("print 1")
	for _, rec := range []client.Record{failed, blocked} {
		retried, err := c.Retry(t.Context(), rec.TaskID)
		if err != nil || retried.TaskID == rec.TaskID {
			t.Errorf("Retry of a task that is %s = %s, %v, want a new task", rec.Status, retried.TaskID, err)
		}
		again, err := c.Retry(t.Context(), rec.TaskID)
		if err != nil || again.TaskID != retried.TaskID {
			t.Errorf("second Retry = %s, %v, want the same new task %s", again.TaskID, err, retried.TaskID)
		}
	}
	if rec, err := c.Retry(t.Context(), dead.TaskID); err != nil || rec.TaskID != dead.TaskID {
		t.Errorf("Retry of a dead task = %s, %v, want its own id %s", rec.TaskID, err, dead.TaskID)
	}
	running, err := c.Submit(t.Context(), client.Submission{Task: client.Task{Code: "block"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]string{"succeeded": ok.TaskID, "unfinished": running.TaskID} {
		if _, err := c.Retry(t.Context(), id); errcodeOf(err) != errcode.NotRetryable {
			t.Errorf("Retry of a task that is %s = %v, want %s", name, err, errcode.NotRetryable)
		}
	}
	if _, err := c.Redrive(t.Context(), running.TaskID); errcodeOf(err) != errcode.NotRedrivable {
		t.Errorf("Redrive of an unfinished task = %v, want %s", err, errcode.NotRedrivable)
	}
	_, err = clientWith(t, f, ingesttest.Other).Submission(t.Context(), ok.TaskID)
	if errcodeOf(err) != errcode.UnknownTask {
		t.Errorf("Submission of another tenant's task = %v, want %s", err, errcode.UnknownTask)
	}
	rerun, err := c.Rerun(t.Context(), ok.TaskID, func(s *client.Submission) error {
		if string(s.Inputs) != `{"n":1}` || s.Workspace != "ws" || s.Priority != "low" || s.Code != "print 1" {
			t.Errorf("submission = %+v, want the old one's", s)
		}
		s.Code = "print 2"
		return nil
	})
	if err == nil {
		rerun, err = c.Wait(t.Context(), rerun.TaskID)
	}
	if err != nil || rerun.TaskID == ok.TaskID || rerun.Result.Output != "2\n" || rerun.Workspace != "ws" {
		t.Errorf("Rerun = %+v, %v, want a new task that prints 2 in ws", rerun.Result, err)
	}
}

// TestDeadLetter checks that the dead letter of a task has its attempts and error.
func TestDeadLetter(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	c := clientWith(t, f, ingesttest.Token)
	rec, err := c.Run(t.Context(), client.Submission{Task: client.Task{Code: "die"}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := c.DeadLetter(t.Context(), rec.TaskID)
	if err != nil || d.TaskID != rec.TaskID || d.Error.Code != errcode.FleetError ||
		d.Record == nil || d.Record.Status != schemas.Dead || len(d.Record.Attempts) != 1 {
		t.Errorf("DeadLetter = %+v, %v, want %s with one attempt", d, err, errcode.FleetError)
	}
	ok, err := c.Run(t.Context(), client.Submission{Task: client.Task{Code: "print 1"}})
	if err != nil {
		t.Fatal(err)
	}
	const want = "is succeeded: only dead-lettered tasks have a dead letter"
	if _, err := c.DeadLetter(t.Context(), ok.TaskID); errcodeOf(err) != errcode.NotRedrivable ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("DeadLetter of a task that succeeded = %v, want %s, %s", err, errcode.NotRedrivable, want)
	}
}

// errcodeOf returns the code of a client's error, or "".
func errcodeOf(err error) string {
	if e, ok := err.(*client.APIError); ok { //nolint:errorlint // the client's methods do not wrap it
		return e.Code
	}
	return ""
}
