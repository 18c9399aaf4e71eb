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

// TestTransfersShowProgress checks that pull and push show their progress on a terminal, and only there.
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
				t.Errorf("%s: exit code %d, want 0", command, code)
			}
		})
		verb := strings.Fields(command)[1]
		if !strings.Contains(shown, verb+" main: 1.5 MB of 1.5 MB (100 %) …") {
			t.Errorf("%s shows %q, want its progress", command, shown)
		}
	}
	if code, _, errs := command(t, f, "workspace", "pull", "third"); code != 0 || errs != "" {
		t.Errorf("pull without a terminal: exit code %d, standard error %q, want 0 and none", code, errs)
	}
	for n, want := range map[int64]string{
		999: "999 B", 1000: "1.0 kB", 999_949: "999.9 kB", 999_950: "1.0 MB", 999_950_000: "1.0 GB",
		2_345_678_901_234_567: "2345.7 TB",
	} {
		if got := bytesText(n); got != want {
			t.Errorf("bytesText(%d) = %q, want %q", n, got, want)
		}
	}
}

// breakResponses puts a proxy in front of the fleet f. The proxy ends responses to requests whose URL contains path
// after a number of bytes, as a broken connection does.
func breakResponses(t *testing.T, f *ingesttest.Fleet, path string, after int64) {
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

// TestInterruptedPull checks that a pull over a connection that breaks leaves only complete files and reports how many,
// and that the next pull continues.
func TestInterruptedPull(t *testing.T) {
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
	direct := f.URL
	breakResponses(t, f, "/archive", 5_000_000)
	code, _, errs := command(t, f, "workspace", "pull", "there")
	const want = "the pull stopped after it had written 1 and removed 0 paths"
	if code == 0 || !strings.Contains(errs, want) || !strings.Contains(errs, "try: run the same command again") {
		t.Errorf("interrupted pull: exit code %d, %s, want a failure with %q and a hint", code, errs, want)
	}
	checkFiles(t, "there", ".codefleet-workspace.json", "a")
	f.URL = direct
	code, out, errs := command(t, f, "workspace", "pull", "there")
	if code != 0 || !strings.HasPrefix(out, "wrote 2,") {
		t.Errorf("second pull: exit code %d, %s%s, want 0 and the other two files", code, out, errs)
	}
	checkFiles(t, "there", ".codefleet-workspace.json", "a", "b", "c")
}

// TestInterruptedArtifact checks that an artifact does not replace a file if the connection breaks.
func TestInterruptedArtifact(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	t.Chdir(t.TempDir())
	if err := os.Mkdir("out", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("out/a.csv", []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	direct := f.URL
	breakResponses(t, f, "/artifacts/", 1)
	if code, _, errs := command(t, f, "run", "--out", "out/*", "--code", "files"); code != 1 ||
		!strings.Contains(errs, "save artifact out/a.csv") {
		t.Errorf("run with a broken connection: exit code %d, %s, want 1 and the artifact's path", code, errs)
	}
	checkFiles(t, "out", "a.csv")
	if text, err := os.ReadFile("out/a.csv"); err != nil || string(text) != "mine" {
		t.Errorf("out/a.csv = %q, %v, want mine", text, err)
	}
	f.URL = direct
	if code, _, errs := command(t, f, "run", "--out", "out/*", "--code", "files"); code != 0 {
		t.Errorf("run: exit code %d, want 0: %s", code, errs)
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
		t.Errorf("files in %s = %v, %v, want %v, nil", dir, got, err, want)
	}
}
