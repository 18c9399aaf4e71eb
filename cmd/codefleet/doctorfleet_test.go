package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
)

// TestDoctorFleet checks that doctor says why the fleet refuses to describe itself, and what is wrong with fleet.json.
func TestDoctorFleet(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w,
			`{"code": "forbidden", "message": "the token lacks the scope operator", "hint": "ask"}`)
	}))
	defer srv.Close()
	located, err := json.Marshal(client.FleetFile{URL: srv.URL, Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "fleet.json")
	p := &hostCheck{Config: &config.Config{}, app: &app{fleet: path}}
	if got := p.fleet(t.Context()); got.Status != problem ||
		got.Detail != "read fleet file: "+path+": no such file" {
		t.Errorf("without the file that --fleet names: %+v, want a problem with its name", got)
	}
	t.Setenv("CODEFLEET_DATA", t.TempDir())
	got := (&hostCheck{Config: &config.Config{}, app: &app{}}).fleet(t.Context())
	if want := (checkResult{"fleet", warning, "no fleet is running or configured", "codefleet up"}); got != want {
		t.Errorf("without a fleet: %+v, want %+v", got, want)
	}
	for text, want := range map[string]checkResult{
		string(located): {"fleet", warning, srv.URL + ": the token lacks the scope operator", "ask"},
		"{":             {"fleet", problem, path + " is not a fleet.json: it is not JSON (byte 1)", "codefleet up"},
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := p.fleet(t.Context())
		if got.Status != want.Status || !strings.HasPrefix(got.Detail, want.Detail) || got.Fix != want.Fix {
			t.Errorf("with %s: %+v, want %+v", text, got, want)
		}
	}
}
