package ingest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// TestReadersChangeNothing checks that a token with the scope read cannot change anything over any route.
func TestReadersChangeNothing(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	wantStatus(t, f, 200, nil, "PUT", main+"/files/f", nil, "1")
	wantStatus(t, f, 200, nil, "PUT", main+"/pins/keep", jsonType, `{}`)
	reader := map[string]string{"Authorization": "Bearer " + ingesttest.ReadOnly, "Content-Type": "application/json"}
	var document struct {
		Paths map[string]map[string]json.RawMessage
	}
	wantStatus(t, f, 200, &document, "GET", "/openapi.json", nil, "")
	values := strings.NewReplacer("{workspace}", "main", "{id}", strings.Repeat("a", 26), "{pin}", "keep",
		"{path}", "f", "{name}", "state.json")
	reads := []string{
		"post /v1/workspaces/{workspace}/check", "post /v1/workspaces/{workspace}/archive", "post /v1/forms/fill",
	}
	refused := 0
	for path, operations := range document.Paths {
		for method := range operations {
			// The bridge and the page check scopes themselves. A link to the page gives no more than the token does.
			own := path == "/mcp" || path == "/register" || strings.HasPrefix(path, "/sse") || path == "/ui/" ||
				path == "/v1/page/links"
			if method == "get" || method == "head" || own || slices.Contains(reads, method+" "+path) {
				continue
			}
			wantStatus(t, f, 403, nil, strings.ToUpper(method), values.Replace(path), reader, "{}")
			refused++
		}
	}
	if refused < 50 {
		t.Errorf("%d routes were refused, want all that change something", refused)
	}
	var info history.Info
	var pins []history.Pinned
	wantStatus(t, f, 200, &info, "GET", main, reader, "")
	wantStatus(t, f, 200, &pins, "GET", main+"/pins", reader, "")
	if info.Generation != 1 || len(pins) != 1 {
		t.Errorf("after the refused requests: %+v, pins %v; want generation 1 and one pin", info, pins)
	}
}

// TestManyRanges checks that many small ranges do not make the server read the file's large parts repeatedly.
func TestManyRanges(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	const size = 9 << 20
	wantStatus(t, f, 200, nil, "PUT", main+"/files/large", nil, statetest.Random(1, size))
	ranges := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("0-0,%d-%d,", size-1, size-1), 100), ",")
	f.Objects.Calls()
	resp, _ := request(t, f, "GET", main+"/files/large", map[string]string{"Range": "bytes=" + ranges}, nil)
	if n := len(f.Objects.Calls()); n > 20 {
		t.Errorf("status %d after %d requests to the store, want at most 20", resp.StatusCode, n)
	}
	resp, body := request(t, f, "GET", main+"/files/large",
		map[string]string{"Range": fmt.Sprintf("bytes=0-0,%d-%d", size-1, size-1)}, nil)
	if resp.StatusCode != 206 || len(body) > 1000 {
		t.Errorf("two ranges = %d with %d bytes, want 206 with at most 1000", resp.StatusCode, len(body))
	}
}

// TestSlowUploadsOfOneTenant checks that uploads of one tenant which never end do not block other tenants.
func TestSlowUploadsOfOneTenant(t *testing.T) {
	f := ingesttest.Start(t, 0,
		func(o *ingest.Options, _ *jobs.Options) { o.Limits.QueueTime = 100 * time.Millisecond })
	upload := func(i int) {
		body, w := io.Pipe()
		t.Cleanup(func() { _ = w.CloseWithError(io.ErrUnexpectedEOF) })
		req, err := http.NewRequestWithContext(t.Context(), "PUT", fmt.Sprintf("%s%s/files/f%d", f.URL, main, i), body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+ingesttest.Token)
		go func() {
			if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
				resp.Body.Close()
			}
		}()
		go func() { _, _ = io.WriteString(w, "x") }()
	}
	end := time.Now().Add(20 * time.Second)
	for i := 0; ; i++ { // until the tenant has reached its limit: on a slow machine, uploads may be refused before that
		upload(i)
		resp, _ := request(t, f, "PUT", main+"/files/mine", nil, strings.NewReader("1"))
		if resp.StatusCode == http.StatusTooManyRequests {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the tenant never reached its limit of uploads, want the error busy")
		}
	}
	other := map[string]string{"Authorization": "Bearer " + ingesttest.Other}
	wantStatus(t, f, 200, nil, "PUT", main+"/files/f", other, "1")
}

func TestLongMessage(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	wantStatus(t, f, 400, nil, "PUT", main+"/files/f?message="+strings.Repeat("m", 1001), nil, "1")
}

// TestNamesOfFilesAreNotLogged checks that the log has the paths of requests without file names, which are tenant data.
func TestNamesOfFilesAreNotLogged(t *testing.T) {
	page := http.NewServeMux()
	page.HandleFunc("GET /ui/tasks/{id}", func(http.ResponseWriter, *http.Request) {})
	page.HandleFunc("/ui/", func(http.ResponseWriter, *http.Request) {})
	f := ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) { o.Mounted.Page = noPage{page} })
	for _, path := range []string{"/ui/tasks/t1", "/ui/jane-doe", "/ui/tasks/jane-doe.pdf", "/ui/"} {
		if resp, _ := request(t, f, "GET", path, nil, nil); resp.StatusCode != 200 {
			t.Errorf("GET %s = %d, want 200", path, resp.StatusCode)
		}
	}
	wantStatus(t, f, 200, nil, "PUT", main+"/files/patients/jane-doe.pdf", nil, "1")
	wantStatus(t, f, 404, nil, "GET", main+"/files/patients/jane-doe.txt", nil, "")
	wantStatus(t, f, 404, nil, "GET", "/v1/state/state/jane-doe.json", nil, "")
	wantStatus(t, f, 404, nil, "GET", "/v1/tasks/t/artifacts/jane-doe.pdf", nil, "")
	id := strings.Repeat("a", 26)
	wantStatus(t, f, 404, nil, "GET", "/v1/tasks/"+id, nil, "")
	for _, path := range []string{"/v1/workflows/runs/jane-doe", "/v1/sessions/jane-doe", "/v1/tasks/jane-doe"} {
		wantStatus(t, f, 404, nil, "GET", path, nil, "")
	}
	for _, line := range []string{
		"PATCH " + main + "/files/jane-doe.pdf", "GET /v1//jane-doe", "GET /v1/tasks/../jane-doe", "GET /jane-doe",
		"GET /v2/jane-doe", "GET /v1/workspaces/main/jane-doe", "PUT /v1/workspaces/jane-doe/nothing/x",
		"GET /v1/tasks/jane-doe.pdf", "GET /v1/tasks/jane-doe%2Fx", "GET /v1/tools/jane-doe.pdf/x",
		"PUT /v1/tasks/jane-doe/artifacts/x", "jane-doe /v1/tasks",
	} {
		method, path, _ := strings.Cut(line, " ")
		if resp, _ := request(t, f, method, path, nil, nil); resp.StatusCode < 400 {
			t.Errorf("%s = %d, want an error", line, resp.StatusCode)
		}
	}
	text := f.Log.String()
	if strings.Contains(text, "jane-doe") {
		t.Errorf("want a log without the name:\n%s", text)
	}
	for _, want := range []string{
		`"path":"/v1/workspaces/main/files/…"`, `"path":"/v1/workspaces/…"`, `"path":"/ui/tasks/t1"`, `"path":"/ui/tasks/…"`,
		`"path":"/v1/tasks/` + id + `"`, `"path":"/v1/sessions/…"`,
		`"path":"/ui/…"`, `"path":"/ui/"`,
		`"method":"_OTHER","path":"/v1/tasks"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %s:\n%s", want, text)
		}
	}
}
