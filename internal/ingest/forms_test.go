package ingest_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// TestFillForm fills in a form from a document, and completes it with answers for the missing fields.
func TestFillForm(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	const fields = `{"form": {"type": "object", "required": ["name", "n"], "properties": {
		"name": {"type": "string"}, "n": {"type": "integer", "maximum": 9}}}, "document": "Name: Ada", `
	for _, c := range []struct {
		body, want string
		status     int
	}{
		{
			fields + `"values": {}}`, `{"values":{"name":"Ada"},"sources":{"name":{"by":"rules","line":1,"quote":"Ada"}},` +
				`"problems":[{"field":"n","message":"\"n\" is missing","missing":true}]}`, 200,
		},
		{
			fields + `"values": {"n": 10}}`, `"problems":[{"field":"n","message":"\"n\" must be at most 9"}]`, 200,
		},
		{fields + `"values": {"n": 7, "name": "Bea"}}`, `{"values":{"n":7,"name":"Bea"}`, 200},
		{fields + `"values": {"n": 7}}`, `"problems":[]`, 200},
		{fields + `"values": {"n": 9007199254740993.5}}`, `\"n\" must be a whole number`, 200},
		{fields + `"values": {"n": -9007199254740993}}`, `"values":{"n":-9007199254740993,`, 200},
		{`{"form": {"type": "object"}}`, `"path":"/form"`, 400},
		{`{"document": "x"}`, `"path":"/form"`, 400},
		{fields + `"values": {"m": 1}}`, `\"m\" is not a field of the form`, 200},
	} {
		body := strings.NewReader(c.body)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URL+"/v1/forms/fill", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+ingesttest.ReadOnly)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode/100*100 != c.status || !strings.Contains(string(data), c.want) {
			t.Errorf("%s: %d %s, %v, want %d and %s", c.body, resp.StatusCode, data, err, c.status, c.want)
		}
	}
}
