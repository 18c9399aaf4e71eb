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

// For each recording, the client sends the recorded request, and reads the response as recorded under "read".
func TestReplayWire(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "recorded", "*", "*.txt"))
	if err != nil || len(files) < 15 {
		t.Fatalf("found %d recordings, %v, want at least 15", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimPrefix(filepath.ToSlash(file), "testdata/recorded/"), func(t *testing.T) {
			t.Parallel()
			r := openRecording(t, file)
			var sent string
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
				sent = describeRequest(request, data)
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
			got := sc.send(t, c, target{model: r.comment["model"], embedder: r.comment["embedder"], kill: ":"})
			if got != r.read {
				t.Errorf("the client read\n%swant\n%s", got, r.read)
			}
			_, below, ok := strings.Cut(sent, "/v1") // from the path below the base URL
			if !ok || !strings.HasSuffix(r.request, below) {
				t.Errorf("the client sent\n%swant\n%s", sent, r.request)
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

func openRecording(t *testing.T, file string) recording {
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
		t.Errorf("%s lacks the server or the date", file)
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
	t.Fatalf("unknown scenario %q", r.name)
	return scenario{}
}

// credential matches a key where one is expected. leaks matches what may be a key, a host name or a path anywhere.
var (
	credential = regexp.MustCompile(`(?i)(?:(?:authorization|api[-_]?key)["']?\s*[:=]\s*["']?(?:bearer |basic )?` +
		`|\bbearer )([^\s"',]+)`)
	challenge = regexp.MustCompile(`^(?:realm|authorization_uri|error)=$`) // a parameter of the header WWW-Authenticate
	leaks     = regexp.MustCompile(`sk-[A-Za-z0-9_-]{6,}` +
		`|\beyJ[\w-]{10,}` + // a JSON web token
		`|\b[0-9a-fA-F]{32}\b|\b[A-Za-z0-9]{40,}\b` +
		`|/(?:root|home|Users|tmp|var)/[\w./-]+` +
		`|\b(?:\d{1,3}\.){3}\d{1,3}\b` +
		`|(?i:set-cookie|openai-organization|openai-project):`)
)

// findLeak returns a possible secret or host name in a recording, or "" if there is none.
func findLeak(data []byte) string {
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

// No recorded or documented exchange contains a key or a host name.
func TestNoSecretInRecordings(t *testing.T) {
	checked, total := 0, int64(0)
	for _, root := range []string{"testdata", filepath.Join("..", "codegen", "testdata")} {
		err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(file) != ".txt" {
				return err
			}
			data, err := os.ReadFile(file)
			if leak := findLeak(data); leak != "" {
				t.Errorf("%s contains a possible secret or host name: %.16s…", file, leak)
			}
			if len(data) > maxRecording {
				t.Errorf("%s is %d bytes, want at most %d", file, len(data), maxRecording)
			}
			checked, total = checked+1, total+int64(len(data))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if checked < 40 || total > 250<<10 {
		t.Errorf("checked %d files of %d bytes in all, want at least 40 files and at most 250 KiB", checked, total)
	}
	for _, secret := range []string{
		"sk-" + "abcdefgh1234", "Authorization: Bearer key-of-another", "Authorization: Basic x", "Api-Key: 1",
		`"api-key":"1"`, "api_key=x bearer abc",
		"0123456789abcdef0123456789abcdef", strings.Repeat("A1", 42), "eyJ" + "hbGciOiJIUzI1NiJ9.e30",
		"/root/.ollama/models", "10.0.0.7", "Set-Cookie: a=b",
	} {
		if findLeak([]byte("x "+secret+"\n")) == "" {
			t.Errorf("findLeak does not find %q", secret)
		}
	}
	for _, harmless := range []string{
		"POST /openai/deployments/my-chat/chat/completions?api-version=2024-10-21 HTTP/1.1\nApi-Key: KEY",
		"Authorization: Bearer KEY",
		`Www-Authenticate: Bearer realm="https://example.org"`, "x-request-id: req_0123456789abcdef0123456789abcdef",
		"apim-request-id: 1b4e28ba-2fa1-11d2-883f-0016d3cca427", `"code": "invalid_api_key"`,
	} {
		if leak := findLeak([]byte(harmless + "\n")); leak != "" {
			t.Errorf("findLeak(%q) = %q, want none", harmless, leak)
		}
	}
}

// Masked text keeps its length, because the chunks contain their lengths.
func TestRedact(t *testing.T) {
	s := target{endpoint: Endpoint{BaseURL: "https://my-resource.openai.azure.com/", APIKey: "0a1b2c"}}
	got := string(s.redact([]byte("HTTP/1.1 401 Unauthorized\r\nSet-Cookie: id=1\r\nOpenai-Organization: " +
		"us\r\nX: 1\r\n\r\nkey 0a1b2c, sk-ab****yz; of my-resource.openai.azure.com")))
	want := "HTTP/1.1 401 Unauthorized\r\nX: 1\r\n\r\nkey xxxxxx, xxxxxxxxxxx; of xxxxxxxxxxxxxxxxxxxxxxxxxxxx"
	if got != want {
		t.Errorf("redact = %q, want %q", got, want)
	}
}
