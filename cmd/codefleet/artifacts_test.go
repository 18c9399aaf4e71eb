package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/client"
)

// TestArtifactsOfOneName checks that no artifact replaces another one that is downloaded with it, also with --force.
func TestArtifactsOfOneName(t *testing.T) {
	list := []client.Artifact{{Path: "a/x.png"}, {Path: "b/x.png"}, {Path: "b/y.png"}}
	_, err := chosenArtifacts(list, "id", nil)
	if err == nil || !strings.Contains(err.Error(), "would be saved as the same file") {
		t.Errorf("chosenArtifacts of all = %v, want an error about two artifacts in one file", err)
	}
	got, err := chosenArtifacts(list, "id", []string{"b/x.png", "b/y.png"})
	if err != nil || len(got) != 2 || got[0].Path != "b/x.png" || got[1].Path != "b/y.png" {
		t.Errorf("chosenArtifacts of two = %v, %v; want b/x.png and b/y.png", got, err)
	}
}

// TestArtifactReplacesFile checks that --force replaces a file with the complete artifact, and keeps the file if the
// fleet does not have the artifact.
func TestArtifactReplacesFile(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/new.csv") {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"code": "unknown_artifact", "message": "no such artifact"}`)
			return
		}
		_, _ = io.WriteString(w, "new")
	}))
	defer srv.Close()
	c, err := client.New(t.Context(), client.Options{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.WriteFile("x.csv", []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		from         string
		force, fails bool
		want         string
	}{{"none.csv", true, true, "old"}, {"new.csv", false, true, "old"}, {"new.csv", true, false, "new"}} {
		err := saveArtifact(t.Context(), c, root, "id", step.from, "x.csv", step.force)
		data, _ := os.ReadFile(filepath.Join(dir, "x.csv"))
		if (err != nil) != step.fails || string(data) != step.want {
			t.Errorf("save %s, force %v = %v, and the file has %q; want %q", step.from, step.force, err, data,
				step.want)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("the directory has %v, want only the file", left)
	}
}
