package ingesttest_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// interfaces returns a client over HTTP and one over NATS. Both must return the same.
func interfaces(t *testing.T, f *ingesttest.Fleet) map[string]*client.Client {
	t.Helper()
	user := f.NATS.Fleet()
	all := map[string]*client.Client{}
	for name, o := range map[string]client.Options{
		"http": {URL: f.URL, Token: ingesttest.Token},
		"nats": {URL: f.NATS.URL(), NATSUser: user.User, NATSPassword: user.Password, NATSFleet: true},
	} {
		c, err := client.New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		all[name] = c
	}
	return all
}

func TestClientOverBothInterfaces(t *testing.T) {
	f := ingesttest.Start(t, 2, nil)
	both := interfaces(t, f)
	for name, c := range both {
		t.Run(name, func(t *testing.T) {
			s := client.Submission{
				Task:           client.Task{Code: "print " + name},
				Session:        "s",
				Priority:       "low",
				IdempotencyKey: "k-" + name,
				ExpiresAt:      time.Now().Add(time.Hour),
			}
			r, err := c.Run(t.Context(), s)
			if err != nil || r.Status != client.Succeeded || r.Result.Output != name+"\n" || r.Session != "s" ||
				r.Priority != "low" || r.ExpiresAt.IsZero() {
				t.Fatalf("Run = %+v, %v; want succeeded with the output and the envelope", r, err)
			}
			again, err := c.Submit(t.Context(), s)
			if err != nil || again.TaskID != r.TaskID {
				t.Errorf("Submit again = %s, %v; want %s", again.TaskID, err, r.TaskID)
			}
			for other, oc := range both {
				got, err := oc.Get(t.Context(), r.TaskID)
				if diff := cmp.Diff(r, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
					t.Errorf("record over %s: %v (-want +got):\n%s", other, err, diff)
				}
			}
			res, err := c.Result(t.Context(), r.TaskID)
			if err != nil || res.Output != name+"\n" {
				t.Errorf("Result = %+v, %v; want the output", res, err)
			}
		})
	}
}

// TestPartitionKey checks that a submission has its partition key when it is read again.
func TestPartitionKey(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	both := interfaces(t, f)
	later := time.Now().Add(time.Hour) // the task stays in the queue
	for name, c := range both {
		r, err := c.Submit(t.Context(), client.Submission{
			Task: client.Task{Code: "print x", NotBefore: &later}, PartitionKey: "key ä " + name,
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := errors.New("not submitted")
		_, err = both["http"].Rerun(t.Context(), r.TaskID, func(s *client.Submission) error {
			if s.PartitionKey != "key ä "+name {
				t.Errorf("partition key over %s = %q, want that of the submission", name, s.PartitionKey)
			}
			return stop
		})
		if !errors.Is(err, stop) {
			t.Errorf("Rerun = %v, want the error of its function", err)
		}
	}
}

func TestClientWatchesOverBothInterfaces(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	both := interfaces(t, f)
	r, err := both["http"].Run(t.Context(), client.Submission{Task: client.Task{Code: "print x"}})
	if err != nil {
		t.Fatal(err)
	}
	events := map[string][]client.Event{}
	for name, c := range both {
		final, err := c.Watch(t.Context(), r.TaskID, 0, func(e client.Event) error {
			events[name] = append(events[name], e)
			return nil
		})
		if err != nil || final.Status != client.Succeeded {
			t.Errorf("Watch over %s = %+v, %v; want succeeded", name, final, err)
		}
	}
	if diff := cmp.Diff(events["http"], events["nats"]); diff != "" || len(events["http"]) < 2 {
		t.Errorf("want equal events, at least 2, over HTTP and NATS (-http +nats):\n%s", diff)
	}
}

func TestClientRefusalsOverBothInterfaces(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	both := interfaces(t, f)
	if _, err := both["http"].Submit(t.Context(),
		client.Submission{Task: client.Task{Code: "1"}, IdempotencyKey: "taken"}); err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]func(*client.Client) error{
		"unknown": func(c *client.Client) error {
			_, err := c.Get(t.Context(), "aaaaaaaaaaaaaaaaaaaaaaaaaa")
			return err
		},
		"wait": func(c *client.Client) error {
			_, err := c.Wait(t.Context(), "aaaaaaaaaaaaaaaaaaaaaaaaaa")
			return err
		},
		"cancel": func(c *client.Client) error {
			_, err := c.Cancel(t.Context(), "aaaaaaaaaaaaaaaaaaaaaaaaaa")
			return err
		},
		"watch": func(c *client.Client) error {
			_, err := c.Watch(t.Context(), "aaaaaaaaaaaaaaaaaaaaaaaaaa", 0, nil)
			return err
		},
		"empty": func(c *client.Client) error { _, err := c.Submit(t.Context(), client.Submission{}); return err },
		"name": func(c *client.Client) error {
			_, err := c.Submit(t.Context(), client.Submission{Task: client.Task{Code: "1"}, Workspace: "A/B"})
			return err
		},
		"taken": func(c *client.Client) error {
			_, err := c.Submit(t.Context(), client.Submission{Task: client.Task{Code: "2"}, IdempotencyKey: "taken"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			apiErrors := map[string]*client.APIError{}
			for name, c := range both {
				err := try(c)
				e, ok := errors.AsType[*client.APIError](err)
				if !ok {
					t.Fatalf("over %s: %v, want an APIError", name, err)
				}
				apiErrors[name] = e
			}
			if diff := cmp.Diff(apiErrors["http"], apiErrors["nats"]); diff != "" {
				t.Errorf("want equal errors over HTTP and NATS (-http +nats):\n%s", diff)
			}
		})
	}
}

func TestClientListsFleetAndArtifacts(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	both := interfaces(t, f)
	r, err := both["nats"].Run(t.Context(), client.Submission{Task: client.Task{Code: "files"}})
	if err != nil {
		t.Fatal(err)
	}
	call := client.AuditRecord{
		Tenant: r.Tenant,
		TaskID: r.TaskID,
		Event:  "end",
		Server: "wiki",
		Tool:   "read",
		OK:     true,
		Time:   time.Now().UTC(),
	}
	foreign := call
	foreign.Tenant = "foreign"
	for _, e := range []client.AuditRecord{call, foreign} {
		if err := f.Jobs.AppendAudit(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range both {
		list, err := c.List(t.Context(), client.ListOptions{Status: []client.Status{client.Succeeded}, Limit: 5})
		if err != nil || len(list) != 1 || list[0].TaskID != r.TaskID {
			t.Errorf("List over %s = %+v, %v; want the task", name, list, err)
		}
		if dead, err := c.Dead(t.Context(), 5); err != nil || len(dead) != 0 {
			t.Errorf("Dead over %s = %+v, %v; want none", name, dead, err)
		}
		audit, err := c.Audit(t.Context(), client.AuditOptions{Task: r.TaskID})
		if d := cmp.Diff([]client.AuditRecord{call}, audit); d != "" || err != nil {
			t.Errorf("Audit over %s, %v (-want +got):\n%s", name, err, d)
		}
		fleet, err := c.Fleet(t.Context())
		if err != nil || len(fleet.Workers) != 1 || fleet.Workers[0].Name != "test-worker" {
			t.Errorf("Fleet over %s = %+v, %v; want test-worker", name, fleet, err)
		}
	}
	a, err := both["http"].Artifact(t.Context(), r.TaskID, "out/a.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if got, _ := io.ReadAll(a); string(got) != "1,2\n" {
		t.Errorf("Artifact = %q, want 1,2", got)
	}
	if _, err := both["nats"].Artifact(t.Context(), r.TaskID, "out/a.csv"); err == nil ||
		!strings.Contains(err.Error(), "http_only") {
		t.Errorf("Artifact over NATS = %v, want http_only", err)
	}
}

// TestClientAsATenantOverNATS checks that a tenant's NATS user may submit, read and wait for tasks, but not send
// requests that need the fleet's credentials.
func TestClientAsATenantOverNATS(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	c, err := client.New(t.Context(),
		client.Options{URL: f.NATS.URL(), NATSUser: ingesttest.NATSUser, NATSPassword: ingesttest.NATSPassword})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.Run(t.Context(), client.Submission{Task: client.Task{Code: "print 42"}})
	if err != nil || r.Status != client.Succeeded || r.Result.Output != "42\n" {
		t.Fatalf("Run = %+v, %v; want succeeded with the output 42", r, err)
	}
	if again, err := c.Get(t.Context(), r.TaskID); err != nil || again.Result == nil || again.Result.Output != "42\n" {
		t.Errorf("Get = %+v, %v; want the output 42", again, err)
	}
	for name, try := range map[string]func() error{
		"watch":   func() error { _, err := c.Watch(t.Context(), r.TaskID, 0, nil); return err },
		"cancel":  func() error { _, err := c.Cancel(t.Context(), r.TaskID); return err },
		"list":    func() error { _, err := c.List(t.Context(), client.ListOptions{}); return err },
		"dead":    func() error { _, err := c.Dead(t.Context(), 1); return err },
		"redrive": func() error { _, err := c.Redrive(t.Context(), r.TaskID); return err },
		"redrive all": func() error {
			return c.RedriveAll(t.Context(), func(client.RedrivenTask) error { return nil })
		},
		"audit": func() error { _, err := c.Audit(t.Context(), client.AuditOptions{}); return err },
		"fleet": func() error { _, err := c.Fleet(t.Context()); return err },
	} {
		if e, ok := errors.AsType[*client.APIError](try()); !ok || e.Code != "http_only" {
			t.Errorf("%s = %v, want http_only", name, e)
		}
	}
}

// TestClientRedrives checks that both interfaces redrive one task and all, and refuse a task that is not dead.
func TestClientRedrives(t *testing.T) {
	f := ingesttest.Start(t, 2, nil)
	for name, c := range interfaces(t, f) {
		dead, err := c.Run(t.Context(), client.Submission{Task: client.Task{Code: "die"}})
		if err != nil || dead.Status != client.Dead {
			t.Fatalf("Run over %s = %+v, %v, want dead", name, dead, err)
		}
		again, err := c.Redrive(t.Context(), dead.TaskID)
		if err != nil || again.TaskID != dead.TaskID || again.Status.Terminal() {
			t.Fatalf("Redrive over %s = %+v, %v, want the same task in the queue", name, again, err)
		}
		if again, err = c.Wait(t.Context(), dead.TaskID); err != nil || again.Run != 2 {
			t.Fatalf("Wait over %s = %+v, %v, want a second run", name, again, err)
		}
		var all []client.RedrivenTask
		err = c.RedriveAll(t.Context(), func(task client.RedrivenTask) error {
			all = append(all, task)
			return nil
		})
		if err != nil || len(all) == 0 || all[len(all)-1].TaskID != dead.TaskID ||
			all[len(all)-1].Status != client.Queued {
			t.Errorf("RedriveAll over %s = %+v, %v, want the task", name, all, err)
		}
		if _, err := c.Wait(t.Context(), dead.TaskID); err != nil {
			t.Fatal(err)
		}
		ok, err := c.Run(t.Context(), client.Submission{Task: client.Task{Code: "print 1"}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Redrive(t.Context(), ok.TaskID)
		if e, isAPI := errors.AsType[*client.APIError](err); !isAPI || e.Code != "not_redrivable" || e.Status != 409 {
			t.Errorf("Redrive of a succeeded task over %s = %v, want not_redrivable", name, err)
		}
	}
}
