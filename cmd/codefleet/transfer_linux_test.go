package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// TestTransfersShowProgress checks that pull and push show on a terminal how much is done, and nothing of it elsewhere.
func TestTransfersShowProgress(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	t.Chdir(t.TempDir())
	if err := os.Mkdir("here", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("here/large", make([]byte, 1_500_000), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CODEFLEET_URL", f.URL)
	t.Setenv("CODEFLEET_TOKEN", ingesttest.Token)
	for _, command := range []string{"workspace push here", "workspace pull there"} {
		shown := onTerminal(t, func(terminal *os.File) {
			a := &app{stdout: onScreen(terminal), stderr: onScreen(terminal), env: os.Environ(), exit: os.Exit}
			if code := a.main(t.Context(), strings.Fields(command)); code != 0 {
				t.Errorf("%s: exit code %d", command, code)
			}
		})
		verb := strings.Fields(command)[1]
		if !strings.Contains(shown, verb+" main: 1.5 MB of 1.5 MB (100 %) …") {
			t.Errorf("%s shows %q, want how much is done", command, shown)
		}
	}
	if code, _, errs := command(t, f, "workspace", "pull", "third"); code != 0 || errs != "" {
		t.Errorf("pull without a terminal: exit code %d, %q, want nothing on standard error", code, errs)
	}
	if got := bytesText(999) + bytesText(1000) + bytesText(2_345_678_901_234_567); got != "999 B1.0 kB2345.7 TB" {
		t.Errorf("bytesText = %s", got)
	}
}

// cutting is a server in front of a fleet. It breaks off responses with content after a number of bytes.
func cutting(t *testing.T, f *ingesttest.Fleet, path string, after int64) {
	t.Helper()
	target, err := url.Parse(f.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(r *http.Response) error {
		if strings.Contains(r.Request.URL.Path, path) {
			r.Body = struct {
				io.Reader
				io.Closer
			}{io.LimitReader(r.Body, after), r.Body}
			r.ContentLength = -1
			r.Header.Set("Content-Length", "100000000")
		}
		return nil
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	f.URL = server.URL
}

// TestTransfersThatStop checks what a broken connection leaves: whole files, and a message that says how many.
func TestTransfersThatStop(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	t.Chdir(t.TempDir())
	if err := os.Mkdir("here", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"here/a": 10, "here/b": 1_000_000, "here/c": 1_000_000} {
		if err := os.WriteFile(name, []byte(strings.Repeat(name, size)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, errs := command(t, f, "workspace", "push", "here"); code != 0 {
		t.Fatal(out, errs)
	}
	whole := f.URL
	cutting(t, f, "/archive", 5_000_000)
	code, _, errs := command(t, f, "workspace", "pull", "there")
	if code == 0 || !strings.Contains(errs, "the pull stopped after writing 1 and removing 0 paths, each as a whole") ||
		!strings.Contains(errs, "try: the same command again: it continues\n") {
		t.Errorf("pull that stops: exit code %d, %s", code, errs)
	}
	checkFiles(t, "there", ".codefleet-workspace.json", "a")
	f.URL = whole
	code, out, errs := command(t, f, "workspace", "pull", "there")
	if code != 0 || !strings.HasPrefix(out, "wrote 2,") {
		t.Errorf("pull again = %d, %s%s, want the other two files", code, out, errs)
	}
	checkFiles(t, "there", ".codefleet-workspace.json", "a", "b", "c")
}

// TestArtifactThatStops checks that a broken connection leaves the file that an artifact would replace.
func TestArtifactThatStops(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	t.Chdir(t.TempDir())
	if err := os.Mkdir("out", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("out/a.csv", []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	whole := f.URL
	cutting(t, f, "/artifacts/", 1)
	if code, _, errs := command(t, f, "run", "--out", "out/*", "--code", "files"); code != 1 ||
		!strings.Contains(errs, "save artifact out/a.csv") {
		t.Errorf("run with a broken connection: exit code %d, %s", code, errs)
	}
	checkFiles(t, "out", "a.csv")
	if text, err := os.ReadFile("out/a.csv"); err != nil || string(text) != "mine" {
		t.Errorf("out/a.csv = %q, %v, want mine", text, err)
	}
	f.URL = whole
	if code, _, errs := command(t, f, "run", "--out", "out/*", "--code", "files"); code != 0 {
		t.Errorf("run: exit code %d, %s", code, errs)
	}
	if text, err := os.ReadFile("out/a.csv"); err != nil || string(text) != "1,2\n" {
		t.Errorf("out/a.csv = %q, %v, want the artifact", text, err)
	}
}

func checkFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	var got []string
	entries, err := os.ReadDir(filepath.Clean(dir))
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("files in %s = %v, %v, want %v", dir, got, err, want)
	}
}
