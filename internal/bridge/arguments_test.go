package bridge_test

import (
	"encoding/json"
	"testing"

	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// TestArgumentProblems checks that the error of invalid arguments names the argument as the caller wrote it.
func TestArgumentProblems(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	cs, _ := stdio(t, options(f, ingesttest.Token), nil)
	for _, c := range []struct {
		args map[string]any
		want string
	}{
		{map[string]any{"code": 5}, `arguments: code: 5 has type "integer", want "string"`},
		{map[string]any{"cod": "x"}, `arguments: unexpected additional properties ["cod"]`},
		{
			map[string]any{"code": "x", "files": []any{map[string]any{"text": "x"}}},
			`arguments: files[]: missing properties: ["name"]`,
		},
		{
			map[string]any{"code": "x", "workspace": "a b", "wait_ms": json.RawMessage("1e3")},
			`workspace "a b": a name is 1 to 63 letters (a-z, A-Z), digits, _ and -, and starts with a letter or digit`,
		},
	} {
		if out, failed := invoke(t, cs, "execute_task", c.args); !failed || out["error"] != c.want {
			t.Errorf("execute_task(%v) = %v, want the error %s", c.args, out["error"], c.want)
		}
	}
}
