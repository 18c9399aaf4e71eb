package jobs

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
)

// TestEnv checks which environment variables a task may have, and that no refusal contains a value.
func TestEnv(t *testing.T) {
	const value = "value-that-is-secret"
	for name, c := range map[string]struct{ env, path string }{
		"one":            {`{"GREETING": "value-that-is-secret", "_x1": ""}`, ""},
		"path":           {`{"PATH": "value-that-is-secret"}`, "/env/PATH"},
		"linker":         {`{"LD_PRELOAD": "value-that-is-secret"}`, "/env/LD_PRELOAD"},
		"python":         {`{"PYTHONPATH": "value-that-is-secret"}`, "/env/PYTHONPATH"},
		"proxy":          {`{"https_proxy": "value-that-is-secret"}`, "/env/https_proxy"},
		"NUL":            {`{"A": "value-that-is-secret\u0000"}`, "/env/A"},
		"large":          {`{"A": "` + strings.Repeat("ü", 8000) + `", "B": "` + value + `"}`, ""},
		"too large":      {`{"A": "` + strings.Repeat("ü", 8180) + `", "B": "` + strings.Repeat("x", 99) + `"}`, "/env"},
		"one too large":  {`{"A": "` + strings.Repeat("x", 9000) + `"}`, "/env/A"},
		"not a name":     {`{"A-B": "value-that-is-secret"}`, "/env/A-B"},
		"not a string":   {`{"A": 1}`, "/env/A"},
		"not an object":  {`["A=value-that-is-secret"]`, "/env"},
		"a name is long": {`{"` + strings.Repeat("A", 129) + `": ""}`, "/env/" + strings.Repeat("A", 129)},
	} {
		t.Run(name, func(t *testing.T) {
			s := submission{data: []byte(`{"code": "1", "env": ` + c.env + `}`)}
			err := s.decode()
			r, refused := errors.AsType[*RefusedError](err)
			if c.path == "" && refused {
				t.Errorf("decode = %v, want no refusal", err)
			}
			if c.path != "" && (!refused || r.Code != errcode.BadData || r.Path != c.path) {
				t.Errorf("decode = %v, want a refusal of %q with the code %s", err, c.path, errcode.BadData)
			}
			if err != nil && strings.Contains(err.Error(), value) {
				t.Errorf("the refusal contains the value: %v", err)
			}
			rec, err := json.Marshal(s.record(t.Context(), 1, time.Now()))
			if err != nil || strings.Contains(string(rec), value) {
				t.Errorf("the record contains the value: %s, %v", rec, err)
			}
		})
	}
}
