package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// TestWrongAddresses checks the exit code and the message of commands if the fleet's address, file or token is wrong.
func TestWrongAddresses(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	for _, name := range []string{"CODEFLEET_FLEET", "CODEFLEET_DATA", "XDG_DATA_HOME"} {
		t.Setenv(name, "")
	}
	for name, text := range map[string]string{
		"cut.json": "{", "scheme.json": `{"url":"ftp://127.0.0.1"}`, "empty.json": "{}", "file": "",
		"token.json":    `{"url":"http://127.0.0.1:1","token":"a\nb"}`,
		"password.json": `{"url":"http://ann:s3cret pw@127.0.0.1:1"}`,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	queue, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{Dir: filepath.Join(dir, "nats")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(queue.Close)
	refused := strings.Replace(queue.URL(), "nats://", "nats://user:guess@", 1)
	fleet := ingesttest.Start(t, 0, nil)
	const dead, valid = "http://127.0.0.1:1", ingesttest.Token
	for _, c := range []struct {
		url, token, args string
		code             int
		want             string
	}{
		{dead, "", "mcp test", 3, "the fleet does not respond: "},
		{dead, "", "mcp test -o json", 3, `{"error":{"message":"the fleet does not respond: `},
		{dead, "", "tasks -o json", 3, "\"code\":\"unavailable\",\"hint\":\"start one with `codefleet up`"},
		{
			strings.Replace(queue.URL(), "nats://", "http://", 1), "", "tasks", 3,
			"no fleet at this address: the server does not speak HTTP\n  try: check the address of the fleet\n",
		},
		{
			strings.Replace(queue.URL(), "nats://", "https://", 1), "", "tasks", 3,
			"codefleet: no fleet at this address: the server does not speak HTTPS\n",
		},
		{"nats://127.0.0.1:1", "", "mcp test", 3, "find a fleet: connect to NATS "},
		{"nats://127.0.0.1:1", "", "tasks -o json", 3, `"code":"unavailable"`},
		{
			refused, "", "tasks", 4,
			"unauthorized: the queue does not accept the credentials: connect to NATS nats://user:xxxxx@",
		},
		{refused, "", "mcp test", 4, "unauthorized: the queue does not accept the credentials"},
		{"ftp://127.0.0.1", "", "tasks", 2, `find a fleet: fleet address "ftp://127.0.0.1": want http://`},
		{"ftp://127.0.0.1", "", "mcp", 2, `find a fleet: fleet address "ftp://127.0.0.1": want http://`},
		{"ftp://127.0.0.1", "", "mcp test", 2, `find a fleet: fleet address "ftp://127.0.0.1": want http://`},
		{"127.0.0.1:8787", "", "tasks", 2, `find a fleet: fleet address "127.0.0.1:8787": want http://`},
		{"http://", "", "tasks", 2, `find a fleet: fleet address "http://": no host`},
		{"http://ann:s3cret pw@h/", "", "tasks", 2, `find a fleet: fleet address "http://…@h/": want http://`},
		{"http://ann:s3cret pw@h/", "", "tasks -o json", 2, `fleet address \"http://…@h/\": want http://`},
		{"nats://ann:s3cret#@h", "", "tasks", 2, `find a fleet: fleet address "nats://…@h": want http://`},
		{"nats://h,nats://ann:s3cret#@h", "", "tasks", 2, `fleet address "nats://…@h": want nats:// or tls://`},
		{"ann:s3cret@127.0.0.1:1", "", "tasks", 2, `find a fleet: fleet address "…@127.0.0.1:1": want http://`},
		{"ftp://ann:s3cret@h", "", "tasks", 2, `find a fleet: fleet address "ftp://ann:xxxxx@h": want http://`},
		{dead, "", "--fleet password.json tasks", 2, `find a fleet: fleet address "http://…@127.0.0.1:1": want`},
		{"http://ann:s3cret/@h", "", "doctor", 1, `fleet address "http://…@h": want http://`},
		{"http://ann:s3cret@127.0.0.1:1", "", "doctor", 1, "want an address without a user"},
		{"http://ann:s3cret@127.0.0.1:1", "", "tasks", 2, "want an address without a user"},
		{"http://ann:s3cret@127.0.0.1:1", "x", "mcp config --client vscode", 2, "and a host, without a user"},
		{
			"", "x", "mcp config --client vscode --fleet http://ann:s3cret@127.0.0.1:1", 2,
			"is an address; want the path of a file",
		},
		{"http://ann:s3cret@127.0.0.1:1", "x", "mcp config --client codex --url", 2, "and a host, without a user"},
		{"nats://h", "", "mcp config --client codex --url", 2, `fleet address "nats://h": want http:// or https:// and`},
		{"http:///x", "", "mcp config --client codex --url", 2, `fleet address "http:///x": want http:// or https:// and`},
		{"nats://h", "", "mcp config --client codex", 0, "nats://h"},
		{dead, "", "--fleet http://ann:s3cret@127.0.0.1:1 tasks", 2, "is an address; want the path of a file"},
		{"", "", "--config http://ann:s3cret@127.0.0.1:1 config show", 2, "is an address; want the path of a file"},
		{"", "", "up --nats ann:s3cret@127.0.0.1:1", 2, "is not host:port"},
		{"", "", "up --http http://ann:s3cret@127.0.0.1:1", 2, "is not host:port"},
		{"http://127.0.0.1:99999", "", "tasks", 2, `fleet address "http://127.0.0.1:99999": the port must be from 1`},
		{"nats://h,127.0.0.1:99999", "", "tasks", 2, "the port must be from 1 to 65535"},
		{"http://127.0.0.1:0", "", "tasks", 2, "the port must be from 1 to 65535"},
		{dead, "", "--fleet cut.json tasks", 2, "find a fleet: cut.json is not a fleet.json: it is not JSON (byte "},
		{dead, "", "--fleet cut.json mcp", 2, "find a fleet: cut.json is not a fleet.json: it is not JSON (byte "},
		{dead, "", "--fleet scheme.json tasks", 2, `find a fleet: fleet address "ftp://127.0.0.1"`},
		{dead, "", "--fleet empty.json tools", 2, "find a fleet: read fleet file empty.json: url is missing"},
		{
			dead, "", "--fleet . tasks", 2,
			"find a fleet: fleet file .: is a directory: want its fleet.json\n  try: check the path",
		},
		{dead, "", "--fleet absent.json tasks", 2, "find a fleet: read fleet file: absent.json: no such file\n"},
		{dead, "", "--fleet token.json tasks", 2, "find a fleet: token in token.json contains a newline"},
		{
			fleet.URL, "a\nb", "tasks", 2,
			"find a fleet: CODEFLEET_TOKEN contains a newline or another control character",
		},
		{fleet.URL, valid + "\n", "tasks", 0, "TASK  STATUS"},
		{fleet.URL, valid + "\r\n", "tasks", 0, "TASK  STATUS"},
		{fleet.URL, valid, "state set --if-match a\nb {}", 2, "If-Match: the value contains a newline"},
		{"", "x", "tasks", 3, "note: CODEFLEET_TOKEN is not used, because CODEFLEET_URL is not set\n"},
		{dead, "", "bench --scenario warm -v", 2, "-v prints what examples do: give --example"},
		{"", "", "up --data /proc/x", 2, "choose another with --data"},
		{"", "", "up --data file", 2, "data directory file is a file: choose another with --data"},
		{"", "", "up --data file/x", 2, "choose another with --data"},
	} {
		t.Setenv("CODEFLEET_URL", c.url)
		t.Setenv("CODEFLEET_TOKEN", c.token)
		var out, errs bytes.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, env: os.Environ(), exit: os.Exit}
		args := strings.Split(c.args, " ")
		code := a.main(t.Context(), args)
		if strings.Contains(out.String()+errs.String(), "s3cret") {
			t.Errorf("%s with %s prints the password: %s%s", args, c.url, &out, &errs)
		}
		if code != c.code || !strings.Contains(out.String()+errs.String(), c.want) {
			t.Errorf("%s with %s: exit code %d, output %s%s, want exit code %d and %q", args, c.url, code, &out, &errs,
				c.code, c.want)
		}
	}
}

// TestLogsFollowTheTask checks that logs -f, which waits for the task, has the exit code of the task's status.
func TestLogsFollowTheTask(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	for code, want := range map[string]int{"fail no": 1, "print 1": 0} {
		r := runTask(t, f, code)
		if got, _, errs := command(t, f, "logs", "-f", r.TaskID); got != want {
			t.Errorf("logs -f of a task that is %s: exit code %d, %s, want %d", r.Status, got, errs, want)
		}
		if got, _, errs := command(t, f, "logs", r.TaskID); got != 0 {
			t.Errorf("logs of a task that is %s: exit code %d, %s, want 0", r.Status, got, errs)
		}
	}
}
