package ingest_test

import (
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// TestFillForm fills in a form from a document, and completes it with answers for the missing fields.
func TestFillForm(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	const fields = `{"form": {"type": "object", "required": ["name", "n"], "properties": {
		"name": {"type": "string"}, "n": {"type": "integer", "maximum": 9}}}, "document": "Name: Ada", `
	reader := map[string]string{
		"Authorization": "Bearer " + ingesttest.ReadOnly, "Content-Type": "application/json",
	}
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
		resp, data := request(t, f, "POST", "/v1/forms/fill", reader, strings.NewReader(c.body))
		if resp.StatusCode != c.status || !strings.Contains(string(data), c.want) {
			t.Errorf("%s: %d %s, want %d and %s", c.body, resp.StatusCode, data, c.status, c.want)
		}
	}
}
