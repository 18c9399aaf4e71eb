package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/form"
)

// An interrupt while the model is asked is not taken for a wrong document.
func TestFillIsInterruptible(t *testing.T) {
	signals := make(chan os.Signal, 1)
	model := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server notices the end of the connection after this
		signals <- os.Interrupt
		<-r.Context().Done()
	}))
	defer model.Close()
	t.Chdir(t.TempDir())
	for name, content := range map[string]string{
		"claim.json":  `{"type": "object", "properties": {"name": {"type": "string"}}}`,
		"config.yaml": "llm: {enabled: true, model: m, api_key: k, base_url: " + model.URL + "}\n",
	} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var errs bytes.Buffer
	a := &app{
		stdin: strings.NewReader("Dear all"), stdout: io.Discard, stderr: &errs, env: os.Environ(), exit: os.Exit,
		signals: signals,
	}
	code := a.main(t.Context(), []string{"form", "fill", "claim.json", "--from", "-", "--config", "config.yaml"})
	if code != errcode.ExitStopped || errs.String() != "codefleet: interrupted\n" {
		t.Errorf("form fill = %d, %q, want %d, interrupted", code, &errs, errcode.ExitStopped)
	}
}

// A person is asked for what is missing, again after a wrong answer, and no more than three times for a field.
func TestAskMissing(t *testing.T) {
	f, err := form.Parse([]byte(`{"type": "object", "properties": {
		"name": {"type": "string", "minLength": 2}, "colour": {"type": "string", "enum": ["red", "green"]},
		"n": {"type": "integer", "maximum": 9}}, "required": ["name", "colour", "n"]}`))
	if err != nil {
		t.Fatal(err)
	}
	for input, want := range map[string]int{
		"Ada\nred\n3\n":           0,
		"A\nAda\nblue\nRed\n3\n":  0,
		"\n\n\n":                  3,
		"Ada":                     2,
		"Ada\nred\n10\n11\n12\n3": 1,
		"":                        3,
	} {
		filled, err := form.Fill(t.Context(), f, "", form.Method{})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		askMissing(bufio.NewReader(strings.NewReader(input)), &out, f, &filled)
		if len(filled.Problems) != want {
			t.Errorf("%q: problems %v, want %d", input, filled.Problems, want)
		}
		if want == 0 && (filled.Values["colour"] != "red" || !strings.Contains(out.String(), "colour (red, green): ")) {
			t.Errorf("%q: values %v, output %s", input, filled.Values, out.String())
		}
	}
}
