package openai

import (
	"cmp"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// The client sends the request of every recording, and reads what a person checked when it was made.
func TestReplayWire(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "recorded", "*", "*.txt"))
	if err != nil || len(files) < 15 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimPrefix(filepath.ToSlash(file), "testdata/recorded/"), func(t *testing.T) {
			t.Parallel()
			r := open(t, file)
			var asked string
			e, _ := serve(t, func(w http.ResponseWriter, request *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, r.response)
			})
			e.Client = &http.Client{Transport: roundTrip(func(request *http.Request) (*http.Response, error) {
				body, err := request.GetBody()
				if err != nil {
					return nil, err
				}
				data, err := io.ReadAll(body)
				asked = described(request, data)
				if err != nil {
					return nil, err
				}
				return http.DefaultTransport.RoundTrip(request)
			})}
			if strings.Contains(r.request, "\nApi-Key: ") {
				e.Deployment = r.comment["model"]
			}
			sc := r.scenario(t)
			e.APIKey = cmp.Or(sc.key, e.APIKey)
			c, err := New(e)
			if err != nil {
				t.Fatal(err)
			}
			if got := sc.ask(t, c, subject{
				model: r.comment["model"], embedder: r.comment["embedder"],
				kill: ":",
			}); got != r.read {
				t.Errorf("read\n%swant\n%s", got, r.read)
			}
			if _, was, _ := strings.Cut(r.request, "\nHost"); !strings.HasSuffix(asked, was) {
				t.Errorf("asked\n%swant\n%s", asked, r.request)
			}
		})
	}
}

// recording is a file written by TestRecordWire.
type recording struct {
	name                    string
	comment                 map[string]string
	request, response, read string
}

func open(t *testing.T, file string) recording {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil || len(archive.Files) != 3 {
		t.Fatalf("%s: %v, want request, response, read", file, err)
	}
	r := recording{
		name: strings.TrimSuffix(filepath.Base(file), ".txt"), comment: map[string]string{},
		request: string(archive.Files[0].Data), response: string(archive.Files[1].Data),
		read: string(archive.Files[2].Data),
	}
	for line := range strings.Lines(string(archive.Comment)) {
		key, value, _ := strings.Cut(line, ":")
		r.comment[key] = strings.TrimSpace(value)
	}
	if r.comment["server"] == "" || r.comment["recorded"] == "" {
		t.Errorf("%s names no server or no date", file)
	}
	return r
}

func (r recording) scenario(t *testing.T) scenario {
	t.Helper()
	for _, s := range scenarios {
		if s.name == r.name {
			return s
		}
	}
	t.Fatalf("no scenario %s", r.name)
	return scenario{}
}

// credential matches a key in its usual places; leaks match what may be a key or the name of a machine anywhere.
var (
	credential = regexp.MustCompile(`(?i)(?:(?:authorization|api[-_]?key)["']?\s*[:=]\s*["']?(?:bearer |basic )?` +
		`|\bbearer )([^\s"',]+)`)
	challenge = regexp.MustCompile(`^(?:realm|authorization_uri|error)=$`) // of the header WWW-Authenticate
	leaks     = regexp.MustCompile(`sk-[A-Za-z0-9_-]{6,}` +
		`|\beyJ[\w-]{10,}` + // a JSON web token
		`|\b[0-9a-fA-F]{32}\b|\b[A-Za-z0-9]{40,}\b` +
		`|/(?:root|home|Users|tmp|var)/[\w./-]+` +
		`|\b(?:\d{1,3}\.){3}\d{1,3}\b` +
		`|(?i:set-cookie|openai-organization|openai-project):`)
)

// leakIn returns a possible secret or name of a machine in a recording; "" for none.
func leakIn(data []byte) string {
	for _, found := range credential.FindAllSubmatch(data, -1) {
		if string(found[1]) != "KEY" && !challenge.Match(found[1]) {
			return string(found[0])
		}
	}
	if found := leaks.Find(data); found != nil {
		return string(found)
	}
	if name, err := os.Hostname(); err == nil && len(name) > 3 && strings.Contains(string(data), name) {
		return name
	}
	return ""
}

// No recorded or documented exchange contains a key or the name of a machine.
func TestNoSecretInRecordings(t *testing.T) {
	checked, total := 0, int64(0)
	for _, root := range []string{"testdata", filepath.Join("..", "codegen", "testdata")} {
		err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(file) != ".txt" {
				return err
			}
			data, err := os.ReadFile(file)
			if leak := leakIn(data); leak != "" {
				t.Errorf("%s contains a possible secret or name of a machine: %.16s…", file, leak)
			}
			if len(data) > maxRecording {
				t.Errorf("%s has %d bytes, want at most %d", file, len(data), maxRecording)
			}
			checked, total = checked+1, total+int64(len(data))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if checked < 40 || total > 250<<10 {
		t.Errorf("checked %d files with %d bytes, want 40 or more, with at most 250 KiB", checked, total)
	}
	for _, secret := range []string{
		"sk-" + "abcdefgh1234", "Authorization: Bearer key-of-another", "Authorization: Basic x", "Api-Key: 1",
		`"api-key":"1"`, "api_key=x bearer abc",
		"0123456789abcdef0123456789abcdef", strings.Repeat("A1", 42), "eyJ" + "hbGciOiJIUzI1NiJ9.e30",
		"/root/.ollama/models", "10.0.0.7", "Set-Cookie: a=b",
	} {
		if leakIn([]byte("x "+secret+"\n")) == "" {
			t.Errorf("the check misses %q", secret)
		}
	}
	for _, harmless := range []string{
		"POST /openai/deployments/my-chat/chat/completions?api-version=2024-10-21 HTTP/1.1\nApi-Key: KEY",
		"Authorization: Bearer KEY",
		`Www-Authenticate: Bearer realm="https://example.org"`, "x-request-id: req_0123456789abcdef0123456789abcdef",
		"apim-request-id: 1b4e28ba-2fa1-11d2-883f-0016d3cca427", `"code": "invalid_api_key"`,
	} {
		if leak := leakIn([]byte(harmless + "\n")); leak != "" {
			t.Errorf("the check reports %q of %q", leak, harmless)
		}
	}
}

// Masked text keeps its length: chunks declare theirs.
func TestRedact(t *testing.T) {
	s := subject{endpoint: Endpoint{BaseURL: "https://my-resource.openai.azure.com/", APIKey: "0a1b2c"}}
	got := string(s.redact([]byte("HTTP/1.1 401 Unauthorized\r\nSet-Cookie: id=1\r\nOpenai-Organization: " +
		"us\r\nX: 1\r\n\r\nkey 0a1b2c, sk-ab****yz; of my-resource.openai.azure.com")))
	want := "HTTP/1.1 401 Unauthorized\r\nX: 1\r\n\r\nkey xxxxxx, xxxxxxxxxxx; of xxxxxxxxxxxxxxxxxxxxxxxxxxxx"
	if got != want {
		t.Errorf("redact = %q, want %q", got, want)
	}
}
