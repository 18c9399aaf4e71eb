package ingesttest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// errorCode returns the code of an APIError, or "" if err is not one.
func errorCode(err error) string {
	if e, ok := errors.AsType[*client.APIError](err); ok {
		return e.Code
	}
	return ""
}

// TestClientsApprove checks that a client can list, wait for and decide on pending calls over HTTP,
// over NATS, and over NATS as a tenant.
func TestClientsApprove(t *testing.T) {
	f := ingesttest.Start(t, 2, nil)
	clients := interfaces(t, f)
	tenant, err := client.New(t.Context(),
		client.Options{URL: f.NATS.URL(), NATSUser: ingesttest.NATSUser, NATSPassword: ingesttest.NATSPassword})
	if err != nil {
		t.Fatal(err)
	}
	defer tenant.Close()
	clients["tenant"] = tenant
	by := map[string]string{"http": "default", "nats": f.NATS.Fleet().User, "tenant": "nats/" + ingesttest.NATSUser}
	for name, c := range clients {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), ingesttest.WaitTimeout)
			defer cancel()
			r, err := c.SubmitForApproval(ctx,
				client.Submission{Task: client.Task{Code: "ask a" + name + " b" + name}}, ingesttest.WaitTimeout)
			if err != nil || r.Status != client.Running || len(r.Pending(time.Now())) != 1 {
				t.Fatalf("SubmitForApproval = %+v, %v; want a running task with one pending call", r, err)
			}
			first := r.Pending(time.Now())[0]
			list, err := c.Approvals(ctx)
			if err != nil || len(list) != 1 || list[0].TaskID != r.TaskID || cmp.Diff(first, list[0].Approval) != "" {
				t.Errorf("Approvals = %+v, %v; want the pending call", list, err)
			}
			if _, err := c.WaitForApproval(ctx, r.TaskID, 50*time.Millisecond, first.Call); err != nil {
				t.Errorf("WaitForApproval of other calls = %v, want nil", err)
			}
			if r, err = c.Decide(ctx, r.TaskID, client.Decision{Call: first.Call, Approve: true}); err != nil ||
				r.Approvals[0].By != by[name] {
				t.Fatalf("Decide = %+v, %v; want the decision recorded", r.Approvals, err)
			}
			for range 2 { // repeating a decision is not an error
				if _, err := c.Decide(ctx, r.TaskID, client.Decision{Call: first.Call, Approve: true}); err != nil {
					t.Errorf("Decide again = %v, want nil", err)
				}
			}
			_, err = c.Decide(ctx, r.TaskID, client.Decision{Call: first.Call})
			if errorCode(err) != "already_answered" {
				t.Errorf("a different Decide = %v, want already_answered", err)
			}
			if r, err = c.WaitForApproval(ctx, r.TaskID, ingesttest.WaitTimeout, first.Call); err != nil ||
				len(r.Pending(time.Now())) != 1 {
				t.Fatalf("WaitForApproval = %+v, %v; want the next pending call", r, err)
			}
			if _, err := c.Decide(ctx, r.TaskID, client.Decision{Approve: false, Reason: "no"}); err != nil {
				t.Fatal(err)
			}
			if r, err = c.Wait(ctx, r.TaskID); err != nil ||
				r.Result.Output != "approved "+by[name]+"\ndenied "+by[name]+" no\n" {
				t.Errorf("Wait = %+v, %v; want one call approved and one denied", r.Result, err)
			}
			if _, err := c.Decide(ctx, r.TaskID, client.Decision{Approve: true}); errorCode(err) != "unknown_approval" {
				t.Errorf("Decide for an ended task = %v, want unknown_approval", err)
			}
		})
	}
}

// TestOnlyApproversDecide checks that a token without the scope approve cannot approve its own calls, and that another
// tenant's task looks like an unknown task.
func TestOnlyApproversDecide(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	clients := map[string]*client.Client{}
	for _, token := range []string{
		ingesttest.Agent, ingesttest.Other, ingesttest.ReadOnly, ingesttest.Operator, ingesttest.Token,
	} {
		c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients[token] = c
	}
	r, err := clients[ingesttest.Agent].SubmitForApproval(t.Context(),
		client.Submission{Task: client.Task{Code: "ask a"}}, ingesttest.WaitTimeout)
	if err != nil || len(r.Approvals) != 1 {
		t.Fatalf("SubmitForApproval = %+v, %v; want one approval", r, err)
	}
	yes := client.Decision{Call: r.Approvals[0].Call, Approve: true}
	for token, want := range map[string]string{
		ingesttest.Agent: "forbidden", ingesttest.ReadOnly: "forbidden", ingesttest.Operator: "forbidden",
		ingesttest.Other: "unknown_task",
	} {
		if _, err := clients[token].Decide(t.Context(), r.TaskID, yes); errorCode(err) != want {
			t.Errorf("Decide with %s = %v, want %s", token, err, want)
		}
	}
	_, foreign := clients[ingesttest.Other].Decide(t.Context(), r.TaskID, yes)
	_, unknown := clients[ingesttest.Other].Decide(t.Context(), strings.Repeat("a", 26), yes)
	if diff := cmp.Diff(unknown, foreign); diff != "" {
		t.Errorf("want the same error for an unknown and another tenant's task (-unknown +foreign):\n%s", diff)
	}
	if list, err := clients[ingesttest.Other].Approvals(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("Approvals of another tenant = %+v, %v; want none", list, err)
	}
	for body, want := range map[string]string{
		``: "bad_json", `[]`: "bad_json", `{}`: "/approve", `{"approve":"yes"}`: "bad_json", `{"call":"x"}`: "/approve",
		`{"approve":true,"reason":"` + strings.Repeat("x", 501) + `"}`: "/reason",
		`{"approve":true,"call":"../x"}`:                               "unknown_approval",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URL+"/v1/tasks/"+r.TaskID+"/approvals",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+ingesttest.Token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode < 400 || resp.StatusCode >= 500 || !strings.Contains(string(text), want) {
			t.Errorf("POST %s = %d %s, want %s", body, resp.StatusCode, text, want)
		}
	}
	if _, err := clients[ingesttest.Token].Decide(t.Context(), r.TaskID, yes); err != nil {
		t.Errorf("Decide with the scope = %v, want nil", err)
	}
}
