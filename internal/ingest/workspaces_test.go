package ingest_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/mem"
)

type commit struct {
	Generation int64
	Commit     string
	Message    string
	Changed    []string
	Total      int  `json:"changed_total"`
	NoChange   bool `json:"no_change"`
}

const main = "/v1/workspaces/main"

// wantStatus sends a request, checks the status, and decodes the response into v unless v is nil.
func wantStatus(
	t *testing.T, f *ingesttest.Fleet, status int, v any, method, path string, header map[string]string,
	body string,
) response {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	resp, got := request(t, f, method, path, header, r)
	if resp.StatusCode != status {
		t.Fatalf("%s %s = %d %.500s, want %d", method, path, resp.StatusCode, got, status)
	}
	if v != nil {
		if err := json.Unmarshal(got, v); err != nil {
			t.Fatalf("%s %s: decode = %v, want nil: %s", method, path, err, got)
		}
	}
	return resp
}

// form returns a multipart body, and its media type. files lists paths and contents. edits is the content of the part
// edits.
func form(t *testing.T, files [][2]string, edits string) (string, string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, f := range files {
		p, err := w.CreatePart(textproto.MIMEHeader{
			"Content-Disposition": {fmt.Sprintf(`form-data; name=%q; filename="f"`, f[0])}, "Codefleet-Mode": {"0755"},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(p, f[1])
	}
	if edits != "" {
		if err := w.WriteField("edits", edits); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String(), w.FormDataContentType()
}

func paths(list []state.FileInfo) []string {
	var out []string
	for _, f := range list {
		out = append(out, f.Path)
	}
	return out
}

func TestWorkspaceLifecycle(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	var c commit
	create := map[string]string{"If-None-Match": "*"}
	resp := wantStatus(t, f, 200, &c, "PUT", main+"/files/data/in.csv", create, "a,b\n1,2\n")
	if c.Generation != 1 || !slices.Equal(c.Changed, []string{"data", "data/in.csv"}) ||
		c.Message != "put data/in.csv" {
		t.Errorf("PUT = %+v, want generation 1 with data/in.csv", c)
	}
	tag := resp.Header.Get("ETag")
	if want := `"` + objects.Sum([]byte("a,b\n1,2\n")).String() + `"`; tag != want {
		t.Errorf("ETag = %s, want %s", tag, want)
	}

	// Read a file: the whole, a range, and conditionally.
	resp, body := request(t, f, "GET", main+"/files/data/in.csv", nil, nil)
	if string(body) != "a,b\n1,2\n" || resp.Header.Get("ETag") != tag ||
		resp.Header.Get("X-Content-Type-Options") != "nosniff" ||
		!strings.HasPrefix(resp.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("GET = %q, %v, want the content as a download with its ETag", body, resp.Header)
	}
	resp, body = request(t, f, "GET", main+"/files/data/in.csv", map[string]string{"Range": "bytes=4-6"}, nil)
	if resp.StatusCode != 206 || string(body) != "1,2" || resp.Header.Get("Content-Range") != "bytes 4-6/8" {
		t.Errorf("GET of a range = %d %q %v, want 206 1,2", resp.StatusCode, body, resp.Header)
	}
	wantStatus(t, f, 304, nil, "GET", main+"/files/data/in.csv", map[string]string{"If-None-Match": tag}, "")
	wantStatus(t, f, 416, nil, "GET", main+"/files/data/in.csv", map[string]string{"Range": "bytes=99-"}, "")

	// Write on condition of the ETag.
	wantStatus(t, f, 412, nil, "PUT", main+"/files/data/in.csv", map[string]string{"If-None-Match": "*"}, "x")
	resp = wantStatus(t, f, 200, &c, "PUT", main+"/files/data/in.csv", map[string]string{"If-Match": tag}, "new")
	if c.Generation != 2 || resp.Header.Get("ETag") == tag {
		t.Errorf("PUT = %+v, %v, want generation 2 with another ETag", c, resp.Header)
	}
	var refused struct{ Code, Hint string }
	wantStatus(t, f, 412, &refused, "PUT", main+"/files/data/in.csv", map[string]string{"If-Match": tag}, "newer")
	if refused.Code != "precondition_failed" || refused.Hint == "" {
		t.Errorf("stale PUT = %+v, want precondition_failed with a hint", refused)
	}

	// Change many files in one commit.
	b, ct := form(t, [][2]string{{"bin/x", "#!"}, {"é/ü", "1"}},
		`[{"path":"data/in.csv"},{"path":"empty","kind":"dir"},{"path":"l","kind":"link","target":"bin/x"}]`)
	wantStatus(t, f, 200, &c, "POST", main+"/files?base=2&message=many", map[string]string{"Content-Type": ct}, b)
	if c.Generation != 3 || c.Message != "many" ||
		!slices.Equal(c.Changed, []string{"bin", "bin/x", "data/in.csv", "empty", "l", "é", "é/ü"}) ||
		c.Total != 7 {
		t.Errorf("POST = %+v, want generation 3 with seven changed paths", c)
	}
	wantStatus(t, f, 200, &c, "POST", main+"/files?base=2&message=many", map[string]string{"Content-Type": ct}, b)
	if !c.NoChange || c.Generation != 3 {
		t.Errorf("POST again = %+v, want no change", c)
	}
	var list []state.FileInfo
	resp = wantStatus(t, f, 200, &list, "GET", main+"/files", nil, "")
	if got := paths(list); !slices.Equal(got, []string{"bin", "bin/x", "data", "empty", "l", "é", "é/ü"}) ||
		resp.Header.Get("Codefleet-Generation") != "3" {
		t.Errorf("list = %v, %v, want seven paths of generation 3", got, resp.Header)
	}
	if x := list[1]; x.Mode != 0o755 || x.Bytes != 2 || x.Kind != "file" {
		t.Errorf("bin/x = %+v, want a file of 2 bytes with the mode 0755", x)
	}
	wantStatus(t, f, 304, nil, "GET", main+"/files", map[string]string{"If-None-Match": resp.Header.Get("ETag")}, "")
	wantStatus(t, f, 200, &list, "GET", main+"/files?generation=1&dir=data", nil, "")
	if got := paths(list); !slices.Equal(got, []string{"data/in.csv"}) {
		t.Errorf("list of generation 1 = %v, want data/in.csv", got)
	}

	// The error of a conflict names the paths.
	b, ct = form(t, [][2]string{{"data/in.csv", "late"}}, "")
	var conflict struct {
		Code  string
		Paths []string
	}
	wantStatus(t, f, 409, &conflict, "POST", main+"/files?base=1", map[string]string{"Content-Type": ct}, b)
	if conflict.Code != "conflict" || !slices.Equal(conflict.Paths, []string{"data/in.csv"}) {
		t.Errorf("conflict = %+v, want the conflict of data/in.csv", conflict)
	}

	checkHistory(t, f)
}

// checkHistory checks the requests about the commits that TestWorkspaceLifecycle has made.
func checkHistory(t *testing.T, f *ingesttest.Fleet) {
	t.Helper()
	var c commit
	var log []commit
	wantStatus(t, f, 200, &log, "GET", main+"/log?limit=2", nil, "")
	if len(log) != 2 || log[0].Generation != 3 || log[1].Generation != 2 {
		t.Errorf("log = %+v, want generations 3 and 2", log)
	}
	var diff []history.PathChange
	wantStatus(t, f, 200, &diff, "GET", main+"/diff?from=1&to=2", nil, "")
	if d := cmp.Diff([]history.PathChange{{Path: "data/in.csv", Op: "modified", Bytes: 3}}, diff); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	wantStatus(t, f, 200, nil, "PUT", main+"/pins/first", jsonType, `{"generation": 1}`)
	var pins []history.Pinned
	wantStatus(t, f, 200, &pins, "GET", main+"/pins", nil, "")
	if d := cmp.Diff([]history.Pinned{{Name: "first", Generation: 1}}, pins); d != "" {
		t.Errorf("pins (-want +got):\n%s", d)
	}
	wantStatus(t, f, 200, &c, "POST", main+"/restore", jsonType, `{"generation": "first"}`)
	if c.Generation != 4 || c.Message != "restore 1" {
		t.Errorf("restore = %+v, want generation 4 with a message", c)
	}
	if _, body := request(t, f, "GET", main+"/files/data/in.csv", nil, nil); string(body) != "a,b\n1,2\n" {
		t.Errorf("GET after restore = %q, want the first content", body)
	}
	wantStatus(t, f, 200, &c, "POST", main+"/fork", jsonType, `{"generation": 3, "to": "copy"}`)
	var refused struct{ Code string }
	if wantStatus(t, f, 409, &refused, "POST", main+"/fork", jsonType, `{"to": "copy"}`); refused.Code != "workspace_exists" {
		t.Errorf("fork to an existing workspace = %+v, want workspace_exists", refused)
	}
	var all []history.Info
	wantStatus(t, f, 200, &all, "GET", "/v1/workspaces", nil, "")
	if len(all) != 2 || all[0].Name != "copy" || all[0].Files != 7 || all[1].Name != "main" || all[1].Generation != 4 {
		t.Errorf("workspaces = %+v, want copy and main", all)
	}
	var found struct {
		Versions, Packs, Read int
		Problems              []string
	}
	wantStatus(t, f, 200, &found, "POST", main+"/check", jsonType, `{"read_data": true}`)
	if found.Versions != 4 || found.Packs == 0 || found.Read != found.Packs || found.Problems == nil ||
		len(found.Problems) != 0 {
		t.Errorf("check = %+v, want 4 versions without problems", found)
	}
	wantStatus(t, f, 204, nil, "DELETE", main+"/pins/first", nil, "")
	wantStatus(t, f, 200, nil, "DELETE", "/v1/workspaces/copy/files/bin", nil, "")
	wantStatus(t, f, 404, nil, "GET", "/v1/workspaces/copy/files/bin/x", nil, "")
	wantStatus(t, f, 404, nil, "DELETE", "/v1/workspaces/copy/files/bin", nil, "")
	wantStatus(t, f, 204, nil, "DELETE", "/v1/workspaces/copy", nil, "")
	var list []state.FileInfo
	wantStatus(t, f, 200, &list, "GET", "/v1/workspaces/copy/files", nil, "")
	if list == nil || len(list) != 0 {
		t.Errorf("list of a deleted workspace = %v, want []", list)
	}
}

func TestArchives(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	large := strings.Repeat("0123456789abcdef", 600<<10) // several parts
	b, ct := form(t,
		[][2]string{{"a/one", "1"}, {"a/two", "22"}, {"large", large}, {"z", ""}, {`..\up`, "b"}},
		`[{"path":"l","kind":"link","target":"a/one"}]`)
	wantStatus(t, f, 200, nil, "POST", main+"/files", map[string]string{"Content-Type": ct}, b)
	all := map[string]string{
		"a/":      "",
		"a/one":   "1",
		"a/two":   "22",
		"large":   large,
		"z":       "",
		"l":       "a/one",
		"..%5Cup": "b",
	}

	resp, body := request(t, f, "GET", main+"/archive", nil, nil)
	z, err := zip.NewReader(bytes.NewReader(body), int64(len(body)))
	if err != nil || !strings.Contains(resp.Header.Get("Content-Disposition"), "main-1.zip") {
		t.Fatalf("zip: %v, header %v; want main-1.zip", err, resp.Header)
	}
	got := map[string]string{}
	for _, e := range z.File {
		r, err := e.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got[e.Name] = string(data)
		if e.Name == "a/one" && e.Mode() != 0o755 {
			t.Errorf("mode of a/one = %v, want 0755", e.Mode())
		}
	}
	if d := cmp.Diff(all, got); d != "" {
		t.Errorf("zip (-want +got):\n%.400s", d)
	}
	_, body = request(t, f, "GET", main+"/archive?format=tar&dir=a", nil, nil)
	if d := cmp.Diff(map[string]string{"a/": "", "a/one": "1", "a/two": "22"}, untar(t, body)); d != "" {
		t.Errorf("tar of a directory (-want +got):\n%s", d)
	}
	_, body = request(t, f, "POST", main+"/archive", jsonType,
		strings.NewReader(`{"generation": 1, "paths": ["large", "l", "nothing"]}`))
	if d := cmp.Diff(map[string]string{"large": large, "l": "a/one"}, untar(t, body)); d != "" {
		t.Errorf("tar of paths (-want +got):\n%.400s", d)
	}
	wantStatus(t, f, 404, nil, "GET", main+"/archive?generation=7", nil, "")
	wantStatus(t, f, 200, nil, "GET", "/v1/workspaces/none/archive", nil, "")

	// An archive whose content cannot be read does not look complete.
	f.Objects.SetFault(func(c mem.Call) mem.Fault {
		if c.Op == "get" && strings.Contains(c.Key, "/p/") {
			return mem.Broken
		}
		return mem.OK
	})
	req, err := http.NewRequestWithContext(t.Context(), "GET", f.URL+main+"/archive?format=tar", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+ingesttest.Token)
	broken, err := http.DefaultTransport.RoundTrip(req)
	if err == nil {
		_, err = io.ReadAll(broken.Body)
		broken.Body.Close()
	}
	if err == nil {
		t.Error("read of an incomplete archive = nil, want an error")
	}
}

// TestFileTimes uploads files with any times. Lists and archives of a workspace have the nearest that they can hold.
func TestFileTimes(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	const first, last = "1677-09-21T00:12:43.145224192Z", "2262-04-11T23:47:16.854775807Z"
	const firstZip, lastZip = "1980-01-01T00:00:00Z", "2106-02-07T06:28:15Z"
	type times struct{ list, tar, zip string }
	want := map[string]times{
		"0000-01-01T00:00:00Z": {first, first, firstZip}, "0001-01-01T00:00:00Z": {first, first, firstZip},
		"1960-01-02T03:04:05.5Z": {"1960-01-02T03:04:05.5Z", "1960-01-02T03:04:05.5Z", firstZip},
		"2026-01-02T03:04:05Z":   {"2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"},
		"2250-01-01T00:00:00Z":   {"2250-01-01T00:00:00Z", "2250-01-01T00:00:00Z", lastZip},
		"9999-12-31T23:59:59Z":   {last, last, lastZip},
	}
	for at := range want {
		wantStatus(t, f, 200, nil, "PUT", main+"/files/"+at, map[string]string{"Codefleet-Time": at}, at)
	}
	got := map[string]times{}
	text := func(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }
	_, body := request(t, f, "GET", main+"/files", nil, nil)
	for _, file := range decode[[]state.FileInfo](t, body) {
		got[file.Path] = times{list: text(file.Time)}
	}
	_, body = request(t, f, "GET", main+"/archive?format=tar", nil, nil)
	for r := tar.NewReader(bytes.NewReader(body)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = times{list: got[h.Name].list, tar: text(h.ModTime)}
	}
	_, body = request(t, f, "GET", main+"/archive", nil, nil)
	z, err := zip.NewReader(bytes.NewReader(body), int64(len(body)))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range z.File {
		got[e.Name] = times{got[e.Name].list, got[e.Name].tar, text(e.Modified)}
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(times{})); d != "" {
		t.Errorf("times (-want +got):\n%s", d)
	}
	wantStatus(t, f, 400, nil, "PUT", main+"/files/g", map[string]string{"Codefleet-Time": "soon"}, "x")
}

func untar(t *testing.T, data []byte) map[string]string {
	t.Helper()
	got := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = string(content) + h.Linkname
	}
}

func TestWorkspaceRefusals(t *testing.T) {
	f := ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) {
		o.Workspaces = state.New(mem.New(), state.Options{Quota: state.Quota{Bytes: 1000, Depth: 5}})
		o.Limits.Upload = 5000
	})
	wantStatus(t, f, 200, nil, "PUT", main+"/files/f", nil, "1")
	long := strings.Repeat("n", 300)
	form1, ct := form(t, [][2]string{{"../up", "1"}}, "")
	form2, ct2 := form(t, nil, `[{"path": "a", "kind": "socket"}]`)
	form3, ct3 := form(t, nil, `[{"path": "a", "kind": "link"}]`)
	for _, c := range []struct {
		status             int
		code, method, path string
		header             map[string]string
		body               string
	}{
		{400, "bad_name", "GET", "/v1/workspaces/_main/files", nil, ""},
		{400, "bad_name", "GET", "/v1/workspaces/m%D0%B0in/files", nil, ""}, // the a is Cyrillic
		{400, "bad_name", "GET", "/v1/workspaces/a%2Fb/log", nil, ""},
		{400, "bad_name", "GET", "/v1/workspaces/" + long, nil, ""},
		{400, "bad_name", "POST", main + "/fork", jsonType, `{"to": "../x"}`},
		{404, "not_found", "GET", "/v1/workspaces/../x/files", nil, ""},
		{404, "not_found", "GET", main + "/files/%2e%2e/x", nil, ""},
		{404, "not_found", "PUT", main + "/files/a/../b", nil, "x"},
		{404, "not_found", "PUT", main + "/files//etc/x", nil, "x"},
		{400, "bad_path", "PUT", main + "/files/a%00b", nil, "x"},
		{400, "bad_path", "PUT", main + "/files/a%0Ab", nil, "x"},
		{400, "bad_path", "PUT", main + "/files/a%FFb", nil, "x"},
		{400, "bad_path", "PUT", main + "/files/" + long, nil, "x"},
		{400, "bad_path", "PUT", main + "/files/exe%E2%80%AEgpj", nil, "x"}, // reverses the direction of text
		{400, "bad_path", "PUT", main + "/files/servers/x.py", nil, "x"},
		{400, "bad_path", "PUT", main + "/files/f/below", nil, "x"},
		{400, "bad_path", "PUT", main + "/files/__pycache__/x", nil, "x"},
		{400, "bad_path", "POST", main + "/files", map[string]string{"Content-Type": ct}, form1},
		{400, "bad_path", "POST", main + "/files", map[string]string{"Content-Type": ct2}, form2},
		{400, "bad_path", "POST", main + "/files", map[string]string{"Content-Type": ct3}, form3},
		{400, "bad_body", "POST", main + "/files", map[string]string{"Content-Type": ct2}, form2[:len(form2)-20]},
		{415, "bad_media_type", "POST", main + "/files", jsonType, `{}`},
		{400, "bad_parameter", "POST", main + "/files?base=x", map[string]string{"Content-Type": ct2}, form2},
		{400, "bad_parameter", "PUT", main + "/files/g", map[string]string{"If-Match": `W/"x"`}, "x"},
		{400, "bad_parameter", "PUT", main + "/files/g", map[string]string{"Codefleet-Mode": "7777"}, "x"},
		{413, "quota_exceeded", "PUT", main + "/files/g", nil, strings.Repeat("x", 1000)},
		{413, "quota_exceeded", "PUT", main + "/files/a/b/c/d/e/f", nil, "x"},
		{413, "too_large", "PUT", main + "/files/g", nil, strings.Repeat("x", 6000)},
		{404, "unknown_file", "GET", main + "/files/none", nil, ""},
		{404, "unknown_version", "GET", main + "/files?generation=99", nil, ""},
		{404, "unknown_version", "GET", main + "/files/f?generation=99", nil, ""},
		{400, "unknown_pin", "GET", main + "/files?generation=nopin", nil, ""},
		{400, "bad_parameter", "GET", main + "/diff", nil, ""},
		{400, "bad_parameter", "POST", main + "/restore", jsonType, `{}`},
		{400, "bad_parameter", "PUT", main + "/pins/12", jsonType, `{}`},
		{404, "unknown_version", "POST", main + "/restore", jsonType, `{"generation": 12}`},
		{400, "bad_json", "POST", main + "/restore", jsonType, `{"generation": true}`},
		{400, "bad_parameter", "POST", main + "/check", jsonType, `{"of": 3, "part": 4}`},
		{
			403, "forbidden", "PUT", main + "/files/g",
			map[string]string{"Authorization": "Bearer " + ingesttest.ReadOnly},
			"x",
		},
		{
			403, "forbidden", "GET", main + "/files",
			map[string]string{"Authorization": "Bearer " + ingesttest.Operator},
			"",
		},
		{
			403, "forbidden", "POST", main + "/repair",
			map[string]string{"Authorization": "Bearer " + ingesttest.ReadOnly},
			"",
		},
		{
			403, "forbidden", "POST", main + "/restore",
			map[string]string{"Authorization": "Bearer " + ingesttest.ReadOnly},
			"",
		},
		{
			403, "forbidden", "POST", main + "/fork",
			map[string]string{"Authorization": "Bearer " + ingesttest.ReadOnly},
			"",
		},
		{
			403, "forbidden", "PUT", main + "/pins/x",
			map[string]string{"Authorization": "Bearer " + ingesttest.ReadOnly},
			"",
		},
		{
			403, "forbidden", "DELETE", main + "/pins/x",
			map[string]string{"Authorization": "Bearer " + ingesttest.ReadOnly},
			"",
		},
		{403, "forbidden", "DELETE", main, map[string]string{"Authorization": "Bearer " + ingesttest.ReadOnly}, ""},
		{401, "unauthorized", "GET", "/v1/state/state.json", map[string]string{"Authorization": ""}, ""},
		{400, "bad_state_file", "GET", "/v1/state/x.txt", nil, ""},
		{404, "not_found", "GET", "/v1/state/%2e%2e/state.json", nil, ""},
		{404, "not_found", "PUT", "/v1/state/../x.json", jsonType, `{}`},
		{400, "bad_state_file", "PUT", "/v1/state/sessions/x.json", jsonType, `{}`},
		{400, "bad_state_file", "PUT", "/v1/state/st%D0%B0te.json", jsonType, `{}`},
		{400, "bad_state", "PUT", "/v1/state/state.json", jsonType, `[]`},
		{400, "bad_state", "PUT", "/v1/state/state.json", jsonType, `{`},
		{415, "bad_media_type", "PUT", "/v1/state/state.json", nil, `{}`},
		{404, "unknown_state", "GET", "/v1/state/state.json", nil, ""},
		{413, "quota_exceeded", "PUT", "/v1/state/state.json", jsonType, `{"x":"` + strings.Repeat("x", 1000) + `"}`},
	} {
		resp, got := request(t, f, c.method, c.path, c.header, strings.NewReader(c.body))
		e := decode[struct{ Code, Message string }](t, got)
		if resp.StatusCode != c.status || e.Code != c.code || e.Message == "" {
			t.Errorf("%s %.80s %.40q = %d %.200s, want %d %s", c.method, c.path, c.body, resp.StatusCode, got,
				c.status, c.code)
		}
	}
	var info history.Info
	if wantStatus(t, f, 200, &info, "GET", main, nil, ""); info.Generation != 1 || info.Files != 1 {
		t.Errorf("after the refused requests: %+v, want generation 1 and one file", info)
	}
}

// TestPathsOfRefusals checks that an error names the parameter of the request, or points to the member of its body.
func TestPathsOfRefusals(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	wantStatus(t, f, 200, nil, "PUT", main+"/files/x", nil, "x")
	long := strings.Repeat("x", 1001)
	for _, c := range []struct{ method, path, body, want string }{
		{"GET", "/v1/state/x.txt", "", "file"},
		{"GET", main + "/files?generation=0", "", "generation"},
		{"POST", main + "/archive", `{"generation": 0}`, "/generation"},
		{"POST", main + "/restore", `{}`, "/generation"},
		{"POST", main + "/restore", `{"generation": 1, "message": "` + long + `"}`, "/message"},
		{"POST", main + "/fork", `{"to": "_A"}`, "/to"},
		{"POST", main + "/fork", `{"to": "b", "generation": "gone"}`, "/generation"},
		{"PUT", main + "/pins/x", `{"generation": -1}`, "/generation"},
		{"POST", main + "/files?message=" + long, "", "message"},
		{"POST", main + "/check", `{"read_data": true, "of": 5}`, "/part"},
		{"POST", main + "/check", `{"part": 1}`, "/part"},
		{"POST", main + "/check", `{"part": 6, "of": 5}`, "/part"},
		{"POST", main + "/check", `{"part": -1, "of": -1}`, "/part"},
	} {
		resp, got := request(t, f, c.method, c.path, jsonType, strings.NewReader(c.body))
		e := decode[struct{ Code, Path string }](t, got)
		if resp.StatusCode < 400 || resp.StatusCode >= 500 || e.Path != c.want {
			t.Errorf("%s %.60s %.60s = %d %.200s, want the path %s",
				c.method, c.path, c.body, resp.StatusCode, got, c.want)
		}
	}
	wantStatus(t, f, 200, nil, "POST", main+"/check", jsonType, `{"read_data": true, "part": 5, "of": 5}`)
}

// TestFormPart checks that a part of an upload without a file name is no file.
func TestFormPart(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if err := errors.Join(w.WriteField("message", "hello"), w.Close()); err != nil {
		t.Fatal(err)
	}
	resp, got := request(t, f, "POST", main+"/files", map[string]string{"Content-Type": w.FormDataContentType()}, &b)
	e := decode[struct{ Code, Cause string }](t, got)
	if resp.StatusCode != 400 || e.Code != "bad_form" || !strings.Contains(e.Cause, `"message"`) {
		t.Errorf("a part without a file name = %d %s, want 400 bad_form with its name", resp.StatusCode, got)
	}
}

// TestEmptyArchive checks that the archive of a version without paths names its generation.
func TestEmptyArchive(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	wantStatus(t, f, 200, nil, "PUT", main+"/files/x", nil, "x")
	wantStatus(t, f, 200, nil, "DELETE", main+"/files/x", nil, "")
	resp, _ := request(t, f, "GET", main+"/archive", nil, nil)
	name, generation := resp.Header.Get("Content-Disposition"), resp.Header.Get("Codefleet-Generation")
	if resp.StatusCode != 200 || generation != "2" || !strings.Contains(name, "main-2.zip") {
		t.Errorf("archive of an empty version = %d, generation %s, %s; want 200, 2 and main-2.zip",
			resp.StatusCode, generation, name)
	}
}

func TestTenantsHaveSeparateWorkspaces(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	other := map[string]string{"Authorization": "Bearer " + ingesttest.Other}
	wantStatus(t, f, 200, nil, "PUT", main+"/files/secret", nil, "mine")
	wantStatus(t, f, 200, nil, "PUT", "/v1/state/state.json", jsonType, `{"mine": 1}`)
	wantStatus(t, f, 404, nil, "GET", main+"/files/secret", other, "")
	wantStatus(t, f, 404, nil, "GET", "/v1/state/state.json", other, "")
	var list []history.Info
	if wantStatus(t, f, 200, &list, "GET", "/v1/workspaces", other, ""); len(list) != 0 {
		t.Errorf("workspaces of another tenant = %+v, want none", list)
	}
	var repaired struct{ Commit commit }
	otherJSON := map[string]string{"Authorization": other["Authorization"], "Content-Type": "application/json"}
	wantStatus(t, f, 200, &repaired, "POST", main+"/repair", otherJSON, `{}`)
	if !repaired.Commit.NoChange {
		t.Errorf("another tenant's repair = %+v, want no change", repaired)
	}
	wantStatus(t, f, 204, nil, "DELETE", main, other, "")
	wantStatus(t, f, 200, nil, "GET", main+"/files/secret", nil, "")
}

func TestState(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	var saved struct {
		File, Workspace, ETag string
		Generation            int64
	}
	wantStatus(t, f, 200, &saved, "PUT", "/v1/state",
		map[string]string{"Content-Type": "application/json", "If-None-Match": "*"}, `{"step":1}`)
	if saved.File != "state.json" || saved.Workspace != "main" || saved.Generation != 1 {
		t.Errorf("PUT = %+v, want state.json of main in generation 1", saved)
	}
	resp, body := request(t, f, "GET", "/v1/state/state.json", nil, nil)
	if string(body) != "{\n  \"step\": 1\n}" || resp.Header.Get("ETag") != `"`+saved.ETag+`"` ||
		resp.Header.Get("Content-Type") != "application/json" || resp.Header.Get("Vary") != "Accept" {
		t.Errorf("GET = %q, %v, want the indented document with its ETag, and Vary: Accept", body, resp.Header)
	}
	unchanged := map[string]string{"If-None-Match": resp.Header.Get("ETag")}
	wantStatus(t, f, 304, nil, "GET", "/v1/state/state.json", unchanged, "")
	match := map[string]string{"Content-Type": "application/json", "If-Match": resp.Header.Get("ETag")}
	wantStatus(t, f, 200, nil, "PUT", "/v1/state/state.json", match, `{"step":2}`)
	var conflict apierror.Error
	wantStatus(t, f, 409, &conflict, "PUT", "/v1/state/state.json", match, `{"step":2}`)
	resp, _ = request(t, f, "GET", "/v1/state/state.json", nil, nil)
	both := fmt.Sprintf("the request names version %q; the current version is %s", saved.ETag,
		strings.Trim(resp.Header.Get("ETag"), `"`))
	if conflict.Code != "state_conflict" || conflict.Cause != both {
		t.Errorf("stale PUT = %+v, want state_conflict with cause %q", conflict, both)
	}
	isNew := map[string]string{"Content-Type": "application/json", "If-None-Match": "*"}
	wantStatus(t, f, 409, nil, "PUT", "/v1/state/state.json", isNew, `{"step":2}`)
	wantStatus(t, f, 409, &conflict, "PUT", "/v1/state/none.json", match, `{"step":2}`)
	if want := "the current version is none, because it does not exist"; !strings.HasSuffix(conflict.Cause, want) {
		t.Errorf("PUT of a missing version: cause %q, want it to end in %q", conflict.Cause, want)
	}

	// A YAML document with another name, in another workspace.
	wantStatus(t, f, 200, nil, "PUT", "/v1/state/state/plan.yaml?workspace=lab", jsonType, `{"a":[1,"two"]}`)
	resp, body = request(t, f, "GET", "/v1/state/state/plan.yaml?workspace=lab", nil, nil)
	if string(body) != "a:\n    - 1\n    - two\n" || resp.Header.Get("Content-Type") != "application/yaml" {
		t.Errorf("GET = %q, %v, want the document as YAML", body, resp.Header)
	}
	_, body = request(t, f, "GET", "/v1/state/state/plan.yaml?workspace=lab",
		map[string]string{"Accept": "application/json"}, nil)
	if string(body) != `{"a":[1,"two"]}` {
		t.Errorf("GET as JSON = %q, want the document as JSON", body)
	}
	wantStatus(t, f, 200, nil, "PUT", "/v1/state/state/plan.yaml?workspace=lab",
		map[string]string{"Content-Type": "application/yaml"}, "b: 2 # why\n")
	_, body = request(t, f, "GET", "/v1/workspaces/lab/files/state/plan.yaml", nil, nil)
	if string(body) != "b: 2 # why\n" {
		t.Errorf("content of the file = %q, want the YAML as sent", body)
	}
	// A document that a task has damaged is reported, and can be replaced.
	for _, content := range []string{"{broken", `{"a":1,"a":2}`} {
		wantStatus(t, f, 200, nil, "PUT", main+"/files/state.json", nil, content)
		wantStatus(t, f, 409, nil, "GET", "/v1/state/state.json", nil, "")
	}
	wantStatus(t, f, 200, nil, "PUT", "/v1/state/state.json", jsonType, `{}`)
}
