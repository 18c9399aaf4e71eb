package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/client"
)

const taskID = "abcdefghijklmnopqrstuvwxyz"

// wire passes requests to a handler without a network, so that synctest can control the time.
type wire struct{ http.Handler }

func (h wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code == 599 {
		return nil, errors.New("connection refused")
	}
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

func newClient(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	c, err := client.New(t.Context(), client.Options{
		URL: "http://fleet.test/base", Token: "secret", HTTPClient: &http.Client{Transport: wire{h}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func record(status client.Status) client.Record {
	r := client.Record{TaskID: taskID, Tenant: "default", Status: status}
	if status.Terminal() {
		r.Result = &client.Result{TaskID: taskID, Status: status, Output: "42\n"}
	}
	return r
}

func respond(w http.ResponseWriter, status int, v any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func TestSubmitRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
			var s client.Submission
			_ = json.NewDecoder(r.Body).Decode(&s)
			keys = append(keys, s.IdempotencyKey)
			if got := r.Header.Get("Authorization"); got != "Bearer secret" {
				t.Errorf("Authorization = %q, want Bearer secret", got)
			}
			if r.Method+" "+r.URL.Path != "POST /base/v1/tasks" || s.Code != "print(1)" || s.Session != "s" ||
				s.Source != "codefleet/client" {
				t.Errorf("request %s %s %+v, want POST /base/v1/tasks with print(1), session s and the source",
					r.Method, r.URL.Path, s)
			}
			switch len(keys) {
			case 1:
				w.WriteHeader(599)
			case 2:
				w.Header().Set("Retry-After", "4")
				respond(w, 429, map[string]string{"code": "backlog_full", "message": "full"})
			case 3:
				respond(w, 502, "a proxy")
			default:
				respond(w, 202, record(client.Queued))
			}
		})
		start := time.Now()
		r, err := c.Submit(t.Context(), client.Submission{Task: client.Task{Code: "print(1)"}, Session: "s"})
		if err != nil || r.TaskID != taskID || r.Status != client.Queued {
			t.Fatalf("Submit = %+v, %v; want the queued task", r, err)
		}
		if len(keys) != 4 || keys[0] == "" || keys[0] != keys[3] {
			t.Errorf("keys = %q, want the same key four times", keys)
		}
		if took := time.Since(start); took < 4*time.Second {
			t.Errorf("Submit took %s, want at least the 4 s of Retry-After", took)
		}
	})
}

// TestRetryAfterIsBounded checks that a time above a day, which a duration may be unable to hold, counts as a day, and
// that what is no time is ignored.
func TestRetryAfterIsBounded(t *testing.T) {
	for header, want := range map[string]int{
		"7": 7, "86401": 86400, "9223372037": 86400, "9223372036854775807": 86400, "9223372036854775808": 0,
		"-1": 0, "soon": 0, "": 0,
	} {
		c, err := client.New(t.Context(), client.Options{
			URL: "http://fleet.test", RetryFor: -1,
			HTTPClient: &http.Client{Transport: wire{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", header)
				respond(w, 503, map[string]string{"code": "stopping", "message": "stopping"})
			})}},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Get(t.Context(), taskID)
		if e, ok := errors.AsType[*client.APIError](err); !ok || e.RetryAfter != want {
			t.Errorf("Retry-After %q: %+v, want an APIError with RetryAfter %d", header, err, want)
		}
	}
}

func TestRetriesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
			n++
			respond(w, 503, map[string]string{"code": "unavailable", "message": "no", "hint": "try again"})
		})
		start := time.Now()
		_, err := c.Get(t.Context(), taskID)
		e, ok := errors.AsType[*client.APIError](err)
		if !ok || e.Status != 503 || e.Code != "unavailable" || e.Hint != "try again" {
			t.Errorf("Get = %v; want 503 unavailable with the hint", err)
		}
		if took := time.Since(start); took > 15*time.Second || n < 5 {
			t.Errorf("gave up after %s and %d requests, want at most 15 s and at least 5", took, n)
		}
	})
}

func TestRefusalsAreNotRetried(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		body   string
		want   client.APIError
	}{
		"refused": {
			400, `{"code":"bad_data","message":"m","cause":"c","hint":"h","path":"/limits"}`,
			client.APIError{Code: "bad_data", Message: "m", Cause: "c", Hint: "h", Path: "/limits", Status: 400},
		},
		"not a fleet": {404, `<html>`, client.APIError{
			Code:    "unexpected_response",
			Message: "the response is 404 Not Found, which is not from a fleet",
			Hint:    "check the address of the fleet", Status: 404,
		}},
		"redirect": {302, ``, client.APIError{
			Code:    "unexpected_response",
			Message: "the response is 302 Found, which is not from a fleet", Hint: "check the address of the fleet",
			Status: 302,
		}},
		"a page": {200, `<html>`, client.APIError{
			Code: "unexpected_response", Message: "the response is not JSON, so it is not from a fleet",
			Hint: "check the address of the fleet", Status: 200,
		}},
		"other JSON": {200, `"welcome"`, client.APIError{
			Code: "unexpected_response", Message: "the response has another form than expected: " +
				"json: cannot unmarshal string into Go value of type schemas.Record",
			Hint: "check the address and the version of the fleet", Status: 200,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
				n++
				w.Header().Set("Location", "http://elsewhere.test/")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			_, err := c.Cancel(t.Context(), taskID)
			e, ok := errors.AsType[*client.APIError](err)
			if !ok || n != 1 {
				t.Fatalf("Cancel = %v after %d requests, want an APIError after 1", err, n)
			}
			if diff := cmp.Diff(tt.want, *e); diff != "" {
				t.Errorf("Cancel (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWaitRepeatsRequests(t *testing.T) {
	var waits []string
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		waits = append(waits, r.URL.Query().Get("wait"))
		status := client.Running
		if len(waits) == 3 {
			status = client.Succeeded
		}
		respond(w, 200, record(status))
	})
	r, err := c.Wait(t.Context(), taskID)
	if err != nil || r.Status != client.Succeeded || r.Result.Output != "42\n" {
		t.Errorf("Wait = %+v, %v; want succeeded with the output 42", r, err)
	}
	if diff := cmp.Diff([]string{"30s", "30s", "30s"}, waits); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
}

func TestWaitEndsWithLatestRecord(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		if n++; n == 2 {
			cancel()
		}
		respond(w, 200, record(client.Running))
	})
	r, err := c.Wait(ctx, taskID)
	if !errors.Is(err, context.Canceled) || r.Status != client.Running {
		t.Errorf("Wait = %+v, %v; want the running record and context.Canceled", r, err)
	}
}

func event(seq int, text string) string {
	p, _ := json.Marshal(client.Progress{TaskID: taskID, Stream: "stdout", Text: text})
	return fmt.Sprintf("id: %d\nevent: progress\ndata: %s\n\n", seq, p)
}

func TestWatchResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last []string
		c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
			last = append(last, r.Header.Get("Last-Event-ID"))
			switch len(last) {
			case 1: // the connection breaks within an event
				_, _ = io.WriteString(w, ": hi\n\n"+event(3, "a")+event(5, "b")+"id: 9\nevent: progress\ndata: {")
			case 2:
				w.WriteHeader(599)
			case 3: // one event is sent again, and one has an unknown type
				rec, _ := json.Marshal(record(client.Succeeded))
				_, _ = io.WriteString(w, event(5, "b")+"event: unknown\ndata: 1\n\n"+event(9, "c")+
					"id: end\nevent: record\ndata: "+string(rec)+"\n\n")
			}
		})
		var got []string
		r, err := c.Watch(t.Context(), taskID, 2, func(e client.Event) error {
			got = append(got, fmt.Sprint(e.Seq, e.Text))
			return nil
		})
		if err != nil || r.Status != client.Succeeded {
			t.Errorf("Watch = %+v, %v; want succeeded", r, err)
		}
		if diff := cmp.Diff([]string{"3a", "5b", "9c"}, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"2", "5", "5"}, last); diff != "" {
			t.Errorf("Last-Event-ID (-want +got):\n%s", diff)
		}
	})
}

func TestWatchReturnsErrorOfFunction(t *testing.T) {
	c := newClient(t,
		func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, event(1, "a")+event(2, "b")) })
	enough := errors.New("enough")
	n := 0
	_, err := c.Watch(t.Context(), taskID, 0, func(client.Event) error { n++; return enough })
	if !errors.Is(err, enough) || n != 1 {
		t.Errorf("Watch = %v after %d events, want its function's error after 1", err, n)
	}
}

// silentBody never delivers data, like a connection whose other end is gone.
type silentBody struct{ ctx context.Context }

func (b silentBody) Read([]byte) (int, error) { <-b.ctx.Done(); return 0, context.Cause(b.ctx) }
func (b silentBody) Close() error             { return nil }

// silentWire responds with a silentBody to the first request, and with next to later ones.
type silentWire struct{ next http.RoundTripper }

func (s *silentWire) RoundTrip(r *http.Request) (*http.Response, error) {
	if next := s.next; next != nil {
		return next.RoundTrip(r)
	}
	rec, _ := json.Marshal(record(client.Failed))
	s.next = wire{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "id: end\nevent: record\ndata: "+string(rec)+"\n\n")
	})}
	return &http.Response{StatusCode: 200, Body: silentBody{r.Context()}, Request: r}, nil
}

func TestWatchReconnectsAfterSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := client.New(t.Context(), client.Options{
			URL: "http://fleet.test", HTTPClient: &http.Client{Transport: &silentWire{}},
		})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		r, err := c.Watch(t.Context(), taskID, 0, func(client.Event) error { return nil })
		if err != nil || r.Status != client.Failed {
			t.Errorf("Watch = %+v, %v; want the failed record", r, err)
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("Watch returned after %s, want 1m", took)
		}
	})
}

// hungWire does not respond, or responds with a hungBody, at once or when the request has ended. Like those of HTTP/2,
// its errors do not have the cause.
type hungWire struct {
	responds, late bool
	end            error // of the body; the default is the error of the request's context
}

func (h hungWire) RoundTrip(r *http.Request) (*http.Response, error) {
	if !h.responds || h.late {
		<-r.Context().Done()
	}
	if !h.responds {
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: 200, Body: hungBody{silentBody{r.Context()}, h.end}, Request: r}, nil
}

// hungBody is a silentBody whose error does not have the cause.
type hungBody struct {
	silentBody
	end error
}

func (b hungBody) Read([]byte) (int, error) {
	<-b.ctx.Done()
	if b.end != nil {
		return 0, b.end
	}
	return 0, b.ctx.Err()
}

// TestHungFleet checks that a response that does not begin, or whose body brings no data, is an error after a time, and
// not the error of an interrupt. A body that ends at that time is complete.
func TestHungFleet(t *testing.T) {
	const silent = "the fleet sent no data within the time limit"
	watch := func(ctx context.Context, c *client.Client) error {
		_, err := c.Watch(ctx, taskID, 0, func(client.Event) error { return nil })
		return err
	}
	read := func(ctx context.Context, c *client.Client) error {
		f, err := c.Artifact(ctx, taskID, "f")
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.ReadAll(f)
		return err
	}
	for name, tt := range map[string]struct {
		request func(context.Context, *client.Client) error
		wire    hungWire
		after   time.Duration
	}{
		"watch":              {watch, hungWire{}, 30 * time.Second},
		"artifact":           {read, hungWire{}, 30 * time.Second},
		"artifact, late":     {read, hungWire{responds: true, late: true}, 30 * time.Second},
		"artifact, silent":   {read, hungWire{responds: true}, time.Minute},
		"artifact, complete": {read, hungWire{responds: true, end: io.EOF}, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, err := client.New(t.Context(), client.Options{
				URL: "http://fleet.test", HTTPClient: &http.Client{Transport: tt.wire},
			})
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			err = tt.request(t.Context(), c)
			want := silent
			if tt.wire.end != nil {
				want = "<nil>"
			}
			if errors.Is(err, context.Canceled) || !strings.HasSuffix(fmt.Sprint(err), want) ||
				time.Since(start) != tt.after {
				t.Errorf("%s: %v after %s, want %q after %s", name, err, time.Since(start), want, tt.after)
			}
		})
	}
}

// TestWatchGivesUp checks that a fleet that ends each stream at once begins no new series of retries.
func TestWatchGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			if requests++; requests > 100 {
				w.WriteHeader(http.StatusNotFound)
			}
		})
		start := time.Now()
		_, err := c.Watch(t.Context(), taskID, 0, func(client.Event) error { return nil })
		if took := time.Since(start); !errors.Is(err, io.EOF) || took < 10*time.Second || took > 20*time.Second {
			t.Errorf("Watch = %v after %d requests and %s, want EOF after about 15s", err, requests, took)
		}
	})
}

func TestResultOfARunningTask(t *testing.T) {
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) { respond(w, 200, record(client.Running)) })
	if _, err := c.Result(t.Context(), taskID); !errors.Is(err, client.ErrNotEnded) {
		t.Errorf("Result = %v, want ErrNotEnded", err)
	}
}

func TestArtifactPathIsEscaped(t *testing.T) {
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.EscapedPath())
	})
	f, err := c.Artifact(t.Context(), taskID, "out/a b?#.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, _ := io.ReadAll(f)
	if want := "/base/v1/tasks/" + taskID + "/artifacts/out/a%20b%3F%23.csv"; string(got) != want {
		t.Errorf("path = %s, want %s", got, want)
	}
}

// TestInvalidSegments checks that an empty id or dots never request another resource, such as the list of tasks.
func TestInvalidSegments(t *testing.T) {
	c := newClient(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("unexpected request %s, want none", r.URL)
	})
	for name, request := range map[string]func() error{
		"empty id":  func() error { _, err := c.Get(t.Context(), ""); return err },
		"dots":      func() error { _, err := c.Cancel(t.Context(), ".."); return err },
		"path":      func() error { _, err := c.Get(t.Context(), "../dead"); return err },
		"watch":     func() error { _, err := c.Watch(t.Context(), "", 0, nil); return err },
		"artifact":  func() error { _, err := c.Artifact(t.Context(), taskID, "out/../../x"); return err },
		"empty dir": func() error { _, err := c.Artifact(t.Context(), taskID, "out//x"); return err },
	} {
		e, ok := errors.AsType[*client.APIError](request())
		if !ok || e.Code != "unknown_task" || e.Status != http.StatusNotFound {
			t.Errorf("%s: error %v, want unknown_task", name, e)
		}
	}
}

// TestInvalidPaths checks that the error of a path says what is wrong with it, without a request.
func TestInvalidPaths(t *testing.T) {
	c := newClient(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("unexpected request %s, want none", r.URL)
	})
	for path, want := range map[string]string{
		"\xff\xfe.bin": `"\xff\xfe.bin" is not valid UTF-8`,
		"../x":         `"../x" is empty or absolute, or contains ., .. or an empty name`,
	} {
		_, err := c.Workspace("main").Open(t.Context(), "", path, 0)
		if e, ok := errors.AsType[*client.APIError](err); !ok || e.Code != "bad_path" || e.Cause != want {
			t.Errorf("Open(%q) = %v, want bad_path with the cause %s", path, err, want)
		}
	}
}

// TestRedriveNamesACause checks that an empty cause does not redrive all dead letters.
func TestRedriveNamesACause(t *testing.T) {
	c := newClient(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("unexpected request %s, want none", r.URL)
	})
	err := c.RedriveWithCause(t.Context(), "", func(client.RedrivenTask) error { return nil })
	if e, ok := errors.AsType[*client.APIError](err); !ok || e.Code != "bad_parameter" || e.Path != "cause" {
		t.Errorf("RedriveWithCause without a cause = %v, want bad_parameter of cause", err)
	}
}

func TestAPIErrorHasPathOnce(t *testing.T) {
	for e, want := range map[*client.APIError]string{
		{Code: "bad_data", Path: "/pool", Message: "/pool: too long"}: "bad_data: /pool: too long",
		{Code: "bad_data", Path: "/pool", Message: "too long"}:        "bad_data: /pool: too long",
		{Code: "busy", Message: "later", Cause: "full"}:               "busy: later: full",
	} {
		if got := e.Error(); got != want {
			t.Errorf("Error() = %q, want %q", got, want)
		}
	}
}

func TestNewRejectsAddresses(t *testing.T) {
	for _, u := range []string{"", "fleet.test:8787", "ftp://fleet.test", "http://", "http://[", "nats://127.0.0.1:1"} {
		if _, err := client.New(t.Context(), client.Options{URL: u}); err == nil {
			t.Errorf("New(%q) = nil, want an error", u)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("New(%q) = %q, want one line", u, err)
		}
	}
}

// TestUnreachableFleet checks that a request that waits for a task fails RetryFor after the fleet stopped responding,
// and not only after the wait.
func TestUnreachableFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := client.New(t.Context(), client.Options{
			URL: "http://fleet.test", RetryFor: 3 * time.Second,
			HTTPClient: &http.Client{Transport: wire{http.HandlerFunc(refuse)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		_, err = c.Wait(t.Context(), taskID)
		if took := time.Since(begun); err == nil || took < time.Second || took > 6*time.Second {
			t.Errorf("Wait = %v after %s, want an error after about 3s", err, took)
		}
	})
}

// TestLargeRequest checks that the time limit of a request grows with its body, for slow connections.
func TestLargeRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(2 * time.Minute):
				respond(w, 202, record(client.Queued))
			case <-r.Context().Done():
				w.WriteHeader(599)
			}
		})
		large := client.Submission{Task: client.Task{Code: strings.Repeat("x", 20<<20)}}
		if _, err := c.Submit(t.Context(), large); err != nil {
			t.Errorf("Submit of 20 MiB in 2 min = %v, want nil", err)
		}
		if _, err := c.Submit(t.Context(), client.Submission{Task: client.Task{Code: "1"}}); err == nil {
			t.Error("Submit of a small task in 2 min = nil, want an error")
		}
	})
}

func refuse(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(599) }

// TestWrongScheme checks that a request to a server with the other scheme is not repeated, and that the error has the
// address to use.
func TestWrongScheme(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { respond(w, 200, []client.Record{}) })
	plain, encrypted := httptest.NewServer(handler), httptest.NewUnstartedServer(handler)
	defer plain.Close()
	encrypted.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	encrypted.StartTLS()
	defer encrypted.Close()
	for right, message := range map[string]string{
		plain.URL: "the server speaks HTTP, not HTTPS", encrypted.URL: "the server speaks HTTPS, not HTTP",
	} {
		scheme, rest, _ := strings.Cut(right, "://")
		other := map[string]string{"http": "https", "https": "http"}[scheme]
		c, err := client.New(t.Context(), client.Options{URL: other + "://" + rest})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.List(t.Context(), client.ListOptions{})
		e, ok := errors.AsType[*client.APIError](err)
		if !ok || e.Code != "unexpected_response" || e.Message != message || e.Hint != "use the address "+right {
			t.Errorf("List at %s://%s = %v, want %q and the address %s", other, rest, err, message, right)
		}
	}
}

// TestBrokenResponseIsNotRepeated checks that a request that must not take effect twice is not sent again if its
// response breaks off.
func TestBrokenResponseIsNotRepeated(t *testing.T) {
	var requests atomic.Int32
	var lost atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		if lost.Load() {
			panic(http.ErrAbortHandler) // closes the connection
		}
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"status": `)
	}))
	defer srv.Close()
	c, err := client.New(t.Context(), client.Options{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := c.Workspace("main")
	for name, send := range map[string]func() error{
		"Put":     func() error { _, err := w.Put(t.Context(), "f", strings.NewReader("x"), ""); return err },
		"Restore": func() error { _, err := w.Restore(t.Context(), "1", ""); return err },
		"Fork":    func() error { _, err := w.Fork(t.Context(), "1", "copy"); return err },
		"Delete":  func() error { return w.Delete(t.Context()) },
		"Remove":  func() error { _, err := w.Remove(t.Context(), "f"); return err },
		"Decide": func() error {
			_, err := c.Decide(t.Context(), strings.Repeat("0", 32), client.Decision{Approve: true})
			return err
		},
		"RunSchedule": func() error { _, err := c.RunSchedule(t.Context(), "daily"); return err },
		"AnswerWorkflow": func() error {
			_, err := c.AnswerWorkflow(t.Context(), "run", client.WorkflowAnswer{Step: "ask"})
			return err
		},
	} {
		for _, all := range []bool{false, true} {
			if name == "Delete" && !all { // its response has no content
				continue
			}
			requests.Store(0)
			lost.Store(all)
			if err := send(); err == nil || requests.Load() != 1 {
				t.Errorf("%s, all of the response lost: %v: error %v after %d requests, want an error after one",
					name, all, err, requests.Load())
			}
		}
	}
}

// TestPutIsNotRepeated checks that content of which a part was sent is not sent again: the rest is not the whole file.
func TestPutIsNotRepeated(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		var requests atomic.Int32
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if requests.Add(1) > 1 {
				respond(w, 200, client.Commit{Generation: 1})
				return
			}
			_, _ = io.CopyN(io.Discard, r.Body, 1<<10)
			w.Header().Set("Retry-After", "0")
			respond(w, status, client.APIError{Code: "busy", Message: "busy"})
		}))
		t.Cleanup(srv.Close)
		c, err := client.New(t.Context(), client.Options{URL: srv.URL})
		if err != nil {
			t.Fatal(err)
		}
		content := io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20))) // not an io.Seeker
		_, err = c.Workspace("main").Put(t.Context(), "file", content, "")
		if e, ok := errors.AsType[*client.APIError](err); !ok || e.Status != status || requests.Load() != 1 {
			t.Errorf("Put = %v after %d requests; want the status %d after one", err, requests.Load(), status)
		}
	}
}
