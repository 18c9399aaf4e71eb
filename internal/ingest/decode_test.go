package ingest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

var binaryHeader = []string{
	"Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Source", "/test", "Ce-Type", "codefleet.task.v1",
	"Content-Type", "application/json",
}

const structuredType = "application/cloudevents+json"

func TestContentMode(t *testing.T) {
	tests := []struct {
		name   string
		header http.Header
		want   mode
		status int
	}{
		{"binary", header(binaryHeader...), binaryMode, 0},
		{"binary without media type", header("Ce-Specversion", "1.0"), binaryMode, 0},
		{"structured", header("Content-Type", structuredType), structuredMode, 0},
		{
			"structured with charset, odd case",
			header("Content-Type", "Application/CloudEvents+JSON; Charset=UTF-8"), structuredMode, 0,
		},
		{"batch", header("Content-Type", "application/cloudevents-batch+json"), batchMode, 0},
		{
			"batch with charset",
			header("Content-Type", "application/cloudevents-batch+json; charset=utf-8"), batchMode, 0,
		},
		{
			"structured, with ce- headers",
			header("Content-Type", structuredType, "Ce-Specversion", "1.0"), structuredMode, 0,
		},
		{"avro", header("Content-Type", "application/cloudevents+avro"), noEvent, 415},
		{"other charset", header("Content-Type", structuredType+"; charset=latin1"), noEvent, 415},
		{"JSON", header("Content-Type", "application/json"), noEvent, 415},
		{"nothing", header(), noEvent, 415},
		{"broken media type", header("Content-Type", ";;;"), noEvent, 415},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, e := contentMode(tt.header)
			status := 0
			if e != nil {
				status = e.Status
			}
			if got != tt.want || status != tt.status {
				t.Errorf("contentMode = %v, status %d; want %v, %d", got, status, tt.want, tt.status)
			}
		})
	}
}

func TestDecodeBinary(t *testing.T) {
	h := header(binaryHeader...)
	h.Set("Ce-Subject", `Euro%20%E2%82%AC%20%F0%9F%98%80%25`)
	h.Set("Ce-Labelled", `"quoted \"text\""`)
	h.Set("Ce-Time", "2026-01-02T03:04:05.5Z")
	h.Set("Ce-Dataschema", "https://example.org/task.v1.json")
	ev, e := decodeBinary(h, []byte(`{"code":"1"}`))
	if e != nil {
		t.Fatal(e)
	}
	got := map[string]any{
		"id":       ev.ID(),
		"source":   ev.Source(),
		"type":     ev.Type(),
		"subject":  ev.Subject(),
		"labelled": ev.Extensions()["labelled"],
		"time":     ev.Time().String(),
		"schema":   ev.DataSchema(),
		"data":     string(ev.Data()),
	}
	want := map[string]any{
		"id": "1", "source": "/test", "type": "codefleet.task.v1", "subject": "Euro € 😀%", "labelled": `quoted "text"`,
		"time": "2026-01-02 03:04:05.5 +0000 UTC", "schema": "https://example.org/task.v1.json", "data": `{"code":"1"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decodeBinary (-want +got):\n%s", diff)
	}
}

func TestDecodeStructured(t *testing.T) {
	const attrs = `"specversion":"1.0","id":"1","source":"/test","type":"codefleet.task.v1"`
	for name, tt := range map[string]struct{ body, data string }{
		"data first":       {`{"data":{"code":"<1>"},` + attrs + `}`, `{"code":"<1>"}`},
		"base64":           {`{` + attrs + `,"data_base64":"eyJjb2RlIjoiMSJ9"}`, `{"code":"1"}`},
		"null attribute":   {`{` + attrs + `,"subject":null,"data":{}}`, `{}`},
		"no data":          {`{` + attrs + `}`, ``},
		"extension values": {`{` + attrs + `,"flag":true,"number":7,"data":1}`, `1`},
	} {
		t.Run(name, func(t *testing.T) {
			ev, e := decodeStructured([]byte(tt.body))
			if e != nil {
				t.Fatal(e)
			}
			if ev.ID() != "1" || ev.Source() != "/test" || string(ev.Data()) != tt.data {
				t.Errorf("decodeStructured = id %q, source %q, data %s; want 1, /test, %s", ev.ID(), ev.Source(),
					ev.Data(), tt.data)
			}
		})
	}
}

func TestDecodeStructuredRefuses(t *testing.T) {
	const attrs = `"specversion":"1.0","id":"1","source":"/test","type":"codefleet.task.v1"`
	long := strings.Repeat("x", maxAttribute+1)
	var many strings.Builder
	for i := range maxAttributes {
		many.WriteString(`,"e` + strings.Repeat("x", i) + `":1`)
	}
	for name, tt := range map[string]struct {
		body, code, path string
	}{
		"empty":          {``, "bad_json", ""},
		"not JSON":       {`{"id":`, "bad_json", ""},
		"trailing":       {`{} {}`, "bad_json", ""},
		"array":          {`[]`, "bad_json", ""},
		"null":           {`null`, "bad_json", ""},
		"no specversion": {`{"id":"1"}`, "bad_event", "/specversion"},
		"old specversion": {
			`{"specversion":"0.3","id":"1","source":"/","type":"t"}`, "bad_event", "/specversion",
		},
		"no id":                   {`{"specversion":"1.0","source":"/","type":"t"}`, "bad_event", "/id"},
		"no source":               {`{"specversion":"1.0","id":"1","type":"t"}`, "bad_event", "/source"},
		"no type":                 {`{"specversion":"1.0","id":"1","source":"/"}`, "bad_event", "/type"},
		"number as id":            {`{"specversion":"1.0","id":1,"source":"/","type":"t"}`, "bad_event", "/id"},
		"bad time":                {`{` + attrs + `,"time":"yesterday"}`, "bad_event", "/time"},
		"bad name":                {`{` + attrs + `,"My_Ext":"1"}`, "bad_event", "/My_Ext"},
		"empty name":              {`{` + attrs + `,"":"1"}`, "bad_event", "/"},
		"name for a pointer":      {`{` + attrs + `,"a/b~":"1"}`, "bad_event", "/a~1b~0"},
		"object as attribute":     {`{` + attrs + `,"ext":{}}`, "bad_event", "/ext"},
		"fraction":                {`{` + attrs + `,"ext":1.5}`, "bad_event", "/ext"},
		"beyond 32 bits":          {`{` + attrs + `,"ext":2147483648}`, "bad_event", "/ext"},
		"control character":       {`{` + attrs + `,"ext":"a\u0007"}`, "bad_event", "/ext"},
		"long attribute":          {`{` + attrs + `,"ext":"` + long + `"}`, "bad_event", "/ext"},
		"many attributes":         {`{` + attrs + many.String() + `}`, "bad_event", ""},
		"both data":               {`{` + attrs + `,"data":1,"data_base64":"MQ=="}`, "bad_event", "/data_base64"},
		"base64 number (panic)":   {`{"specversion":"1.0","data_base64":1}`, "bad_event", "/data_base64"},
		"base64 broken":           {`{` + attrs + `,"data_base64":"?"}`, "bad_event", "/data_base64"},
		"other data content type": {`{` + attrs + `,"datacontenttype":"text/xml","data":"<a/>"}`, "bad_media_type", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, e := decodeStructured([]byte(tt.body))
			if e == nil {
				t.Fatal("decodeStructured = nil, want an error")
			}
			if e.Code != tt.code || e.Path != tt.path {
				t.Errorf("decodeStructured = %v at %q, want %s at %q", e, e.Path, tt.code, tt.path)
			}
		})
	}
}

func TestBadJSONSaysWhere(t *testing.T) {
	_, e := decodeStructured([]byte("{\n  \"id\": \"1\",\n  oops\n}"))
	if want := "line 3, column 3"; e == nil || !strings.HasPrefix(e.Cause, want) {
		t.Errorf("decodeStructured = %+v, want a cause that begins with %q", e, want)
	}
}

func TestDecodeBinaryRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		header []string
		code   string
	}{
		"bad percent": {[]string{"Ce-Subject", "%zz"}, "bad_event"},
		"not UTF-8":   {[]string{"Ce-Subject", "%ff"}, "bad_event"},
		"twice":       {[]string{"Ce-Id", "2"}, "bad_event"},
		"bad name":    {[]string{"Ce-My_ext", "1"}, "bad_event"},
		"line break":  {[]string{"Ce-Ext", "a%0d%0ab"}, "bad_event"},
	} {
		t.Run(name, func(t *testing.T) {
			_, e := decodeBinary(header(append(tt.header, binaryHeader...)...), nil)
			if e == nil || e.Code != tt.code {
				t.Errorf("decodeBinary = %v, want %s", e, tt.code)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("application/cloudevents+json",
		`{"specversion":"1.0","id":"1","source":"/","type":"t","data":{"code":"1"}}`, "x")
	f.Add("application/cloudevents+json", `{"specversion":"1.0","data_base64":1}`, "%41")
	f.Add("application/json", `{"code":"1"}`, `"\`)
	f.Fuzz(func(t *testing.T, contentType, body, attr string) {
		h := http.Header{
			"Content-Type":   {contentType},
			"Ce-Specversion": {"1.0"},
			"Ce-Id":          {attr},
			"Ce-Source":      {attr},
			"Ce-Type":        {"t"},
			"Ce-Ext":         {attr},
		}
		m, e := contentMode(h)
		if e != nil {
			return
		}
		if m == batchMode {
			_, _ = decodeBatch([]byte(body), 10)
			return
		}
		ev, e := decodeOne(m, h, []byte(body))
		if e != nil {
			if e.Status != 400 && e.Status != 415 || e.Code == "" || e.Message == "" {
				t.Errorf("decodeOne = %+v, want an error with status, code and message", e)
			}
			return
		}
		if err := ev.Validate(); err != nil {
			t.Errorf("Validate of the event from decodeOne = %v, want nil", err)
		}
	})
}

func FuzzEventOfTask(f *testing.F) {
	f.Add("key", `{"code":"print(1)","session":"s","expirytime":"2030-01-01T00:00:00Z"}`)
	f.Add(`"`, `null`)
	f.Fuzz(func(t *testing.T, key, body string) {
		ev, e := eventOfTask(key, []byte(body))
		if e != nil {
			return
		}
		if err := ev.Validate(); err != nil || ev.ID() == "" || !json.Valid(ev.Data()) {
			t.Errorf("eventOfTask(%q, %q) = %v: %v; want a valid event with an id", key, body, ev, err)
		}
	})
}
