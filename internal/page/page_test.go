package page

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"mime/multipart"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// visitor is a browser without scripts.
type visitor struct {
	t    *testing.T
	p    *Page
	base string // URL of the page
	http http.Client
	csrf string
}

// start starts a fleet with a page, and returns the fleet and a visitor who has not logged in.
func start(t *testing.T, workers int, o Options) (*ingesttest.Fleet, *visitor) {
	t.Helper()
	f := ingesttest.Start(t, workers, func(o *ingest.Options, _ *jobs.Options) {
		o.Limits.QueueTime = time.Minute // for the largest upload on a busy machine
	})
	o.Fleet, o.Log = client.Options{URL: f.URL}, slog.New(slog.DiscardHandler)
	p := New(o)
	server := httptest.NewServer(http.StripPrefix(o.Prefix, p)) // as a proxy does
	t.Cleanup(server.Close)
	t.Cleanup(p.Drain)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return f, &visitor{t: t, p: p, base: server.URL + o.Prefix + root, http: http.Client{Jar: jar}}
}

// login logs in with a page link for a token.
func (v *visitor) login(token string) {
	v.t.Helper()
	status, _, body := v.post("/login", "code", v.p.Code(token))
	if status != http.StatusOK {
		v.t.Fatalf("login: status %d, page %s", status, body)
	}
	_, _, body = v.get("/new")
	v.csrf = regexp.MustCompile(`name="csrf" value="(\w+)"`).FindStringSubmatch(body)[1]
}

// get returns a page after all redirects, with its URL.
func (v *visitor) get(path string) (status int, at, body string) {
	v.t.Helper()
	resp, err := v.http.Get(v.base + path)
	return v.read(resp, err)
}

func (v *visitor) read(resp *http.Response, err error) (status int, at, body string) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimPrefix(resp.Request.URL.String(), v.base), string(data)
}

// post sends a form of the page, and returns the page after it.
func (v *visitor) post(path string, values ...string) (status int, at, body string) {
	v.t.Helper()
	form := url.Values{"csrf": {v.csrf}}
	for i := 0; i < len(values); i += 2 {
		form.Add(values[i], values[i+1])
	}
	resp, err := v.http.PostForm(v.base+path, form)
	return v.read(resp, err)
}

func submit(t *testing.T, f *ingesttest.Fleet, token, code string) client.Record {
	t.Helper()
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.SubmitForApproval(t.Context(), client.Submission{Task: client.Task{Code: code}}, ingesttest.WaitTimeout)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// has checks that a page contains all wanted texts. What names the page.
func has(t *testing.T, what, body string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(body, want) {
			t.Errorf("%s has no %q:\n%s", what, want, body)
		}
	}
}

func TestLogin(t *testing.T) {
	_, v := start(t, 0, Options{})
	const login = "/login?next=%2Fui%2Ftasks%3Fstatus%3Ddead"
	if status, at, _ := v.get("/tasks?status=dead"); status != 200 || at != login {
		t.Errorf("without a login: %d %s, want the login", status, at)
	}
	status, _, body := v.post("/login", "token", "wrong")
	if status != 401 || !strings.Contains(body, "does not know") {
		t.Errorf("wrong token: %d, want 401", status)
	}
	if status, _, _ := v.post("/login", "token", strings.Repeat("x", maxToken+1)); status != 401 {
		t.Errorf("endless token: %d, want 401", status)
	}
	code := v.p.Code(ingesttest.Token)
	if status, at, _ := v.post("/login", "code", code); status != 200 || at != "/tasks" {
		t.Errorf("code: %d %s, want the tasks", status, at)
	}
	if status, _, body := v.post("/login", "code", code); status != 401 || !strings.Contains(body, "has been used") {
		t.Errorf("the code again: %d, want 401", status)
	}
	if status, _, body := v.get("/login?code=" + code); status != 401 || !strings.Contains(body, "has been used") {
		t.Errorf("the used link: %d, want 401", status)
	}
	if status, at, _ := v.get("/inbox"); status != 200 || at != "/inbox" {
		t.Errorf("with the session: %d %s, want the inbox", status, at)
	}
	if status, at, _ := v.post("/login", "token", ingesttest.Other, "next", "/ui/inbox?q=a"); status != 200 ||
		at != "/inbox?q=a" {
		t.Errorf("token: %d %s, want the page in next", status, at)
	}
	if status, at, _ := v.post("/logout"); status != 200 || at != "/login" {
		t.Errorf("logout: %d %s, want the login", status, at)
	}
	if _, at, _ := v.get("/tasks"); !strings.HasPrefix(at, "/login") {
		t.Errorf("after the logout: %s, want the login", at)
	}
	if status, at, _ := v.post("/login", "token", ingesttest.Operator); status != 200 || at != "/fleet" {
		t.Errorf("operator: %d %s, want the fleet", status, at)
	}
	if status, at, _ := v.get("/"); status != 200 || at != "/fleet" {
		t.Errorf("operator at /: %d %s, want the fleet", status, at)
	}
}

// TestSecureCookies checks that the cookies of a login over HTTPS, as the proxy says, are sent over HTTPS only.
func TestSecureCookies(t *testing.T) {
	_, v := start(t, 0, Options{})
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for proto, want := range map[string]bool{"": false, "http": false, "https": true} {
		form := strings.NewReader(url.Values{"token": {ingesttest.Token}}.Encode())
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, v.base+"/login", form)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Forwarded-Proto", proto)
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		cookies := resp.Cookies()
		i := slices.IndexFunc(cookies, func(c *http.Cookie) bool { return c.Name == sessionName })
		if i < 0 || cookies[i].Secure != want {
			t.Errorf("login with X-Forwarded-Proto %q sets %v, want Secure %t", proto, cookies, want)
		}
	}
}

// TestEndedSessions checks that a copy of a session's cookies is not accepted after a logout or another login, and that
// the next person does not see the previous one's message.
func TestEndedSessions(t *testing.T) {
	f, v := start(t, 0, Options{})
	task := queueTask(t, f, "print 1")
	copied := func(cookies []*http.Cookie) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, v.base+"/tasks", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cookies {
			r.AddCookie(c)
		}
		_, at, _ := v.read((&http.Client{}).Do(r))
		return at
	}
	page, err := url.Parse(v.base + "/")
	if err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func(){
		"logout":        func() { v.post("/logout") },
		"another login": func() { v.post("/login", "token", ingesttest.Other) },
	} {
		v.login(ingesttest.Token)
		form := strings.NewReader(url.Values{"csrf": {v.csrf}}.Encode())
		silent := http.Client{Jar: v.http.Jar, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // do not load the next page, which would show the message
		}}
		resp, err := silent.Post(v.base+"/"+path("tasks", task, "cancel"), "application/x-www-form-urlencoded", form)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		cookies := v.http.Jar.Cookies(page)
		if len(cookies) != 2 {
			t.Fatalf("%s: the cookies are %v, want a session and a message", name, cookies)
		}
		if at := copied(cookies[:1]); at != "/tasks" {
			t.Errorf("before the %s: a copy of the cookie leads to %s, want the tasks", name, at)
		}
		end()
		if at := copied(cookies); !strings.HasPrefix(at, "/login") {
			t.Errorf("after the %s: a copy of the cookie leads to %s, want the login", name, at)
		}
		v.login(ingesttest.Other)
		if _, _, body := v.get("/tasks"); strings.Contains(body, `class="message"`) {
			t.Errorf("after the %s, the next person sees the previous one's message", name)
		}
	}
	var e ended
	for range maxEnded + 5 {
		e.add(session{CSRF: rand.Text(), Expires: time.Now().Add(time.Hour)})
	}
	last := session{CSRF: "last", Expires: time.Now().Add(time.Minute)}
	if e.add(last); len(e.expires) != maxEnded || !e.has(last) {
		t.Errorf("the page keeps %d ended sessions, with the last one %t; want %d with it", len(e.expires), e.has(last),
			maxEnded)
	}
}

// TestLongPaths checks that the page of a directory stays small, however long and deep its path is.
func TestLongPaths(t *testing.T) {
	_, v := start(t, 0, Options{})
	v.login(ingesttest.Token)
	for _, c := range []struct {
		query  string
		status int
	}{
		{"dir=" + strings.Repeat("a/", 2000), 200},
		{"dir=" + strings.Repeat("/", 4000) + "b/c", 200},
		{"dir=" + strings.Repeat("a/", 20_000), 400},
	} {
		status, _, body := v.get("/workspaces/main?" + c.query)
		if status != c.status || len(body) > 1<<20 {
			t.Errorf("a path of %d bytes: status %d and %d bytes, want %d and at most 1 MiB",
				len(c.query), status, len(body), c.status)
		}
	}
	want := []crumb{{"a", "a"}, {"b", "a/b"}, {"c", "a/b/c"}}
	if diff := cmp.Diff(want, crumbsOf("a/b/c")); diff != "" {
		t.Errorf("the directories on the path to a/b/c (-want +got):\n%s", diff)
	}
}

// TestPrefix checks that every link and form of the page stays below the path of a proxy.
func TestPrefix(t *testing.T) {
	f, v := start(t, 1, Options{Prefix: "/fleet"})
	task := submit(t, f, ingesttest.Token, "print 1")
	v.login(ingesttest.Token)
	link := regexp.MustCompile(` (?:href|action|src|data-[a-z]+|hx-get)="(/[^"]*)"`)
	for _, p := range []string{
		"/", "/tasks?status=dead", "/tasks/" + task.TaskID, "/new", "/inbox", "/dead", "/workflows", "/workspaces",
		"/workspaces/main", "/workspaces/main/history", "/sessions", "/skills", "/tools", "/automation", "/fleet",
		"/access", "/nosuch",
	} {
		_, _, body := v.get(p)
		links := link.FindAllStringSubmatch(body, -1)
		if len(links) < 15 {
			t.Errorf("%s has %d links, want those of the navigation:\n%s", p, len(links), body)
		}
		for _, l := range links {
			if !strings.HasPrefix(l[1], "/fleet/ui/") {
				t.Errorf("%s leads to %s, want a path below /fleet/ui", p, l[1])
			}
		}
	}
	own := "/" + path("tasks", task.TaskID)
	if status, at, _ := v.post(own + "/cancel"); status != 200 || at != own {
		t.Errorf("after a form: %d %s, want the task", status, at)
	}
	if _, at, _ := v.post("/logout"); at != "/login" {
		t.Errorf("after the logout: %s, want the login", at)
	}
}

// TestOtherTenant checks that another tenant's links show and change nothing.
func TestOtherTenant(t *testing.T) {
	f, v := start(t, 0, Options{})
	task := queueTask(t, f, "print('mine')")
	v.login(ingesttest.Other)
	for _, p := range []string{"", "/stream", "/artifacts/out.txt"} {
		if status, _, body := v.get("/tasks/" + task + p); status != 404 || strings.Contains(body, "mine") {
			t.Errorf("GET %s: status %d, want 404:\n%s", p, status, body)
		}
	}
	if status, _, body := v.get("/new?from=" + task); status != 404 || strings.Contains(body, "mine") {
		t.Errorf("a copy: status %d, want 404:\n%s", status, body)
	}
	for _, form := range [][]string{
		{"/tasks/" + task + "/cancel"},
		{"/tasks/" + task + "/retry"},
		{"/tasks/" + task + "/redrive"},
		{"/dead", "id", task},
		{"/inbox", "task", task, "call", "abcdefghij", "answer", "approve"},
		{"/new", "from", task, "kind", "code", "text", "1", "key", "k"},
		{"/workspaces/main/restore", "generation", "1"},
	} {
		if status, _, _ := v.post(form[0], form[1:]...); status < 400 || status > 404 {
			t.Errorf("POST %v: status %d, want a refusal", form, status)
		}
	}
	if r, err := f.Jobs.Record(t.Context(), "default", task); err != nil || r.Status != client.Queued {
		t.Errorf("the task is %s (%v), want queued", r.Status, err)
	}
}

// TestLinkAsks checks that a page link logs in only after a click: its sender may want the person to work in the
// sender's tenant.
func TestLinkAsks(t *testing.T) {
	_, v := start(t, 0, Options{})
	link := "/login?next=%2Fui%2Finbox&code=" + v.p.Code(ingesttest.Other)
	status, at, body := v.get(link)
	if status != 200 || at != link {
		t.Fatalf("the link: %d %s, want a question", status, at)
	}
	host := strings.TrimSuffix(strings.TrimPrefix(v.base, "http://"), root)
	has(t, "the question", body,
		"Log in to "+host+"?", "the tenant <strong>other</strong>", "the token <strong>other</strong>")
	if strings.Contains(body, "ends your present login") {
		t.Errorf("the question names a login that does not exist:\n%s", body)
	}
	if _, at, _ := v.get("/tasks"); !strings.HasPrefix(at, "/login") {
		t.Errorf("before the click: %s, want the login", at)
	}

	v.login(ingesttest.Token)
	_, _, body = v.get(link)
	has(t, "the question", body, "ends your present login: tenant <strong>default</strong>")
	if _, _, body := v.get("/tasks"); !strings.Contains(body, ">default<") {
		t.Errorf("before the click, the login has changed:\n%s", body)
	}
	values := url.Values{"code": {regexp.MustCompile(`name="code" value="(\w+)"`).FindStringSubmatch(body)[1]}}
	r, err := http.NewRequestWithContext(
		t.Context(), http.MethodPost, v.base+"/login", strings.NewReader(values.Encode()),
	)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "https://evil.example")
	if status, _, _ := v.read(v.http.Do(r)); status != http.StatusForbidden {
		t.Errorf("the form, sent by another site: status %d, want 403", status)
	}
	if _, at, body := v.post("/login", "code", values.Get("code"), "next", "/ui/inbox"); at != "/inbox" ||
		!strings.Contains(body, ">other<") {
		t.Errorf("after the click: %s, want the inbox of other:\n%s", at, body)
	}
}

// TestLinkAfterAnOutage checks that a page link is used up by a login that works, not by one that the fleet does not
// answer, and that two logins at once give one session.
func TestLinkAfterAnOutage(t *testing.T) {
	f, v := start(t, 0, Options{})
	code := v.p.Code(ingesttest.Token)
	var down atomic.Bool
	var both sync.WaitGroup // requests of the two logins, which wait for each other
	v.through(f, func(w http.ResponseWriter, _ *http.Request) bool {
		if down.Load() {
			http.Error(w, "down", http.StatusInternalServerError)
			return true
		}
		both.Done()
		both.Wait()
		return false
	})
	down.Store(true)
	if status, _, body := v.post("/login", "code", code); status != 503 || !strings.Contains(body, "Try again") {
		t.Errorf("the link during the outage: %d, want 503:\n%s", status, body)
	}
	down.Store(false)
	both.Add(2)
	statuses := make(chan int, 2)
	for range cap(statuses) {
		go func() {
			browser := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			}}
			resp, err := browser.PostForm(v.base+"/login", url.Values{"code": {code}})
			if err != nil {
				t.Errorf("Post = %v, want nil", err)
				statuses <- 0
				return
			}
			resp.Body.Close()
			statuses <- resp.StatusCode
		}()
	}
	got := []int{<-statuses, <-statuses}
	slices.Sort(got)
	if diff := cmp.Diff([]int{http.StatusSeeOther, http.StatusUnauthorized}, got); diff != "" {
		t.Errorf("statuses of two logins with one link (-want +got):\n%s", diff)
	}
}

func TestNextIsLocal(t *testing.T) {
	p := New(Options{Prefix: "/fleet"})
	for next, want := range map[string]string{
		"/fleet/ui/tools?q=a": "/fleet/ui/tools?q=a", "": "/fleet/ui/tasks", "/ui/tools": "/fleet/ui/tasks",
		"https://evil.example/fleet/ui/": "/fleet/ui/tasks", "//evil.example/fleet/ui/": "/fleet/ui/tasks",
		`/\evil.example/fleet/ui/`: "/fleet/ui/tasks", `/fleet/ui/\evil`: "/fleet/ui/tasks",
		"javascript:alert(1)": "/fleet/ui/tasks", "/fleet/ui/login?code=x": "/fleet/ui/tasks",
		"/fleet/ui//login?code=x": "/fleet/ui/tasks", "/fleet/ui/%2Flogin?code=x": "/fleet/ui/tasks",
		"/fleet/ui/./login?code=x": "/fleet/ui/tasks", "/fleet/ui/a/../login?code=x": "/fleet/ui/tasks",
		"/fleet/uix/":       "/fleet/ui/tasks",
		"/fleet/ui/../../x": "/fleet/ui/tasks", "/fleet/ui/%2e%2E/x": "/fleet/ui/tasks",
		"/fleet/ui/workspaces/main/files/.a": "/fleet/ui/workspaces/main/files/.a", "/fleet/ui/..": "/fleet/ui/tasks",
	} {
		if got := p.local(next, session{Tenant: "acme"}); got != want {
			t.Errorf("local(%q) = %q, want %q", next, got, want)
		}
	}
}

func TestCodes(t *testing.T) {
	var c codes
	now := time.Now()
	first := c.add("first", now)
	for range maxCodes {
		c.add("other", now.Add(time.Second))
	}
	if _, ok := c.redeem(first, now); ok || len(c.known) != maxCodes {
		t.Errorf("%d codes are kept, the first one: %v; want %d without it", len(c.known), ok, maxCodes)
	}
	last := c.add("last", now)
	if _, ok := c.redeem(last, now.Add(codeTime)); ok {
		t.Error("an expired code logs in")
	}
	last = c.add("last", now)
	if token, ok := c.redeem(last, now.Add(codeTime-time.Second)); !ok || token != "last" {
		t.Errorf("redeem = %q, %v; want the token", token, ok)
	}
}

// TestSessionIsSealed checks that a cookie does not contain its token, and that a cookie which was changed, is another
// cookie's, or another process's, is not a session.
func TestSessionIsSealed(t *testing.T) {
	p := New(Options{})
	value, err := p.keys.seal(sessionName, session{Token: "secret", Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := base64.RawURLEncoding.DecodeString(value); err != nil || strings.Contains(string(raw), "secret") {
		t.Errorf("cookie = %q, %v, want the token encrypted", raw, err)
	}
	other, err := p.keys.seal(messageName, session{Token: "t", Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	expired, err := p.keys.seal(sessionName, session{Token: "t", Expires: time.Now().Add(-time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		page  *Page
		value string
		want  bool
	}{
		"ours": {p, value, true}, "changed": {p, "A" + value[1:], value[0] == 'A'}, "short": {p, "AAAA", false},
		"not base64": {p, "*", false}, "another cookie": {p, other, false}, "expired": {p, expired, false},
		"another process": {New(Options{}), value, false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/ui/tasks", nil)
		r.AddCookie(&http.Cookie{Name: sessionName, Value: c.value})
		if _, ok := c.page.session(r); ok != c.want {
			t.Errorf("%s: session = %v, want %v", name, ok, c.want)
		}
	}
}

// TestForgedForms checks that forms of other sites and without the session's code change nothing.
func TestForgedForms(t *testing.T) {
	f, v := start(t, 0, Options{})
	task := queueTask(t, f, "print 1")
	v.login(ingesttest.Token)
	send := func(csrf string, header ...string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, v.base+"/"+path("tasks", task, "cancel"),
			strings.NewReader(url.Values{"csrf": {csrf}}.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		status, _, _ := v.read(v.http.Do(r))
		return status
	}
	for name, got := range map[string]int{
		"no code": send(""), "another code": send(v.csrf + "x"),
		"another site":   send(v.csrf, "Sec-Fetch-Site", "cross-site"),
		"another origin": send(v.csrf, "Origin", "https://evil.example"),
	} {
		if got != http.StatusForbidden {
			t.Errorf("%s: status %d, want 403", name, got)
		}
	}
	if r, err := f.Jobs.Record(t.Context(), "default", task); err != nil || r.Status != client.Queued {
		t.Errorf("the task is %s (%v), want queued", r.Status, err)
	}
	if got := send(v.csrf, "Sec-Fetch-Site", "same-origin"); got != http.StatusOK {
		t.Errorf("our form: status %d, want 200", got)
	}
	if r, err := f.Jobs.Record(t.Context(), "default", task); err != nil || r.Status != client.Cancelled {
		t.Errorf("the task is %s (%v), want cancelled", r.Status, err)
	}
	if status, _, _ := v.post("/new", "text", strings.Repeat("x", maxForm)); status != 413 {
		t.Errorf("a form above the limit: status %d, want 413", status)
	}
}

// queueTask submits a task to a fleet without workers, and returns its id.
func queueTask(t *testing.T, f *ingesttest.Fleet, code string) string {
	t.Helper()
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.Submit(t.Context(), client.Submission{Task: client.Task{Code: code}})
	if err != nil {
		t.Fatal(err)
	}
	return r.TaskID
}

func TestReadOnly(t *testing.T) {
	f, v := start(t, 0, Options{})
	task := queueTask(t, f, "print 1")
	v.login(ingesttest.Token)
	v.p.o.ReadOnly = true
	if status, _, body := v.post("/tasks", "verb", "cancel", "id", task); status != 403 ||
		!strings.Contains(body, "read-only") {
		t.Errorf("a form: status %d, want 403", status)
	}
	_, _, body := v.get("/" + path("tasks", task))
	if strings.Contains(body, ">Cancel<") || strings.Contains(body, "Rerun edited") {
		t.Errorf("the page of a task offers changes:\n%s", body)
	}
}

func TestTasks(t *testing.T) {
	f, v := start(t, 1, Options{})
	done := submit(t, f, ingesttest.Token, "print <script>alert(1)</script>")
	failed := submit(t, f, ingesttest.Token, "fail <b>")
	foreign := submit(t, f, ingesttest.Other, "print secret-of-other")
	v.login(ingesttest.Token)
	_, _, body := v.get("/tasks")
	has(t, "the list", body, done.TaskID, failed.TaskID, "print &lt;script&gt;alert(1)&lt;/script&gt;")
	if strings.Contains(body, foreign.TaskID) || strings.Contains(body, "<script>alert") {
		t.Errorf("the list has another tenant's task, or a script:\n%s", body)
	}
	_, _, body = v.get("/tasks?status=failed&status=nonsense")
	if strings.Contains(body, done.TaskID) || !strings.Contains(body, failed.TaskID) {
		t.Errorf("the list of failed tasks:\n%s", body)
	}
	ids := []string{"verb", "cancel"}
	for range maxBulk + 1 {
		ids = append(ids, "id", done.TaskID)
	}
	if status, _, body := v.post("/tasks", ids...); status != 400 || !strings.Contains(body, "at most 1000 at once") {
		t.Errorf("a form with %d tasks: status %d, want 400 and the limit", maxBulk+1, status)
	}
	_, _, body = v.get("/tasks?q=SCRIPT")
	if !strings.Contains(body, done.TaskID) || strings.Contains(body, failed.TaskID) {
		t.Errorf("the search:\n%s", body)
	}
	_, _, body = v.get("/" + path("tasks", done.TaskID))
	has(t, "the task", body, "&lt;script&gt;alert(1)&lt;/script&gt;\n</pre>", "succeeded", "queued", "test-worker")
	_, _, body = v.get("/" + path("tasks", failed.TaskID))
	has(t, "the failed task", body, "ValueError: &lt;b&gt;", "program_error", "line 1")
	for _, id := range []string{foreign.TaskID, "nonsense", "a%2Fb", "%00"} {
		if status, _, _ := v.get("/tasks/" + id); status != http.StatusNotFound {
			t.Errorf("task %s: status %d, want 404", id, status)
		}
	}
	// A form that is sent twice is one task.
	_, first, _ := v.post("/new", "kind", "code", "text", "print a\r\nb", "key", "k1", "inputs", `{"n": 1}`)
	_, second, body := v.post("/new", "kind", "code", "text", "print a\r\nb", "key", "k1", "inputs", `{"n": 1}`)
	if first != second || !strings.HasPrefix(first, "/tasks/") {
		t.Errorf("the same form twice: %s and %s, want the same task", first, second)
	}
	has(t, "the new task", body, "print a")
	if status, _, body := v.post("/new", "kind", "code", "text", "x", "inputs", "{"); status != 400 ||
		!strings.Contains(body, "The inputs are not JSON.") {
		t.Errorf("inputs that are not JSON: status %d, want 400", status)
	}
	_, _, body = v.get("/new?from=" + done.TaskID)
	has(t, "the form for a copy", body, "print &lt;script&gt;alert(1)&lt;/script&gt;</textarea>")
}

// TestRerun checks that a copy of a task keeps what the form does not contain, and may begin with the files that the
// task has found.
func TestRerun(t *testing.T) {
	f, v := start(t, 1, Options{})
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, text := range []string{"one", "two"} {
		if _, err := c.Workspace("main").Put(t.Context(), "a.txt", strings.NewReader(text), ""); err != nil {
			t.Fatal(err)
		}
	}
	old, err := c.Run(t.Context(), client.Submission{Priority: "high", Task: client.Task{
		Code: "print 1", Inputs: json.RawMessage(`{"n":12345678901234567890}`), Labels: map[string]string{"team": "a"},
		Artifacts: []string{"out/*.png", "b"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	f.AwaitSubmission(t, old.TaskID)
	v.login(ingesttest.Token)
	_, _, body := v.get("/new?from=" + old.TaskID)
	has(t, "the form", body, "12345678901234567890", "out/*.png\nb</textarea>", "<option selected>high</option>")
	form := []string{
		"from", old.TaskID, "kind", "code", "text", "print 2", "workspace", "main", "key", "ABCDEFGHIJKLMN",
		"generation", "1",
	}
	_, first, _ := v.post("/new", form...)
	_, second, _ := v.post("/new", form...)
	id := strings.TrimPrefix(first, "/tasks/")
	if first != second || id == old.TaskID {
		t.Fatalf("the form twice: %s and %s, want one new task", first, second)
	}
	r, err := c.Wait(t.Context(), id)
	if err != nil || r.Workspace != "main-rerun-abcdefghij" || r.Result.Output != "2\n" {
		t.Errorf("the copy is %+v (%v), want it in a new workspace", r, err)
	}
	file, err := c.Workspace(r.Workspace).Open(t.Context(), "", "a.txt", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if text, err := io.ReadAll(file); err != nil || string(text) != "one" {
		t.Errorf("a.txt of the copy is %q (%v), want one", text, err)
	}
	f.AwaitSubmission(t, id)
	s, err := c.Submission(t.Context(), id)
	if err != nil || s.Labels["team"] != "a" || s.Priority == "high" || s.Inputs != nil || s.Artifacts != nil {
		t.Errorf("the submission is %+v (%v), want the labels of the first one, and else what the form has", s, err)
	}
}

// TestAgo checks the largest durations, too.
func TestAgo(t *testing.T) {
	for d, want := range map[time.Duration]string{
		90 * time.Second: "1 min ago", -90 * time.Second: "in 1 min",
		math.MinInt64: "in 106751 days", math.MaxInt64: "106751 days ago", // what time.Since returns beyond 292 years
	} {
		if got := ago(d); got != want {
			t.Errorf("ago(%s) = %s, want %s", d, got, want)
		}
	}
}

// TestFiles checks that the files of a form reach the task, and that large forms are refused.
func TestFiles(t *testing.T) {
	f, v := start(t, 1, Options{})
	v.login(ingesttest.Token)
	code := "print 1"
	send := func(content []byte) (status int, at, body string) {
		var form bytes.Buffer
		w := multipart.NewWriter(&form)
		for name, value := range map[string]string{
			"csrf": v.csrf, "kind": "code", "text": code, "key": fmt.Sprint("k", len(content)),
		} {
			if err := w.WriteField(name, value); err != nil {
				t.Fatal(err)
			}
		}
		part, err := w.CreateFormFile("files", "../a<b>.bin")
		if err == nil {
			_, err = part.Write(content)
		}
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		return v.read(v.http.Post(v.base+"/new", w.FormDataContentType(), &form))
	}
	_, at, body := send([]byte("\x00\xff"))
	id := strings.TrimPrefix(at, "/tasks/")
	if id == at {
		t.Fatalf("the form led to %s:\n%s", at, body)
	}
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f.AwaitSubmission(t, id)
	s, err := c.Submission(t.Context(), id)
	if err != nil || len(s.Files) != 1 || s.Files[0].Name != "a<b>.bin" || *s.Files[0].Base64 != "AP8=" {
		t.Errorf("the files are %+v (%v), want a<b>.bin with its bytes", s.Files, err)
	}
	if status, at, _ := send(make([]byte, maxUpload)); status != http.StatusOK || !strings.HasPrefix(at, "/tasks/") {
		t.Errorf("files of the limit: status %d at %s, want a task", status, at)
	}
	for _, more := range []int{1, maxForm} {
		if status, _, _ := send(make([]byte, maxUpload+more)); status != http.StatusRequestEntityTooLarge {
			t.Errorf("files %d bytes above the limit: status %d, want 413", more, status)
		}
	}
	code = strings.Repeat("#", maxForm)
	if status, _, _ := send([]byte("x")); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a program above the limit of a form, with a small file: status %d, want 413", status)
	}
}

// through makes the page send its requests to the fleet through a handler, which returns false to pass one on.
func (v *visitor) through(f *ingesttest.Fleet, handle func(http.ResponseWriter, *http.Request) bool) {
	v.t.Helper()
	target, err := url.Parse(f.URL)
	if err != nil {
		v.t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !handle(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	v.t.Cleanup(server.Close)
	v.p.o.Fleet.URL = server.URL
}

// TestSlowAction checks that the time limit of a form's body does not end its action.
func TestSlowAction(t *testing.T) {
	const bodyTime = time.Second
	f, v := start(t, 0, Options{})
	v.login(ingesttest.Token)
	id := queueTask(t, f, "print 1")
	v.through(f, func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			select {
			case <-time.After(4 * bodyTime):
			case <-r.Context().Done(): // the page has given up
			}
		}
		return false
	})
	guarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost { // as the fleet does for a page that it serves
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
		}
		v.p.ServeHTTP(w, r)
	}))
	t.Cleanup(guarded.Close)
	v.base = guarded.URL + root
	v.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if status, _, body := v.post("/" + path("tasks", id, "cancel")); status != http.StatusSeeOther {
		t.Errorf("a form whose action takes longer than the body may: status %d, want 303: %q", status, body)
	}
}

// TestManyCalls checks that a task's page says so if it may not have the earliest calls.
func TestManyCalls(t *testing.T) {
	f, v := start(t, 1, Options{})
	v.login(ingesttest.Token)
	task := submit(t, f, ingesttest.Token, "print x")
	for n, want := range map[int]bool{readLimit - 1: false, readLimit: true} {
		v.through(f, func(w http.ResponseWriter, r *http.Request) bool {
			isAudit := r.URL.Path == "/v1/audit"
			if isAudit {
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(slices.Repeat([]client.AuditRecord{{Event: "end", Tool: "drop"}}, n))
			}
			return isAudit
		})
		status, _, body := v.get("/tasks/" + task.TaskID)
		if got := strings.Contains(body, "These are the newest calls."); status != http.StatusOK || got != want {
			t.Errorf("the page of a task with %d records: status %d, says that calls are missing: %v, want %v",
				n, status, got, want)
		}
	}
}

// TestRefusedDiff checks that a page does not show a refusal of the fleet as a property of a file.
func TestRefusedDiff(t *testing.T) {
	f, v := start(t, 0, Options{})
	v.login(ingesttest.Token)
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var versions []string
	for _, text := range []string{"old", "new"} {
		k, err := c.Workspace("w").Put(t.Context(), "file", strings.NewReader(text), "")
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, strconv.FormatInt(k.Generation, 10))
	}
	diff := "/workspaces/w/diff?from=" + versions[0] + "&to=" + versions[1]
	if status, _, body := v.get(diff); status != http.StatusOK || !strings.Contains(body, "new") {
		t.Fatalf("%s: status %d, want the changed line:\n%s", diff, status, body)
	}
	_, _, body := v.get("/workspaces/w/history")
	has(t, "the history", body, "diff?from=0&amp;to="+versions[0])
	for _, from := range []string{"0", "99"} { // no version before is kept
		status, _, body := v.get("/workspaces/w/diff?from=" + from + "&to=" + versions[0])
		if status != http.StatusOK {
			t.Errorf("the changes from generation %s: status %d, want 200", from, status)
		}
		has(t, "the changes from generation "+from, body, "All files of generation "+versions[0],
			`<span class="op added">added</span> file`, `<span class="added">&#43;old`)
	}
	if status, _, _ := v.get("/workspaces/w/diff?from=0&to=99"); status != http.StatusNotFound {
		t.Errorf("the changes of an unknown version: status %d, want 404", status)
	}
	refuse := func(status int, code string) {
		v.through(f, func(w http.ResponseWriter, r *http.Request) bool {
			refused := strings.HasSuffix(r.URL.Path, "/files/file")
			if refused {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				_, _ = fmt.Fprintf(w, `{"code":%q,"message":"refused"}`, code)
			}
			return refused
		})
	}
	refuse(http.StatusBadRequest, errcode.BadPath) // a program gave the file a name with control characters
	if status, _, body := v.get(diff); status != http.StatusOK || !strings.Contains(body, "with this name") {
		t.Errorf("a diff with a file that cannot be read: status %d, want 200 and the reason:\n%s", status, body)
	}
	refuse(http.StatusUnauthorized, errcode.Unauthorized)
	if _, at, body := v.get(diff); strings.Contains(body, "It is a directory or a link.") ||
		!strings.HasPrefix(at, "/login") {
		t.Errorf("a diff with a revoked token led to %s, want the login:\n%s", at, body)
	}
}

// TestLongLists checks that a page is small and says what is missing if there is more than it lists.
func TestLongLists(t *testing.T) {
	f, v := start(t, 0, Options{})
	v.login(ingesttest.Token)
	waiting := client.WorkflowRun{RunID: "r1", Name: "order", Steps: []schemas.StepRun{
		{ID: "ask", Status: schemas.WorkflowWaiting},
	}}
	asks := waiting
	asks.Workflow = json.RawMessage(`{"name": "order", "steps": [{"id": "ask", "ask": {"message": "How many?",
		"form": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}}}]}`)
	changes := make([]client.PathChange, 2*maxEntries)
	for i := range changes {
		changes[i] = client.PathChange{Path: fmt.Sprintf("f%04d", i), Op: "changed", Bytes: maxText + 1}
	}
	for _, c := range []struct {
		name, at  string
		responses map[string]any
		wants     []string
		lacks     string
	}{
		{
			"many questions", "/inbox",
			map[string]any{
				fmt.Sprint("/v1/workflows/runs?asking=true&limit=", listLimit): slices.Repeat(
					[]client.WorkflowRun{waiting}, listLimit),
				"/v1/workflows/runs/r1": asks,
			},
			[]string{`action="/ui/workflows/r1/answer"`, "Only the questions of 100 workflow runs are listed."},
			"Nothing waits for you.",
		},
		{
			"many changes", "/workspaces/w/diff?from=1&to=2",
			map[string]any{"/v1/workspaces/w/diff?from=1&to=2": changes},
			[]string{fmt.Sprintf("f%04d", maxEntries-1), fmt.Sprint(maxEntries, " more changes are not listed")},
			fmt.Sprintf("f%04d", maxEntries),
		},
	} {
		v.through(f, func(w http.ResponseWriter, r *http.Request) bool {
			response, ok := c.responses[r.URL.RequestURI()]
			if ok {
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(response)
			}
			return ok
		})
		_, _, body := v.get(c.at)
		has(t, c.name, body, c.wants...)
		if strings.Contains(body, c.lacks) {
			t.Errorf("%s: the page has %q, want it left out", c.name, c.lacks)
		}
	}
}

// TestDeepJSON checks that indentation does not make deep JSON much larger.
func TestDeepJSON(t *testing.T) {
	deep := strings.Repeat("[", 490) + strings.Repeat("1,", 120_000) + "1" + strings.Repeat("]", 490)
	if got := indented(json.RawMessage(deep)); got != deep {
		t.Errorf("indented() of %d bytes has %d bytes, want them unchanged", len(deep), len(got))
	}
	if got, want := indented(json.RawMessage(`{"n":12345678901234567890}`)), "{\n  \"n\": 12345678901234567890\n}"; got != want {
		t.Errorf("indented() = %q, want %q", got, want)
	}
}

// TestRerunWithoutSubmission checks that the form for a copy says so if large data of the earlier task is not kept.
func TestRerunWithoutSubmission(t *testing.T) {
	f, v := start(t, 1, Options{})
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	large := strings.Repeat("x", 300<<10)
	old, err := c.Run(t.Context(), client.Submission{Task: client.Task{
		Code: "fail 1", Files: []client.File{{Name: "a.txt", Text: &large}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	f.AwaitSubmitted(t, old.TaskID, func(err error) bool {
		gone, ok := errors.AsType[*jobs.NotRetryableError](err)
		return ok && strings.Contains(gone.Reason, "its data is above 256 KiB")
	})
	v.login(ingesttest.Token)
	_, _, body := v.get("/new?from=" + old.TaskID)
	has(t, "the form", body, "fail 1</textarea>", `name="from" value=""`, "Add inputs and files;", "256 KiB")
	status, _, body := v.post("/" + path("tasks", old.TaskID, "retry"))
	if status != http.StatusConflict {
		t.Errorf("retry: status %d, want 409", status)
	}
	has(t, "the retry", body, "256 KiB")
}

func TestBulkAndDead(t *testing.T) {
	f, v := start(t, 1, Options{})
	dead, done := submit(t, f, ingesttest.Token, "die"), submit(t, f, ingesttest.Token, "print 1")
	v.login(ingesttest.Token)
	_, _, body := v.get("/dead")
	has(t, "the dead letters", body, dead.TaskID)
	_, _, body = v.post("/tasks", "verb", "redrive", "id", dead.TaskID, "id", done.TaskID)
	has(t, "the list", body, "Redrove 1 of 2 tasks. 1 could not be changed")
	failed := submit(t, f, ingesttest.Token, "fail once")
	f.AwaitSubmission(t, failed.TaskID)
	_, at, body := v.post("/" + path("tasks", failed.TaskID, "retry"))
	has(t, "the retry", body, "The task runs again.")
	if at == "/"+path("tasks", failed.TaskID) {
		t.Error("the retry of a failed task is the same task")
	}
	_, _, body = v.post("/tasks", "verb", "retry", "id", failed.TaskID, "id", done.TaskID)
	has(t, "the list", body, "Retried 1 of 2 tasks.")
	_, _, body = v.post("/" + path("tasks", done.TaskID, "cancel"))
	has(t, "the cancel of a task that has ended", body, "The task had already ended: succeeded.")
	_, _, body = v.post("/tasks", "verb", "cancel", "id", done.TaskID)
	has(t, "the cancel of a list", body, "Requested the cancellation of 0 of 1 task. 1 had already ended.")
	for verb, want := range map[string]int{"cancel": 400, "erase": 404} {
		ids := []string{"verb", verb}
		if verb == "erase" {
			ids = append(ids, "id", done.TaskID)
		}
		if status, _, _ := v.post("/tasks", ids...); status != want {
			t.Errorf("%s %v: status %d, want %d", verb, ids, status, want)
		}
	}
}

// TestBulkLimit checks that retrying a list of tasks stops when the backlog is full, and says how far it came.
func TestBulkLimit(t *testing.T) {
	f, v := start(t, 1, Options{})
	v.login(ingesttest.Token)
	ids := []string{"verb", "retry"}
	for range 3 {
		failed := submit(t, f, ingesttest.Token, "fail once").TaskID
		f.AwaitSubmission(t, failed)
		ids = append(ids, "id", failed)
	}
	if _, err := f.Jobs.Pause(t.Context(), schemas.Pause{Target: schemas.PauseFleet}); err != nil {
		t.Fatal(err)
	}

	if _, err := f.Jobs.SetLimits(t.Context(), "default", schemas.TenantLimits{Backlog: new(1)}); err != nil {
		t.Fatal(err)
	}
	status, _, body := v.post("/tasks", ids...)
	if status != http.StatusTooManyRequests {
		t.Errorf("status %d, want 429", status)
	}
	has(t, "the error", body, "Retried 1 of 3 tasks.", errcode.BacklogFull)
}

// TestBulkCancel checks that exactly the selected tasks of the person's tenant are cancelled.
func TestBulkCancel(t *testing.T) {
	f, v := start(t, 0, Options{})
	ctx := t.Context()
	submitted := func(token string, n int) (c *client.Client, ids []string) {
		c, err := client.New(ctx, client.Options{URL: f.URL, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		for range n {
			r, err := c.Submit(ctx, client.Submission{Task: client.Task{Code: "print 1"}})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, r.TaskID)
		}
		return c, ids
	}
	mine, ids := submitted(ingesttest.Token, 5)
	others, foreign := submitted(ingesttest.Other, 1)
	v.login(ingesttest.Token)
	_, _, body := v.post("/tasks", "verb", "cancel", "id", ids[1], "id", foreign[0], "id", ids[3], "id", "../x")
	has(t, "the list", body, "Requested the cancellation of 2 of 4 tasks. 2 could not be changed.")
	got := map[string]client.Status{}
	for c, ids := range map[*client.Client][]string{mine: ids, others: foreign} {
		for _, id := range ids {
			r, err := c.Get(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			got[id] = r.Status
		}
	}
	want := map[string]client.Status{
		ids[0]: client.Queued, ids[1]: client.Cancelled, ids[2]: client.Queued, ids[3]: client.Cancelled,
		ids[4]: client.Queued, foreign[0]: client.Queued,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the tasks after the cancel (-want +got):\n%s", diff)
	}
}

func TestInbox(t *testing.T) {
	f, v := start(t, 1, Options{})
	task := submit(t, f, ingesttest.Token, "ask <i>ann</i>")
	call := task.Pending(time.Now())[0].Call
	v.login(ingesttest.Agent) // without the scope approve
	_, _, body := v.get("/inbox")
	has(t, "the inbox", body, "crm/drop", `\u003ci\u003eann`, "You cannot answer it here")
	if status, _, body := v.post("/inbox", "task", task.TaskID, "call", call, "answer", "approve"); status != 403 ||
		!strings.Contains(body, "forbidden") {
		t.Errorf("an answer without the scope: status %d, want 403", status)
	}
	v.login(ingesttest.Token)
	for _, values := range [][]string{
		{"answer", "maybe"},
		{"answer", "approve"},
		{"answer", "deny", "call", call, "reason", strings.Repeat("x", 501)},
	} {
		if status, _, _ := v.post("/inbox", append(values, "task", task.TaskID)...); status != 400 && status != 404 {
			t.Errorf("%.60q: status %d, want 400 or 404", values, status)
		}
	}
	status, _, body := v.post("/inbox", "task", task.TaskID, "call", call, "answer", "deny", "reason", "no <b>")
	if status != 200 {
		t.Fatalf("deny: status %d, %s", status, body)
	}
	has(t, "the inbox", body, "Denied.", "Nothing waits for you.")
	r, err := f.Jobs.Wait(t.Context(), "default", task.TaskID)
	if err != nil || r.Result.Output != "denied default no <b>\n" {
		t.Errorf("the task's output is %q (%v), want the answer", r.Result.Output, err)
	}
}

// TestLive checks that streams notify open pages of changes, share one feed, and end when the page drains.
func TestLive(t *testing.T) {
	f, v := start(t, 1, Options{})
	v.login(ingesttest.Token)
	events := make(chan string, 10)
	ended := make(chan struct{})
	for i := range 2 {
		resp, err := v.http.Get(v.base + "/live")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		if lines.Scan(); lines.Text() != "event: hello" {
			t.Fatalf("the stream begins with %q, want hello", lines.Text())
		}
		if i == 1 {
			go func() {
				for lines.Scan() {
					if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
						events <- name
					}
				}
				close(ended)
			}()
		}
	}
	v.p.feeds.mu.Lock()
	if n := len(v.p.feeds.byToken); n != 1 || v.p.feeds.streams != 2 {
		t.Errorf("%d feeds for %d streams, want 1 for 2", n, v.p.feeds.streams)
	}
	v.p.feeds.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), ingesttest.WaitTimeout)
	defer cancel()
	for notified := false; !notified; { // the feed's first poll may include the first task
		submit(t, f, ingesttest.Token, "print 1")
		select {
		case name := <-events:
			if name != "change" {
				t.Errorf("event %q, want change", name)
			}
			notified = true
		case <-time.After(2 * pollTime):
		case <-ctx.Done():
			t.Fatal("the page was not told of new tasks")
		}
	}
	v.p.Drain()
	select {
	case <-ended:
	case <-ctx.Done():
		t.Error("a stream goes on after Drain")
	}
}

func TestStreamsAreLimited(t *testing.T) {
	_, v := start(t, 0, Options{})
	v.login(ingesttest.Token)
	v.p.feeds.streams = maxStreams
	for _, path := range []string{"/live", "/tasks/t1/stream"} {
		if status, _, _ := v.get(path); status != http.StatusServiceUnavailable {
			t.Errorf("%s, one stream too many: status %d, want 503", path, status)
		}
	}
}

// TestTaskStream checks that the output of a task arrives, and that a stream resumes.
func TestTaskStream(t *testing.T) {
	f, v := start(t, 1, Options{})
	task := submit(t, f, ingesttest.Token, "print </script>")
	v.login(ingesttest.Token)
	_, _, body := v.get("/" + path("tasks", task.TaskID, "stream"))
	has(t, "the stream", body, `"stream":"stdout","text":"\u003c/script\u003e\n"`, "event: end")
	last := regexp.MustCompile(`id: (\d+)`).FindAllStringSubmatch(body, -1)
	stream := v.base + "/" + path("tasks", task.TaskID, "stream")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, stream, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Last-Event-ID", last[len(last)-1][1])
	if _, _, body := v.read(v.http.Do(r)); strings.Contains(body, "progress") || !strings.Contains(body, "event: end") {
		t.Errorf("the resumed stream is %q, want only its end", body)
	}
}

// TestRevoked checks that a session, and the streams of its pages, end with its token.
func TestRevoked(t *testing.T) {
	f, v := start(t, 0, Options{})
	v.login(ingesttest.Token)
	ctx, cancel := context.WithTimeout(t.Context(), ingesttest.WaitTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.base+"/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	live, err := v.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Body.Close()
	defer func() {
		if _, err := io.Copy(io.Discard, live.Body); err != nil {
			t.Errorf("the stream of a revoked token goes on: %v", err)
		}
	}()
	f.Ingest.SetTokens([]ingest.Token{{Name: "new", Tenant: "default"}})
	if _, at, _ := v.get("/tasks"); !strings.HasPrefix(at, "/login") {
		t.Errorf("with a revoked token: %s, want the login", at)
	}
}

func TestOperatorsOnly(t *testing.T) {
	_, v := start(t, 0, Options{})
	v.login(ingesttest.Agent)
	if status, _, body := v.get("/fleet"); status != 403 || strings.Contains(body, ">Fleet<") {
		t.Errorf("the fleet without the scope operator: status %d, want 403 and no link", status)
	}
	v.login(ingesttest.Token)
	if _, _, body := v.post("/fleet/pause", "target", "tenant/default", "reason", "a <b>"); !strings.Contains(body,
		"a &lt;b&gt;") {
		t.Errorf("after a pause:\n%s", body)
	}
	if _, _, body := v.post("/fleet/resume", "target", "tenant/default"); !strings.Contains(body, "Nothing.") {
		t.Errorf("after resuming:\n%s", body)
	}
	if status, _, body := v.post("/fleet/drain", "target", "absent"); status != 404 {
		t.Errorf("drain of an unknown worker: status %d, want 404:\n%s", status, body)
	}
}

// TestQuestionsOfLoops checks that the inbox has the questions of a loop, and that open pages learn of the next one.
func TestQuestionsOfLoops(t *testing.T) {
	f, v := start(t, 0, Options{})
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	run, err := c.RunWorkflow(t.Context(), client.WorkflowRequest{Workflow: json.RawMessage(`{
		"name": "order", "steps": [{"id": "ask", "for_each": {"in": ["a", "b"]}, "ask": {"message": "How many?",
			"form": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}}}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	v.login(ingesttest.Token)
	_, _, body := v.get("/inbox")
	has(t, "the inbox", body, "How many?", `action="/ui/`+path("workflows", run.RunID, "answer")+`"`)
	before, err := hashOf(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.AnswerWorkflow(t.Context(), run.RunID, client.WorkflowAnswer{
		Step: "ask", Item: new(0), Values: json.RawMessage(`{"n": 1}`),
	}); err != nil {
		t.Fatal(err)
	}
	if after, err := hashOf(t.Context(), c); err != nil || after == before {
		t.Errorf("the hash after the first answer is %d (%v), want another one than before", after, err)
	}
}

// TestNumbers checks that the page of the fleet learns of queued tasks and pauses, also for an operator without a
// tenant.
func TestNumbers(t *testing.T) {
	f, v := start(t, 0, Options{})
	v.post("/login", "code", v.p.Code(ingesttest.Operator))
	_, _, body := v.get("/new")
	v.csrf = regexp.MustCompile(`name="csrf" value="(\w+)"`).FindStringSubmatch(body)[1]
	seen := map[string]string{}
	for _, step := range []string{"before", "a task", "a pause"} {
		switch step {
		case "a task":
			queueTask(t, f, "print 1")
		case "a pause":
			v.post("/fleet/pause", "target", "pool/default")
		}
		var numbers struct {
			Shown []string `json:"shown"`
		}
		_, _, body := v.get("/fleet/numbers")
		if err := json.Unmarshal([]byte(body), &numbers); err != nil {
			t.Fatalf("numbers %s: %v", body, err)
		}
		shown := fmt.Sprint(numbers.Shown)
		if earlier, ok := seen[shown]; ok {
			t.Errorf("the fleet after %s looks like %s: %s", step, earlier, shown)
		}
		seen[shown] = step
	}
}

// TestDrain checks that an operator drains a worker on the page.
func TestDrain(t *testing.T) {
	f, v := start(t, 0, Options{})
	drained := make(chan struct{})
	w := jobs.NewWorker(f.Jobs, jobs.WorkerOptions{
		Name: "drainable", Slots: 1, Handler: ingesttest.Run,
		Hooks: jobs.Hooks{Drain: sync.OnceFunc(func() { close(drained) })},
	})
	ctx, cancel := context.WithTimeout(t.Context(), ingesttest.WaitTimeout)
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx, ctx); err != nil {
			t.Errorf("Run of the worker = %v, want nil", err)
		}
	})
	defer running.Wait()
	defer cancel()
	v.login(ingesttest.Token)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	const drainButton = `aria-label="Drain drainable"`
	for _, _, body := v.get("/fleet"); !strings.Contains(body, drainButton); _, _, body = v.get("/fleet") {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the page offers no drain of the worker:\n%s", body)
		}
	}
	_, _, body := v.post("/fleet/drain", "target", "drainable")
	has(t, "the page after the drain", body, "claims no more tasks")
	select {
	case <-drained:
	case <-ctx.Done():
		t.Error("the worker was not told to drain")
	}
}

// TestShares checks each tenant's share of a day, and the order of the list.
func TestShares(t *testing.T) {
	got := shares([]client.TenantUsage{
		{Tenant: "a", Day: "2026-11-22", BoxSeconds: 5},
		{Tenant: "a", Day: "2026-11-23", BoxSeconds: 1},
		{Tenant: "b", Day: "2026-11-23", BoxSeconds: 3},
		{Tenant: "c", Day: "2026-11-24"},
	})
	var lines []string
	for _, d := range got {
		lines = append(lines, fmt.Sprint(d.Day, " ", d.Tenant, " ", d.Share))
	}
	want := []string{"2026-11-24 c 0", "2026-11-23 b 75", "2026-11-23 a 25", "2026-11-22 a 100"}
	if d := cmp.Diff(want, lines); d != "" {
		t.Errorf("shares (-want +got):\n%s", d)
	}
}

// TestAccess checks that operators create and remove tenants and tokens, whose secret is shown once.
func TestAccess(t *testing.T) {
	_, v := start(t, 0, Options{})
	v.login(ingesttest.Agent)
	if status, _, body := v.get("/access"); status != 403 || strings.Contains(body, ">Access<") {
		t.Errorf("tokens without the scope operator: status %d, want 403 and no link", status)
	}
	v.login(ingesttest.Token)
	_, _, body := v.post("/access/create-tenant", "name", "lab")
	has(t, "the page after a new tenant", body, "Created the tenant lab.", "Remove the tenant lab")
	_, _, body = v.post("/access/create-token", "name", "bot", "tenant", "lab", "scope", "read", "scope", "submit")
	m := regexp.MustCompile(`is shown only now: ([^\s<]+)`).FindStringSubmatch(body)
	if m == nil {
		t.Fatalf("the page after a new token has no secret:\n%s", body)
	}
	_, _, body = v.get("/access")
	if strings.Contains(body, m[1]) {
		t.Error("the page shows the secret twice")
	}
	id := regexp.MustCompile(`name="id" value="([^"]+)"`).FindStringSubmatch(body)
	if id == nil {
		t.Fatalf("the new token cannot be revoked:\n%s", body)
	}
	_, _, body = v.post("/access/revoke-token", "id", id[1], "name", "<i>")
	has(t, "the page after revoking", body, "Revoked the token &lt;i&gt;.")
	_, _, body = v.post("/access/remove-tenant", "name", "lab")
	has(t, "the page after removing", body, "Removed the tenant lab, its tokens, schedules, triggers and webhooks.")
	if status, _, _ := v.post("/access/create-tenant", "name", "../x"); status != 400 {
		t.Errorf("a wrong name: status %d, want 400", status)
	}
	status, _, body := v.post("/access/create-token", "name", "", "tenant", "")
	has(t, "an empty form for a token", body, "No scope is selected.")
	_, _, body = v.post("/access/create-token", "name", "", "tenant", "default")
	has(t, "a form for a token without scopes", body, "No scope is selected.")
	_, _, body = v.post("/access/create-token", "tenant", "default", "tenant", "other", "scope", "read")
	has(t, "a form with two tenants", body, "The form has a field twice.")
	_, _, list := v.get("/access")
	if n := strings.Count(list, "/access/revoke-token"); status != 400 || n != 0 {
		t.Errorf("an empty form for a token: status %d and %d new tokens, want 400 and none", status, n)
	}
	if status, _, _ := v.post("/access/erase", "name", "lab"); status != 404 {
		t.Errorf("another verb: status %d, want 404", status)
	}
}

// TestHeaders checks the security headers of every response.
func TestHeaders(t *testing.T) {
	_, v := start(t, 0, Options{})
	v.login(ingesttest.Token)
	for _, path := range []string{"/tasks", "/login", "/nope", "/assets/x/y", "/assets/" + assetVersion + "/page.js"} {
		resp, err := v.http.Get(v.base + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Content-Security-Policy"); got != policy {
			t.Errorf("%s: policy %q, want %q", path, got, policy)
		}
		if resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: header %v", path, resp.Header)
		}
	}
	if n := len(regexp.MustCompile(`unsafe|\*|data:|http`).FindAllString(policy, -1)); n > 0 {
		t.Errorf("the policy %q permits more than the page's own files", policy)
	}
}

// TestAssetsAreSmall keeps the page fast: what it loads from other projects stays below 150 KB.
func TestAssetsAreSmall(t *testing.T) {
	total := 0
	for _, name := range []string{"htmx.min.js", "uPlot.iife.min.js", "uPlot.min.css"} {
		data, err := files.ReadFile("assets/" + name)
		if err != nil {
			t.Fatal(err)
		}
		total += len(data)
	}
	if total > 150_000 {
		t.Errorf("%d bytes, want at most 150,000", total)
	}
}

// TestWorkflows checks that the page shows a run, and sends the answer to what a step asks.
func TestWorkflows(t *testing.T) {
	f, v := start(t, 0, Options{})
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	run, err := c.RunWorkflow(t.Context(), client.WorkflowRequest{Workflow: json.RawMessage(`{
		"name": "order", "steps": [{"id": "ask", "ask": {"message": "How <b>many</b>?", "form": {
			"type": "object", "required": ["n"], "properties": {
				"n": {"type": "integer", "minimum": 1, "title": "Number <i>"}, "gift": {"type": "boolean"},
				"size": {"type": "string", "enum": ["small", "large"]},
				"off": {"type": "integer", "default": 0}, "note": {"type": "string"},
				"pay": {"type": "string", "enum": ["now", "later"], "default": "later"},
				"with": {"type": "array", "items": {"enum": ["card", "wrap"]}, "default": ["wrap"]}}}}}],
		"outputs": {"all": {"value": "${ steps.ask.result }"}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	at := "/" + path("workflows", run.RunID)
	v.login(ingesttest.Token)
	_, _, body := v.get("/workflows")
	has(t, "the list of runs", body, run.RunID, "order", "waiting")
	_, _, body = v.get(at)
	has(t, "the run", body, "How &lt;b&gt;many&lt;/b&gt;?", "Number &lt;i&gt;", `name="field.gift"`,
		`<option value="large">`, `>ask · waiting</text>`, `name="field.off" value="0"`, `name="field.note" value=""`,
		`<option value="now">`, `<option value="later" selected>`, `value="card">`, `value="wrap" checked>`)
	_, _, body = v.get("/inbox")
	has(t, "the inbox", body, "order", "How &lt;b&gt;many&lt;/b&gt;?", `action="/ui`+at+`/answer"`)
	for _, n := range []string{"none", "9007199254740993.5"} {
		status, _, body := v.post(at+"/answer", "step", "ask", "field.n", n)
		if status != http.StatusBadRequest || !strings.Contains(body, "bad_answer") {
			t.Errorf("the answer %s: status %d, want 400 with bad_answer:\n%s", n, status, body)
		}
	}
	if status, _, _ := v.post(at+"/answer", "step", "other"); status != http.StatusNotFound {
		t.Errorf("an answer to another step: status %d, want 404", status)
	}
	_, _, body = v.post(at+"/answer", "step", "ask", "field.n", "9007199254740993", "field.gift", "on",
		"field.size", "large")
	has(t, "the run after the answer", body, "Answered.")
	run, err = c.WaitWorkflow(t.Context(), run.RunID, nil)
	const want = `{"all":{"gift":true,"n":9007199254740993,"off":0,"pay":"later","size":"large","with":[]}}`
	if got := string(run.Outputs); err != nil || got != want {
		t.Errorf("outputs = %s (%v), want %s", got, err, want)
	}
	v.login(ingesttest.Other)
	if status, _, _ := v.get(at); status != http.StatusNotFound {
		t.Errorf("the run of another tenant: status %d, want 404", status)
	}
}
