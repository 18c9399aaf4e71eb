package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/guardrails/privacy"
)

// write writes a file in the working directory and returns its name.
func write(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// load loads s with a home directory.
func load(t *testing.T, s config.Source) *config.Config {
	t.Helper()
	s.Env = append(s.Env, "HOME=/home/u")
	c, err := config.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// problems loads s with a home directory and returns its problems.
func problems(t *testing.T, s config.Source) []string {
	t.Helper()
	s.Env = append(s.Env, "HOME=/home/u")
	_, err := config.Load(s)
	invalid, ok := errors.AsType[*config.InvalidError](err)
	if !ok {
		t.Fatalf("Load = %v, want an *InvalidError", err)
	}
	var lines []string
	for _, p := range invalid.Problems {
		lines = append(lines, p.String())
	}
	return lines
}

func TestDefaults(t *testing.T) {
	t.Chdir(t.TempDir())
	c := load(t, config.Source{})
	for name, addr := range map[string]string{
		"http": c.HTTP.Addr, "nats": c.NATS.Addr, "s3": c.S3.Addr, "mcp": c.MCP.Addr,
	} {
		if host, _, err := net.SplitHostPort(addr); err != nil || host != "127.0.0.1" {
			t.Errorf("%s.addr = %q, want an address on 127.0.0.1", name, addr)
		}
	}
	if c.Data != "/home/u/.local/share/codefleet" || c.HTTP.Addr != "127.0.0.1:8787" ||
		c.Queue.AckWait != 30*time.Second {
		t.Errorf("data = %q, http.addr = %q, ack_wait = %v; want /home/u/.local/share/codefleet, 127.0.0.1:8787, 30s",
			c.Data, c.HTTP.Addr, c.Queue.AckWait)
	}
	if _, ok := c.Tenants["default"]; !ok || len(c.Tenants) != 1 {
		t.Errorf("tenants = %v, want only default", c.Tenants)
	}
	if c.Warnings != nil {
		t.Errorf("warnings = %q, want none", c.Warnings)
	}
}

// TestLayers sets one key in every layer, removes the layers from the top, and checks the value and its origin each
// time.
func TestLayers(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "config.yaml", "# first\nhttp:\n  addr: 127.0.0.1:1\n")
	write(t, ".env", "CODEFLEET_HTTP_ADDR=127.0.0.1:2\n")
	s := config.Source{
		Env:   []string{"CODEFLEET_HTTP_ADDR=127.0.0.1:3"},
		Flags: []config.Flag{{Key: "http.addr", Value: "127.0.0.1:4", Name: "--http"}},
	}
	steps := []struct {
		drop, want, origin string
	}{
		{"", "127.0.0.1:4", "flag --http"},
		{"flags", "127.0.0.1:3", "environment CODEFLEET_HTTP_ADDR"},
		{"env", "127.0.0.1:2", ".env CODEFLEET_HTTP_ADDR"},
		{".env", "127.0.0.1:1", "config.yaml:3"},
		{"config.yaml", "127.0.0.1:8787", "default"},
	}
	for _, step := range steps {
		switch step.drop {
		case "flags":
			s.Flags = nil
		case "env":
			s.Env = nil
		case ".env", "config.yaml":
			if err := os.Remove(step.drop); err != nil {
				t.Fatal(err)
			}
		}
		c := load(t, s)
		if got, from := c.HTTP.Addr, c.Origin("http.addr").String(); got != step.want || from != step.origin {
			t.Errorf("without %q: http.addr = %q from %q, want %q from %q",
				step.drop, got, from, step.want, step.origin)
		}
	}
}

func TestEmptyVariableIsAbsent(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "c.yaml", "s3: {bucket: b}")
	c := load(t, config.Source{File: "c.yaml", Env: []string{"CODEFLEET_S3_BUCKET="}})
	if c.S3.Bucket != "b" {
		t.Errorf("s3.bucket = %q, want b", c.S3.Bucket)
	}
}

func TestConfigFromVariable(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "other.yaml", "s3: {bucket: b}")
	if c := load(t, config.Source{Env: []string{"CODEFLEET_CONFIG=other.yaml"}}); c.S3.Bucket != "b" {
		t.Errorf("s3.bucket = %q, want b", c.S3.Bucket)
	}
	got := problems(t, config.Source{Env: []string{"CODEFLEET_CONFIG=missing.yaml"}})
	if len(got) != 1 || !strings.Contains(got[0], "missing.yaml") {
		t.Errorf("problems with a missing file = %q; want one that names missing.yaml", got)
	}
}

// TestProcessors checks that no limit of processors is so small that it would count as none.
func TestProcessors(t *testing.T) {
	t.Chdir(t.TempDir())
	file := write(t, "c.yaml", "limits: {cpus: 0.001}\ntenants: {acme: {limits: {cpus: 1e-9}}}")
	want := []string{
		"c.yaml:1: limits.cpus: 0.001: want a number from 0.01 to 1024",
		"c.yaml:2: tenants.acme.limits.cpus: 1e-09: want a number from 0.01, or 0 for limits.cpus",
	}
	if diff := cmp.Diff(want, problems(t, config.Source{File: file})); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	load(t, config.Source{File: write(t, "c.yaml", "limits: {cpus: 0.01}\ntenants: {acme: {limits: {cpus: 0}}}")})
}

// TestProblems checks that Load reports all problems at once, with their lines.
func TestProblems(t *testing.T) {
	t.Chdir(t.TempDir())
	file := write(t, "c.yaml", `
htpp:
  addr: x
http:
  listen: 127.0.0.1:1
  addr: 8787
nats:
  bucket: b
  url: http://x
queue:
  ack_wait: 10 parsecs
  attempts: 0
  attempts: 3
guardrails:
  strict_mode: maybe
optimizations: [1]
worker:
  pools: {a: b}
tenants:
  -acme: {}
  beta:
    tokens:
      - {sha256: 1234}
      - {}
execution:
  sandbox_type: gvisr
  workspace-dir: /x
`)
	got := problems(t, config.Source{
		File: file,
		Env: []string{
			"CODEFLEET_NATS_ULR=nats://x", "MAX_MEMORY_MB=lots", "CODEFLEET_NATS_SERVICE_HOST=10.0.0.1",
			"CODEFLEET_PORT_4222_TCP_ADDR=10.0.0.1", "CODEFLEET_REQUIRE_GVISOR=1",
		},
		Flags: []config.Flag{{Key: "s3.addr", Value: ":x", Name: "--s3"}},
	})
	want := []string{
		"c.yaml:2: htpp: no such setting; did you mean http?",
		"c.yaml:5: http.listen: no such setting; http has addr, allowed_hosts, allowed_origins, tls_cert, tls_key",
		"c.yaml:8: nats.bucket: no such setting; did you mean s3.bucket?",
		`c.yaml:11: queue.ack_wait: "10 parsecs" is not a duration such as 30s, 5m or 300 (seconds)`,
		"c.yaml:13: queue.attempts: is set twice; the first time in line 12",
		`c.yaml:15: guardrails.strict_mode: "maybe" is neither true nor false`,
		"c.yaml:16: optimizations: want `name: value` lines",
		"c.yaml:18: worker.pools: want a list",
		"c.yaml:27: execution.workspace-dir: no such setting; did you mean workspace_dir?",
		`MAX_MEMORY_MB: guardrails.max_memory_mb: "lots" is not a whole number`,
		"environment: CODEFLEET_NATS_ULR: no such setting; did you mean CODEFLEET_NATS_URL?",
		`c.yaml:6: http.addr: "8787" is not host:port, such as 127.0.0.1:8787; port 0 selects a free port`,
		`--s3: s3.addr: ":x" is not host:port, such as 127.0.0.1:8787; port 0 selects a free port`,
		"c.yaml:9: nats.url: want a URL of the form nats://host or tls://host or ws://host or wss://host",
		"c.yaml:12: queue.attempts: 0 is not between 1 and 100",
		`c.yaml:26: execution.sandbox_type: "gvisr" is not one of auto, gvisor, microsandbox; did you mean gvisor?`,
		`c.yaml:20: tenants.-acme: "-acme": a name has 1 to 63 letters (a-z, A-Z), digits, _ and -, ` +
			`and starts with a letter or digit`,
		`c.yaml:23: tenants.beta.tokens[0].sha256: want 64 hexadecimal digits; ` +
			`compute them with: printf %s "$TOKEN" | sha256sum`,
		"c.yaml:24: tenants.beta.tokens[1]: sha256 or file is missing",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestSyntax(t *testing.T) {
	t.Chdir(t.TempDir())
	for text, want := range map[string]string{
		"http:\n\taddr: x":        "c.yaml:2: not valid YAML: found character that cannot start any token",
		"- a":                     "c.yaml:1: want `name: value` lines",
		"data: /x\n---\ndata: /y": "c.yaml: want one YAML document, without another one after ---",
		"http: &h {addr: 127.0.0.1:1}\ns3:\n  <<: *h"://
		"c.yaml:3: s3: a key must be a string; merge keys are not supported",
		strings.Repeat("#", 1<<20) + "\n": "c.yaml is larger than 1048576 bytes",
	} {
		if got := problems(t, config.Source{File: write(t, "c.yaml", text)}); len(got) != 1 || got[0] != want {
			t.Errorf("problems with %.40q = %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"", "\n# nothing\n", "http:\ntenants:\n", "http: &h {addr: 127.0.0.1:1}\n"} {
		load(t, config.Source{File: write(t, "c.yaml", text)})
	}
}

// TestControlCharacters checks that a secret that requests carry has no newline within it. An environment variable may.
func TestControlCharacters(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "key", "a\nb\n")
	write(t, "c.yaml", "s3:\n  secret_key_file: key\nmcp_servers:\n- {name: a, command: b, env: {K_file: key}}\n"+
		"- {name: w, url: 'https://w', headers: {X-Key_file: key}}\n")
	got := problems(t, config.Source{File: "c.yaml", Env: []string{"OPENAI_API_KEY=a\rb"}})
	const text = ": contains a newline or another control character"
	want := []string{
		"c.yaml:2: s3.secret_key" + text, "c.yaml:5: mcp_servers[1].headers.X-Key" + text,
		"OPENAI_API_KEY: llm.openai_api_key" + text,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestSecrets(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "key", "s3cr3t-key\n")
	write(t, "c.yaml", "s3:\n  secret_key_file: key\nnats:\n  url: nats://u:s3cr3t-url@h:4222\nmcp_servers:\n"+
		"- {name: a, command: b, args: [-y, '@a/b@1.2', --api-key=s3cr3t-a, --token, s3cr3t-b, -v,\n"+
		"     --header, 'Authorization: Bearer s3cr3t-h', -e, K=s3cr3t-e, --pat, s3cr3t-p, /data,\n"+
		"     --port, 80, --root=./x, --max-tokens, 4096, 'https://h/s3cr3t-u', s3cr3t with spaces, image:2,\n"+
		"     -ps3cr3t, -t, s3cr3t, -token, s3cr3t, /apikey:s3cr3t, Bearer, s3cr3t,\n"+
		"     eyJs3cr3tInR5cCI6.eyJzdWIiOiIx.dozjg-x, c2VjcmV0s3cr3tLXBhc3N3b3Jk=, ghp_s3cr3ts3cr3ts3cr3t,\n"+
		"     'root:s3cr3t-password@db:3306/x'],\n"+
		"   env: {K: s3cr3t-env, TOKEN_file: key, SSL_CERT_FILE: /x}}\n"+
		"- {name: w, url: 'https://w/a,s3cr3t-path?k=a,b&s3cr3t-query', headers: {X-Key_file: key}}\n"+
		"telemetry: {endpoint: 'https://o/s3cr3t-path'}\nllm: {base_url: 'https://m/v1?k=s3cr3t'}\n"+
		"guardrails: {blocked_patterns: ['https?://evil\\.com/\\?x']}\n"+
		"tools:\n  policy: {a/read_file: approve}\n")
	c := load(t, config.Source{File: "c.yaml", Env: []string{"OPENAI_API_KEY_FILE=key"}})
	if c.S3.SecretKey != "s3cr3t-key" || c.LLM.OpenAIAPIKey != "s3cr3t-key" {
		t.Errorf("secrets read from files = %q, %q; want s3cr3t-key twice",
			string(c.S3.SecretKey), string(c.LLM.OpenAIAPIKey))
	}
	env, headers := c.MCPServers[0].Env, c.MCPServers[1].Headers
	if env["K"] != "s3cr3t-env" || env["TOKEN"] != "s3cr3t-key" || env["SSL_CERT_FILE"] != "/x" || len(env) != 3 ||
		headers["X-Key"] != "s3cr3t-key" || len(headers) != 1 {
		t.Errorf("MCP servers have env %q and headers %q; want K, TOKEN, SSL_CERT_FILE and X-Key with their values",
			slices.Collect(maps.Keys(env)), slices.Collect(maps.Keys(headers)))
	}
	if got := c.Tools.Policy["a/read_file"]; got != "approve" {
		t.Errorf("policy of the tool read_file = %q, want approve", got)
	}
	if got := c.Origin("llm.openai_api_key").String(); got != "environment OPENAI_API_KEY_FILE" {
		t.Errorf("origin = %q; want the variable OPENAI_API_KEY_FILE", got)
	}
	printed, err := json.Marshal(c.Values())
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "s3", c.S3, "key", c.S3.SecretKey)
	for _, text := range []string{string(printed), fmt.Sprintf("%v %+v %#v", c.S3, c.S3, c.S3), log.String()} {
		if strings.Contains(text, "s3cr3t") {
			t.Errorf("printed %s, want no secret", text)
		}
	}
	values := map[string]string{}
	for _, v := range c.Values() {
		values[v.Key] = v.Value
	}
	for key, want := range map[string]string{
		"mcp_servers[0].args": "-y, @a/b@1.2, --api-key=(hidden), --token, (hidden), -v, --header, (hidden), -e, " +
			"K=(hidden), --pat, (hidden), /data, --port, 80, --root=./x, --max-tokens, (hidden), https://h/(hidden), " +
			"(hidden), image:2, (hidden), -t, (hidden), (hidden), (hidden), (hidden), Bearer, (hidden), " +
			"(hidden), (hidden), (hidden), (hidden)",
		"mcp_servers[1].url":          "https://w/(hidden)",
		"nats.url":                    "nats://u:xxxxx@h:4222",
		"telemetry.endpoint":          "https://o/(hidden)",
		"llm.base_url":                "https://m/v1?(hidden)",
		"guardrails.blocked_patterns": `https?://evil\.com/\?x`,
	} {
		if values[key] != want {
			t.Errorf("%s is printed as %s, want %s", key, values[key], want)
		}
	}

	write(t, "both.yaml", "s3:\n  secret_key: a\n  secret_key_file: key\nmcp_servers:\n"+
		"- {name: a, url: 'https://a', user: me, args: [x], headers: {K: a, K_file: key, L_file: nowhere}}\n"+
		"- {name: b, command: b, headers: {K: a}}\n")
	got := problems(t, config.Source{File: "both.yaml", Env: []string{
		"CODEFLEET_NATS_TOKEN=a", "CODEFLEET_NATS_TOKEN_FILE=key", "LLM_API_KEY_FILE=nowhere",
	}})
	want := []string{
		"both.yaml:3: s3.secret_key: set either the value or the file, not both",
		"both.yaml:5: mcp_servers[0].headers.K: set either the value or the file, not both",
		"both.yaml:5: mcp_servers[0].headers.L_file: nowhere: no such file or directory",
		"CODEFLEET_NATS_TOKEN: nats.token: both CODEFLEET_NATS_TOKEN and CODEFLEET_NATS_TOKEN_FILE are set",
		"LLM_API_KEY_FILE: llm.api_key_file: nowhere: no such file or directory",
		`both.yaml:5: mcp_servers[0].user: "a" has no command, so user would have no effect`,
		`both.yaml:5: mcp_servers[0].args: "a" has no command, so args would have no effect`,
		`both.yaml:6: mcp_servers[1].headers: "b" has no url, so headers would have no effect`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	for text, line := range map[string]string{
		"# x\nA='s3cr3t\n": "2", "A=\"x\ny\"\nB='s3cr3t": "3", "A=1\n\ns3cr3t?\nB=2\n": "3",
	} {
		write(t, ".env", text)
		if got := problems(t, config.Source{}); len(got) != 1 || strings.Contains(got[0], "s3cr3t") ||
			!strings.HasPrefix(got[0], ".env:"+line+": ") {
			t.Errorf("problems with %q = %q; want one, in line %s and without the secret", text, got, line)
		}
	}
}

// TestPrivacyTypes checks that an empty list of types selects all of them, like no list.
func TestPrivacyTypes(t *testing.T) {
	t.Chdir(t.TempDir())
	builtIn := privacy.Types()
	for text, want := range map[string][]privacy.Type{
		"{}":                              builtIn,
		"{types: []}":                     builtIn,
		"{recognizer: {url: 'http://r'}}": append(privacy.Types(), privacy.Person, privacy.Place),
		"{types: [], recognizer: {url: 'http://r'}}":   append(privacy.Types(), privacy.Person, privacy.Place),
		"{types: [ip], recognizer: {url: 'http://r'}}": {"ip"},
	} {
		c := load(t, config.Source{File: write(t, "c.yaml", "privacy: "+text)})
		if diff := cmp.Diff(want, c.PrivacyOptions().Fleet.Types); diff != "" {
			t.Errorf("types with %s (-want +got):\n%s", text, diff)
		}
	}
}

// TestGrace checks that garbage collection waits for the longest task of any tenant.
func TestGrace(t *testing.T) {
	t.Chdir(t.TempDir())
	const want = "at least 24h0m0s, and twice guardrails.max_execution_time and each tenant's limits.timeout"
	for text, least := range map[string]string{
		"workspaces: {grace: 23h}":               "23h0m0s is less than 24h0m0s",
		"guardrails: {max_execution_time: 13h}":  "24h0m0s is less than 26h0m0s",
		"tenants: {a: {limits: {timeout: 72h}}}": "24h0m0s is less than 144h0m0s",
	} {
		got := problems(t, config.Source{File: write(t, "c.yaml", text)})
		if len(got) != 1 || !strings.HasSuffix(got[0], "workspaces.grace: "+least+": want "+want) {
			t.Errorf("problems with %s = %q, want one: %s", text, got, least)
		}
	}
	const long = "workspaces: {grace: 144h}\ntenants: {a: {limits: {timeout: 72h}}}"
	load(t, config.Source{File: write(t, "c.yaml", long)})
}

func TestTenants(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "token", "a-token-of-24-characters\n")
	write(t, "short", "abc\n")
	write(t, "c.yaml", `
tenants:
  acme:
    tokens: [{name: ci, file: token, scopes: [read]}]
    pools: [default, gpu]
    max_running: 4
    network: [example.org:443]
    limits: {timeout: 10m, memory_mb: 2048}
  beta:
`)
	c := load(t, config.Source{File: "c.yaml"})
	want := map[string]config.Tenant{
		"acme": {
			Tokens: []config.Token{{
				Name: "ci", File: "token", Scopes: []string{"read"},
				SHA256: "84b9b41d13c3c260a67edeb62da19a57502327cb6b72ce5acbb7483f6c36edf9",
			}},
			Pools: []string{"default", "gpu"}, MaxRunning: 4, Network: []string{"example.org:443"},
			Limits: config.TenantLimits{Timeout: 10 * time.Minute, MemoryMB: 2048},
		},
		"beta": {},
	}
	reveal := cmp.Transformer("reveal", func(s config.Secret) string { return string(s) })
	if diff := cmp.Diff(want, c.Tenants, reveal); diff != "" {
		t.Errorf("tenants (-want +got):\n%s", diff)
	}
	write(t, "short.yaml", "tenants: {a: {tokens: [{file: short}]}}\nauth: {enabled: false}\nhttp: {addr: '0.0.0.0:1'}")
	got := problems(t, config.Source{File: "short.yaml"})
	if len(got) != 2 || !strings.Contains(got[0], "at least 16 characters") || !strings.Contains(got[1], "loopback") {
		t.Errorf("problems = %q; want a token that is too short, and an address that is not loopback", got)
	}
}

// TestRefusedNames checks that settings of earlier versions which nothing replaces are errors, and not ignored.
func TestRefusedNames(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "c.yaml", `
guardrails: {enabled: &yes true, allowed_networks: [example.org]}
execution: {allow_network_access: *yes, mount_directories: [./data]}
`)
	got := problems(t, config.Source{File: "c.yaml", Env: []string{"ALLOW_NETWORK_ACCESS=true"}})
	want := []string{
		"c.yaml:2: guardrails.allowed_networks: refused", "c.yaml:3: execution.allow_network_access: refused",
		"c.yaml:3: execution.mount_directories: refused", "ALLOW_NETWORK_ACCESS: refused",
	}
	if len(got) != len(want) {
		t.Fatalf("problems = %q, want %d", got, len(want))
	}
	for i, w := range want {
		if !strings.HasPrefix(got[i], w) {
			t.Errorf("problem %d = %q, want it to begin with %q", i, got[i], w)
		}
	}
}

// TestEmptyServersDir checks that an empty directory of tools causes a warning.
func TestEmptyServersDir(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("servers", 0o700); err != nil {
		t.Fatal(err)
	}
	source := config.Source{Env: []string{"SERVERS_DIR=./servers"}}
	if got := load(t, source).Warnings; len(got) != 1 || !strings.Contains(got[0], "./servers is empty") {
		t.Errorf("warnings = %q, want that ./servers is empty", got)
	}
	write(t, "servers/README", "none")
	if got := load(t, source).Warnings; len(got) != 0 {
		t.Errorf("warnings for a directory with a file = %q, want none", got)
	}
}

// TestEarlierNames checks that names of earlier versions work, and that Load warns of retired ones unless their value
// describes what the fleet always does.
func TestEarlierNames(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "c.yaml", `
execution: {workspace_dir: ./w, allow_network_access: false, state: {enabled: true, auto_save: false}}
mcp_servers: []
workflows: []
`)
	write(t, ".env", "WORKSPACE_DIR=./v\nMSB_API_KEY=k\n")
	if err := os.Mkdir("a", 0o700); err != nil {
		t.Fatal(err)
	}
	c := load(t, config.Source{File: "c.yaml", Env: []string{
		"MSB_SERVER_URL=http://localhost:5555", "MAX_EXECUTION_TIME=60", "OPTIMIZATION_SANDBOX_POOLING=false",
		"AZURE_OPENAI_ENDPOINT=https://a.openai.azure.com", "STATE_FORMAT=json", "MCP_SERVER_JIRA_CLOUD_URL=https://j",
		"SKILLS_DIR=a", "EXECUTION_SKILLS_DIR=b",
	}})
	if s := c.Execution.State; !s.Enabled || s.AutoSave || c.DefaultState() != "state.json" {
		t.Errorf("state = %+v, want it enabled, not saved, in state.json", s)
	}
	if c.Execution.WorkspaceDir != "./v" || c.Guardrails.MaxExecutionTime != time.Minute ||
		c.Optimizations.ReadyBoxes() != 0 || c.Execution.SkillsDir != "a" {
		t.Errorf("workspace %q, time %v, ready %d, skills %q; want ./v, 1m, 0, a",
			c.Execution.WorkspaceDir, c.Guardrails.MaxExecutionTime,
			c.Optimizations.ReadyBoxes(), c.Execution.SkillsDir)
	}
	if !c.LLM.Enabled || c.LLM.Provider != "azure_openai" || c.Origin("llm.enabled").Where != "AZURE_OPENAI_ENDPOINT" {
		t.Errorf("llm.enabled = %v by %q from %v; want true by azure_openai from AZURE_OPENAI_ENDPOINT", c.LLM.Enabled,
			c.LLM.Provider, c.Origin("llm.enabled"))
	}
	if len(c.MCPServers) != 1 || c.MCPServers[0].Name != "jira-cloud" || c.MCPServers[0].URL != "https://j" {
		t.Errorf("mcp_servers = %+v; want jira-cloud at https://j", c.MCPServers)
	}
	var warnings []string
	for _, w := range c.Warnings {
		warnings = append(warnings, strings.SplitAfterN(w, ": no effect", 2)[0])
	}
	want := []string{
		"MSB_API_KEY: no effect",
		"EXECUTION_SKILLS_DIR: differs from SKILLS_DIR, which is used", "MSB_SERVER_URL: no effect",
	}
	if diff := cmp.Diff(want, warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// TestVariables checks which variables are warned of and refused.
func TestVariables(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "key", "k\n")
	c := load(t, config.Source{Env: []string{
		"CODEFLEET_MCP_AUTHORIZATION_SERVERS=https://a", "CODEFLEET_PORT=tcp://10.0.0.1:80",
		"CODEFLEET_WEB_PORT=tcp://10.0.0.1:80", "CODEFLEET_WEB_PORT_80_TCP_PORT=80",
		"CODEFLEET_LLM_API_KEY_FILE=key", "LLM_API_KEY=k",
	}})
	if len(c.Warnings) != 1 || !strings.HasPrefix(c.Warnings[0], "CODEFLEET_MCP_AUTHORIZATION_SERVERS: no effect") {
		t.Errorf("warnings = %q, want one of CODEFLEET_MCP_AUTHORIZATION_SERVERS", c.Warnings)
	}
	got := problems(t, config.Source{Env: []string{"CODEFLEET_HTTP_PORT=9000"}})
	if len(got) != 1 || !strings.Contains(got[0], "CODEFLEET_HTTP_PORT: no such setting") {
		t.Errorf("problems = %q, want CODEFLEET_HTTP_PORT", got)
	}
}

// TestModelFromVariables checks which model the keys and endpoints of providers enable.
func TestModelFromVariables(t *testing.T) {
	t.Chdir(t.TempDir())
	const endpoint = "AZURE_OPENAI_ENDPOINT=https://a.openai.azure.com"
	for _, c := range []struct {
		env      []string
		enabled  bool
		by       string
		provider string
	}{
		{nil, false, "", "openai"},
		{[]string{"LLM_API_KEY=k"}, true, "LLM_API_KEY", "openai"},
		{[]string{"OPENAI_API_KEY=k"}, true, "OPENAI_API_KEY", "openai"},
		{[]string{"OPENAI_BASE_URL=https://m"}, true, "OPENAI_BASE_URL", "openai"},
		{[]string{"OPENAI_API_KEY=k", endpoint}, true, "AZURE_OPENAI_ENDPOINT", "azure_openai"},
		{[]string{"LLM_ENABLED=true", endpoint}, true, "LLM_ENABLED", "azure_openai"},
		{[]string{"LLM_ENABLED=false", endpoint}, false, "LLM_ENABLED", "azure_openai"},
		{[]string{"LLM_ENABLED=false", "LLM_API_KEY=k"}, false, "LLM_ENABLED", "openai"},
		{[]string{"LLM_ENABLED=true", "LLM_PROVIDER=openai", endpoint}, true, "LLM_ENABLED", "openai"},
		{[]string{"LLM_PROVIDER=azure_openai", "LLM_API_KEY=k"}, false, "", "azure_openai"}, // there is no endpoint
		{[]string{"LLM_PROVIDER=openai", endpoint}, false, "", "openai"},
		{[]string{"LLM_PROVIDER=openai", "LLM_API_KEY=k", endpoint}, true, "LLM_API_KEY", "openai"},
	} {
		got := load(t, config.Source{Env: c.env})
		by := got.Origin("llm.enabled").Where
		if got.LLM.Enabled != c.enabled || by != c.by || got.LLM.Provider != c.provider {
			t.Errorf("%q: enabled %v by %q, provider %q; want %v, %q, %q",
				c.env, got.LLM.Enabled, by, got.LLM.Provider, c.enabled, c.by, c.provider)
		}
	}
}

// TestNoEffect checks that a given setting that changes nothing causes a warning, unless its value is the default.
func TestNoEffect(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "k", strings.Repeat("k", 32))
	const noModel = "no effect: the rules write programs; to use a model, set "
	for _, c := range []struct {
		file, env string
		want      []string
	}{
		{"execution: {sandbox_type: gvisor}\npage: {enabled: false}", "OPTIMIZATION_TOOL_CACHE=true", nil},
		{"", "OPTIMIZATION_TOOL_CACHE=false", []string{"OPTIMIZATION_TOOL_CACHE: no effect yet"}},
		{"privacy: {mode: egress, restore: [crm/*]}", "", []string{
			"c.yaml:1: privacy.restore: no effect: programs and tools get values unless privacy.mode is broker",
		}},
		{"privacy:\n  types: [email]\n  key_file: k\n  recognizer: {url: 'http://r'}", "", []string{
			"c.yaml:2: privacy.types: no effect: nothing is replaced, because privacy.mode is off",
			"c.yaml:3: privacy.key_file: no effect: nothing is replaced, because privacy.mode is off",
			"c.yaml:4: privacy.recognizer.url: no effect: nothing is replaced, because privacy.mode is off",
		}},
		{"privacy: {types: [email]}\ntenants:\n  a: {privacy: {mode: egress, restore: ['*']}}\n" +
			"  b: {privacy: {types: [ip]}}", "", []string{
			"c.yaml:3: tenants.a.privacy.restore: no effect: programs and tools get values " +
				"unless the mode of the tenant's privacy or privacy.mode is broker",
			"c.yaml:4: tenants.b.privacy.types: no effect: nothing is replaced, " +
				"because the mode of the tenant's privacy and privacy.mode are off",
		}},
		{
			"guardrails:\n  blocked_imports: [os]\n  rules: [{name: r, on: inputs, require: 'true'}]",
			"GUARDRAILS_ENABLED=false GUARDRAILS_STRICT_MODE=true",
			[]string{
				"GUARDRAILS_STRICT_MODE: no effect: programs are not checked, " +
					"because guardrails.enabled or guardrails.security_checks is false",
				"c.yaml:2: guardrails.blocked_imports: no effect: programs are not checked, " +
					"because guardrails are off (guardrails.level, enabled, security_checks)",
				"c.yaml:3: guardrails.rules: no effect: programs are not checked, " +
					"because guardrails are off (guardrails.level, enabled, security_checks)",
			},
		},
		{"guardrails: {level: advise, strict_mode: true}", "", []string{
			"c.yaml:1: guardrails.strict_mode: no effect: guardrails.level decides",
		}},
		{"guardrails: {level: 'off', blocked_calls: [eval]}\ntenants: {a: {guardrails: {level: advise}}}", "", nil},
		{"guardrails: {level: 'off'}\ntenants: {a: {guardrails: {blocked_calls: [eval]}}}", "", []string{
			"c.yaml:2: tenants.a.guardrails.blocked_calls: no effect: programs are not checked, " +
				"because the guardrails of the tenant and of the fleet are off",
		}},
		{"telemetry: {logs: true}", "", []string{
			"c.yaml:1: telemetry.logs: no effect: nothing is sent without telemetry.endpoint",
		}},
		{"telemetry: {logs: true, endpoint: 'http://o'}", "", nil},
		{"embeddings: {dimensions: 512}", "", []string{
			"c.yaml:1: embeddings.dimensions: no effect: embeddings.model (or llm.azure_embedder_name) is missing",
		}},
		{"embeddings: {dimensions: 512}", "AZURE_OPENAI_EMBEDDER_NAME=e", nil},
		{"llm: {model: gpt-4o}", "", []string{
			"c.yaml:1: llm.model: " + noModel + "OPENAI_API_KEY, llm.base_url or llm.azure_endpoint",
		}},
		{"llm: {provider: openai, model: gpt-4o, azure_endpoint: 'http://a'}", "", []string{
			"c.yaml:1: llm.model: " + noModel + "OPENAI_API_KEY or llm.base_url",
			"c.yaml:1: llm.azure_endpoint: no effect: llm.provider is openai, and neither a profile nor embeddings " +
				"use azure_openai",
		}},
		{"llm: {provider: azure_openai, azure_api_key: k}", "", []string{
			"c.yaml:1: llm.provider: " + noModel + "llm.azure_endpoint",
			"c.yaml:1: llm.azure_api_key: " + noModel + "llm.azure_endpoint",
		}},
		{"llm: {model: gpt-4o, enabled: false}", "", nil},
		{"llm: {model: gpt-4o, profiles: {p: {}}}", "", nil},
		{"llm: {model: gpt-4o}", "OPENAI_API_KEY=k", nil},
		{"execution: {sandbox_type: gvisor, msb: /m, rootfs: /r}", "", nil}, // msb removes boxes of earlier workers
		{"execution: {sandbox_type: microsandbox, msb: /m, rootfs: /r}", "CODEFLEET_RUNSC=/r", []string{
			"c.yaml:1: execution.rootfs: no effect: only gVisor uses it, but execution.sandbox_type is microsandbox",
			"CODEFLEET_RUNSC: no effect: only gVisor uses it, but execution.sandbox_type is microsandbox",
		}},
		{"execution: {state: {enabled: false, state_file: s.json, auto_save: false}}", "", []string{
			"c.yaml:1: execution.state.auto_save: no effect: execution.state.enabled is false",
		}},
		{"optimizations: {sandbox_pooling: false, sandbox_pool_size: 5}\npools: {p: {ready: 0}}", "", []string{
			"c.yaml:2: pools.p.ready: no effect: no boxes are kept ready, " +
				"because optimizations.enabled or optimizations.sandbox_pooling is false",
			"c.yaml:1: optimizations.sandbox_pool_size: no effect: no boxes are kept ready, " +
				"because optimizations.enabled or optimizations.sandbox_pooling is false",
		}},
		{"tools: {approval_timeout: 1h, call_timeout: 2h, destructive: approve}", "", []string{
			"c.yaml:1: tools.approval_timeout: no effect: calls end before this time: raise tools.call_timeout and " +
				"guardrails.max_execution_time, which include it",
		}},
		{"tools: {approval_timeout: 1h, call_timeout: 2h, policy: {git/*: approve}}\n" +
			"tenants: {a: {}, b: {limits: {timeout: 1h}}}", "", nil},
		{"tools: {approval_timeout: 1s, destructive: deny, policy: {git/*: deny}}", "", []string{
			"c.yaml:1: tools.approval_timeout: no effect: no call waits for approval unless tools.destructive " +
				"or a policy of tools.policy is approve",
		}},
		{"workspaces:\n  clean_every: 0\n  keep_newest: 3\n  inactive: 500h", "", []string{
			"c.yaml:3: workspaces.keep_newest: no effect: nothing is removed, because workspaces.clean_every is 0",
			"c.yaml:4: workspaces.inactive: no effect: nothing is removed, because workspaces.clean_every is 0",
		}},
		{"workspaces: {keep_newest: 3}", "", nil},
		{"guardrails: {level: advise}\nprivacy: {mode: egress}\ntenants:\n" +
			"  a: {guardrails: {level: 'off'}, privacy: {mode: 'off'}}\n" +
			"  b: {guardrails: {level: advise}, privacy: {mode: broker}}", "", []string{
			"c.yaml:4: tenants.a.guardrails.level: no effect: the fleet's guardrails are stricter, " +
				"and a tenant's level cannot weaken them",
			"c.yaml:4: tenants.a.privacy.mode: no effect: privacy.mode replaces more, " +
				"and a tenant's mode cannot weaken it",
		}},
		{
			"limits: {workspace_mb: 9}\ntenants: {a: {limits: {workspace_mb: 10}}, b: {limits: {workspace_mb: 9}}}",
			"",
			[]string{
				"c.yaml:2: tenants.a.limits.workspace_mb: no effect: limits.workspace_mb, the upper bound, is less",
			},
		},
		{"llm: {enabled: false, daily_tokens: 5000}\ntenants: {a: {token_rate: 5/s}}", "", []string{
			"c.yaml:2: tenants.a.token_rate: no effect: the rules write programs, because llm.enabled is false",
			"c.yaml:1: llm.daily_tokens: no effect: the rules write programs, because llm.enabled is false",
		}},
		{"llm:\n  azure_deployment_name: d\n  task_tokens: 5\n  temperature: 1\n  repair_attempts: 3\n" +
			"  azure_embedder_version: v", "", []string{
			"c.yaml:2: llm.azure_deployment_name: " + noModel + "OPENAI_API_KEY, llm.base_url or llm.azure_endpoint",
			"c.yaml:6: llm.azure_embedder_version: no effect: the model of embeddings is not one of azure_openai",
			"c.yaml:4: llm.temperature: " + noModel + "OPENAI_API_KEY, llm.base_url or llm.azure_endpoint",
			"c.yaml:5: llm.repair_attempts: " + noModel + "OPENAI_API_KEY, llm.base_url or llm.azure_endpoint",
			"c.yaml:3: llm.task_tokens: " + noModel + "OPENAI_API_KEY, llm.base_url or llm.azure_endpoint",
		}},
		{"llm: {timeout: 5s, max_tokens: 9, temperature: 1, profiles: {p: {}}}", "", nil},
		{"llm: {api_key: k, azure_api_key: a}", "OPENAI_API_KEY=o AZURE_OPENAI_API_VERSION=v", []string{
			"OPENAI_API_KEY: no effect: llm.api_key takes precedence",
			"c.yaml:1: llm.azure_api_key: no effect: llm.provider is openai, and neither a profile nor embeddings " +
				"use azure_openai",
			"AZURE_OPENAI_API_VERSION: no effect: llm.provider is openai, and neither a profile nor embeddings " +
				"use azure_openai",
		}},
		{"llm: {api_key: k, azure_endpoint: 'http://a', azure_api_key: a, openai_api_key: o}", "", []string{
			"c.yaml:1: llm.azure_api_key: no effect: llm.api_key takes precedence",
		}},
		{"llm: {api_key: k, azure_api_key: a, azure_embedder_name: e, azure_embedder_version: v}", "", nil},
		{"llm: {azure_endpoint: 'http://a', azure_embedder_name: e}\nembeddings: {model: m}", "", []string{
			"c.yaml:1: llm.azure_embedder_name: no effect: embeddings.model takes precedence",
		}},
		{"llm:\n  api_key: k\n  profiles:\n    p: {provider: openai, api_version: v}\n" +
			"    q: {provider: azure_openai, api_version: v}\n    r: {api_version: v}", "", []string{
			"c.yaml:4: llm.profiles.p.api_version: no effect: only azure_openai has API versions, " +
				"but the provider of the profile is openai",
			"c.yaml:6: llm.profiles.r.api_version: no effect: only azure_openai has API versions, " +
				"but the provider of the profile is openai",
		}},
		{"privacy: {mode: egress, recognizer: {language: de, min_score: 0.9}}", "", []string{
			"c.yaml:1: privacy.recognizer.language: no effect: there is no recognizer without privacy.recognizer.url",
			"c.yaml:1: privacy.recognizer.min_score: no effect: there is no recognizer without privacy.recognizer.url",
		}},
		{"privacy: {mode: egress, recognizer: {url: 'http://r', language: de}}", "", nil},
		{"llm: {enabled: false, daily_tokens: 5000, profiles: {p: {}}}", "", nil},
		{"llm: {daily_tokens: 5000}", "OPENAI_API_KEY=k", nil},
		{"tools: {call_timeout: 1m}", "", nil},
		{"page: {enabled: false, read_only: true, prefix: /x}", "", []string{
			"c.yaml:1: page.read_only: no effect: page.enabled is false",
			"c.yaml:1: page.prefix: no effect: page.enabled is false",
		}},
		{"auth: {enabled: false, operators: [{file: k}]}", "", []string{
			"c.yaml:1: auth.operators: no effect: no request needs a token, because auth.enabled is false",
		}},
	} {
		got := load(t, config.Source{File: write(t, "c.yaml", c.file), Env: strings.Fields(c.env)}).Warnings
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("warnings of %s %s (-want +got):\n%s", c.file, c.env, diff)
		}
	}
	file := write(t, "c.yaml", "llm: {model: gpt-4o, azure_endpoint: 'http://a', provider: openai, task_tokens: 5}\n"+
		"tenants: {a: {token_rate: 5/s}}")
	if got := load(t, config.Source{File: file, NoModel: true}).Warnings; got != nil {
		t.Errorf("warnings for a process without a model = %q, want none", got)
	}
}

// TestUnusedByUp checks the warnings of settings that `codefleet up` does not use, and that it replaces those of the
// queue and the object store.
func TestUnusedByUp(t *testing.T) {
	t.Chdir(t.TempDir())
	file := "nats:\n  addr: 127.0.0.1:1\n  token: t\ns3: {region: eu, bucket: b}\ntelemetry: {addr: '127.0.0.1:2'}"
	c := load(t, config.Source{File: write(t, "c.yaml", file), Env: []string{
		"CODEFLEET_NATS_URL=tls://h", "CODEFLEET_NATS_CREDS=k", "CODEFLEET_NATS_TLS_CA=k",
		"CODEFLEET_NATS_TLS_CERT=k", "CODEFLEET_NATS_TLS_KEY=k",
	}})
	want := []string{
		"CODEFLEET_NATS_URL, CODEFLEET_NATS_CREDS, c.yaml:3: nats.token, CODEFLEET_NATS_TLS_CA, " +
			"CODEFLEET_NATS_TLS_CERT, CODEFLEET_NATS_TLS_KEY: no effect: `codefleet up` uses its embedded queue",
		"c.yaml:4: s3.region: no effect: `codefleet up` uses its embedded object store",
		"c.yaml:5: telemetry.addr: no effect: `codefleet up` serves /metrics and /healthz on http.addr",
	}
	if diff := cmp.Diff(want, c.UnusedByUp()); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	defaults := load(t, config.Source{File: write(t, "d.yaml", "nats: {token: ''}\ns3: {region: us-east-1}")})
	if got := defaults.UnusedByUp(); got != nil {
		t.Errorf("warnings of default values = %q, want none", got)
	}
	f := config.FleetFile{
		NATS: config.FleetNATS{URL: "nats://up", User: "u", Password: "p"},
		S3:   config.FleetS3{Endpoint: "http://up", Bucket: "b", AccessKey: "a", SecretKey: "s"},
	}
	c.UseEmbedded(f)
	nats, s3 := config.Default().NATS, config.Default().S3
	nats.Addr, nats.URL, nats.User, nats.Password = "127.0.0.1:1", "nats://up", "u", "p"
	s3.Bucket, s3.Endpoint, s3.AccessKey, s3.SecretKey, s3.Embedded = "b", "http://up", "a", "s", true
	if c.NATS != nats || c.S3 != s3 {
		t.Errorf("after UseEmbedded: %+v, %+v; want %+v, %+v", c.NATS, c.S3, nats, s3)
	}
	joined := load(t, config.Source{File: "c.yaml", Flags: f.Settings("--fleet f.json"), Env: []string{
		"CODEFLEET_NATS_CREDS=k", "CODEFLEET_NATS_TLS_CA=k", "CODEFLEET_S3_BUCKET=c",
	}})
	s3.Embedded = false
	if joined.NATS != nats || joined.S3 != s3 {
		t.Errorf("a worker that joins with %+v, %+v; want %+v, %+v", joined.NATS, joined.S3, nats, s3)
	}
}

// TestUnknownNames checks that Load warns of directories that do not exist, and of names that are probably misspelt.
func TestUnknownNames(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, file := range []string{"tools/geo/find.py", "empty/x/y.py"} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range []string{"find", "findPlace", "map_", "n3d"} {
		write(t, "tools/geo/"+tool+".py", "")
	}
	for _, c := range []struct {
		file string
		want []string
	}{
		{"execution: {servers_dir: nosuch, skills_dir: nosuch}", []string{
			"c.yaml:1: execution.servers_dir: nosuch does not exist: create it; " +
				"if it is empty, the built-in tools are installed in it",
			"c.yaml:1: execution.skills_dir: nosuch does not exist: tenants share no skills",
		}},
		{"execution: {servers_dir: empty/x}", []string{
			"c.yaml:1: execution.servers_dir: empty/x is empty: the built-in tools are installed in it; " +
				"for a fleet without them, put a file into it first",
		}},
		{"execution: {servers_dir: tools, skills_dir: empty}", nil},
		{"tenants: {a: {pools: [default, gpuu, late]}}\npools: {gpu: {}}\nworker: {pools: [late]}", []string{
			"c.yaml:1: tenants.a.pools: gpuu is in neither pools nor worker.pools; did you mean gpu?",
		}},
		{"tenants: {a: {pools: [gpu]}}\npools: {analysis: {}}", nil}, // workers with other settings may serve it
		{"tools: {policy: {calculatr/*: deny, calculator/ad: deny, calculator/add: deny, git/*: deny}}", []string{
			"c.yaml:1: tools.policy: calculator/ad: no tool ad of the server calculator is known; did you mean add?",
			"c.yaml:1: tools.policy: calculatr/*: no server calculatr is known; did you mean calculator?",
		}},
		{"execution: {servers_dir: tools}\ntools: {policy: {geo/fimd: deny, calculatr/*: deny}}", []string{
			"c.yaml:2: tools.policy: geo/fimd: no tool fimd of the server geo is known; did you mean find?",
		}},
		{"execution: {servers_dir: tools}\ntools: {policy: {geo/findplace: deny, Geo/findPlace: deny, " +
			"geo/map: deny, geo/3d: deny}}", nil},
		{"mcp_servers: [{name: my-crm, url: 'http://c'}]\ntenants:\n  a:\n    tool_rates: {my_crn/*: 1/s}\n" +
			"    tools: [my-crm/x, my_crm/*, '*', gi/y]", []string{
			"c.yaml:4: tenants.a.tool_rates: my_crn/*: no server my_crn is known; did you mean my_crm?",
		}},
	} {
		got := load(t, config.Source{File: write(t, "c.yaml", c.file)}).Warnings
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("warnings of %s (-want +got):\n%s", c.file, diff)
		}
	}
}

// TestGuardrailsLevel checks that the level follows the setting of that name, and otherwise the three older settings.
func TestGuardrailsLevel(t *testing.T) {
	for _, c := range []struct {
		in   config.Guardrails
		want string
	}{
		{config.Guardrails{Enabled: true, SecurityChecks: true}, "advise"},
		{config.Guardrails{Enabled: true, SecurityChecks: true, StrictMode: true}, "strict"},
		{config.Guardrails{SecurityChecks: true, StrictMode: true}, "off"},
		{config.Guardrails{Enabled: true, StrictMode: true}, "off"},
		{config.Guardrails{Level: "strict"}, "strict"},
		{config.Guardrails{Level: "off", Enabled: true, SecurityChecks: true, StrictMode: true}, "off"},
	} {
		if got := c.in.EffectiveLevel(); got != c.want {
			t.Errorf("EffectiveLevel(%+v) = %q, want %q", c.in, got, c.want)
		}
	}
}

// TestHomeIsNotExpanded checks that a path with ~ is refused, because the fleet would make a directory named ~.
func TestHomeIsNotExpanded(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "c.yaml", "data: ~/x\npools: {p: {image: ~/i.tar}}\nguardrails: {blocked_patterns: [~/secret]}\n"+
		"mcp_servers: [{name: a, command: ~/a, args: [~/b]}]")
	got := problems(t, config.Source{File: "c.yaml", Env: []string{"LOG_FILE=~"}})
	const want = ": ~ is not expanded: write the path in full, such as /home/ada/x"
	if diff := cmp.Diff([]string{
		"c.yaml:1: data: ~/x" + want, "c.yaml:2: pools.p.image: ~/i.tar" + want,
		"c.yaml:4: mcp_servers[0].command: ~/a" + want, "LOG_FILE: logging.file: ~" + want,
	}, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestGuardrailsAreChecked checks that a wrong level or pattern is found when the settings are loaded.
func TestGuardrailsAreChecked(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "c.yaml", `guardrails: {level: strickt, blocked_patterns: ["("]}
tenants:
  acme: {guardrails: {level: none, blocked_patterns: ["a**"]}}
  beta: {guardrails: {rules: [{name: r, on: arguments, tools: [x], require: "amount < 1"}]}}
  gamma: {guardrails: {blocked_calls: ["a()"], rules: [{name: r, on: input, require: "true"}]}}
`)
	_, err := config.Load(config.Source{File: "c.yaml"})
	for _, want := range []string{
		`guardrails.level: "strickt" is not one of off, advise, strict; did you mean strict?`,
		"guardrails: blocked pattern \"(\": missing closing ): `(`",
		`tenants.acme.guardrails.level: "none" is not one of off, advise, strict`,
		"tenants.acme.guardrails: blocked pattern \"a**\": invalid nested repetition operator: `**`",
		`tenants.beta.guardrails.rules: "x": want server/tool or server/*`,
		"undeclared reference to 'amount'",
		`c.yaml:5: tenants.gamma.guardrails: blocked call "a()": want a dotted name`,
		`c.yaml:5: tenants.gamma.guardrails: rule "r": on is "input"; want inputs, arguments or result`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load = %v, want it to contain %q", err, want)
		}
	}
}

// TestSampleHash checks that the manual's sample hash, and the hash of an easily guessed word, are refused.
func TestSampleHash(t *testing.T) {
	t.Chdir(t.TempDir())
	for hash, want := range map[string]string{
		"HASH-OF-YOUR-TOKEN": "want 64 hexadecimal digits",
		"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08": `the hash of "test", which is easy to guess`,
	} {
		write(t, "c.yaml", "tenants: {acme: {tokens: [{sha256: "+hash+"}]}}")
		if got := problems(t, config.Source{File: "c.yaml"}); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("problems with %s = %q, want %q", hash, got, want)
		}
	}
}

func TestHashInCapitals(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "c.yaml", "tenants: {acme: {tokens: [{sha256: "+strings.Repeat("0A", 32)+"}]}}")
	load(t, config.Source{File: "c.yaml"}) // fails the test if the hash is refused
}

func TestValidateAfterChange(t *testing.T) {
	t.Chdir(t.TempDir())
	c := load(t, config.Source{})
	for _, n := range []int{0, 101} {
		c.Queue.Attempts = n
		want := fmt.Sprintf("configuration: queue.attempts: %d is not between 1 and 100", n)
		if err := c.Validate(); err == nil || err.Error() != want {
			t.Errorf("Validate = %v, want %s", err, want)
		}
	}
}

func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		"a: b", "http: {addr: [}", "tenants: &a {x: *a}", "worker:\n  pools: [a, [b]]", "mcp_servers: [{env: {a: b}}]",
	} {
		f.Add(seed)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(dir, "c.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(config.Source{File: path, DotEnv: os.DevNull, Env: []string{"HOME=/h"}})
		if _, ok := errors.AsType[*config.InvalidError](err); err != nil && !ok {
			t.Fatalf("Load = %v, want an *InvalidError", err)
		}
		if err == nil {
			c.Values()
		}
	})
}

func TestFleetFile(t *testing.T) {
	t.Chdir(t.TempDir())
	want := config.FleetFile{
		URL: "http://127.0.0.1:8787", Token: "t", Tenant: "default", PID: 1,
		NATS: config.FleetNATS{URL: "nats://127.0.0.1:4222", User: "fleet", Password: "p"},
		S3:   config.FleetS3{Endpoint: "http://127.0.0.1:9000", Bucket: "b", AccessKey: "a", SecretKey: "s"},
	}
	for range 2 { // the second write replaces the file
		if err := want.Write("fleet.json"); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat("fleet.json")
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, %v, want 0600", info.Mode(), err)
	}
	got, err := config.ReadFleetFile("fleet.json")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("ReadFleetFile: %v (-want +got):\n%s", err, diff)
	}
	c := load(t, config.Source{Flags: got.Settings("--fleet")})
	if c.NATS.URL != want.NATS.URL || c.S3.SecretKey != "s" || c.Origin("s3.secret_key").String() != "flag --fleet" {
		t.Errorf("settings = %+v, %+v from %v; want those of fleet.json from flag --fleet", c.NATS, c.S3,
			c.Origin("s3.secret_key"))
	}
	if _, err := config.ReadFleetFile("missing.json"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ReadFleetFile of a missing file = %v, want ErrNotExist", err)
	}
}

func TestTenantsThatDifferByCase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	text := "tenants:\n  customer_A: {}\n  customer_a: {}\n  user_12345: {}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := config.Load(config.Source{File: path})
	want := "tenants.customer_a: it differs from tenant customer_A by case only"
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "user_12345") {
		t.Errorf("Load() error = %v, want only %q", err, want)
	}
}

// TestPrivacyIsChecked checks that wrong settings of privacy are found when they are loaded.
func TestPrivacyIsChecked(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "short", "x")
	write(t, "c.yaml", `privacy:
  mode: brokr
  types: [mail, person]
  restore: [crm]
  key_file: short
  ttl: 200h
  recognizer: {timeout: 0, min_score: 2}
tenants:
  acme: {privacy: {mode: none, types: [name], restore: ["*", x]}}
`)
	want := []string{
		`c.yaml:5: privacy.key_file: a secret needs at least 32 random characters: openssl rand -base64 32`,
		`c.yaml:2: privacy.mode: "brokr" is not one of off, egress, broker; did you mean broker?`,
		`c.yaml:3: privacy.types: "mail" is not one of email, phone, ssn, card, iban, ip, secret, person, place; ` +
			`did you mean email?`,
		`c.yaml:3: privacy.types: person needs privacy.recognizer.url`,
		`c.yaml:4: privacy.restore: "crm": want server/tool, server/* or *`,
		`c.yaml:6: privacy.ttl: 200h0m0s is not between 1m and 168h0m0s`,
		`c.yaml:7: privacy.recognizer.timeout: 0s is not positive`,
		`c.yaml:7: privacy.recognizer.min_score: 2 is not between 0 and 1`,
		`c.yaml:9: tenants.acme.privacy.mode: "none" is not one of off, egress, broker`,
		`c.yaml:9: tenants.acme.privacy.types: "name" is not one of email, phone, ssn, card, iban, ip, secret, person, place`,
		`c.yaml:9: tenants.acme.privacy.restore: "x": want server/tool, server/* or *`,
	}
	if diff := cmp.Diff(want, problems(t, config.Source{File: "c.yaml"})); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestState(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct{ env, file, problem string }{
		{"", "state.json", ""},
		{"STATE_FORMAT=yaml", "state.yaml", ""},
		{"STATE_FILE=workflow_state.json", "workflow_state.json", ""},
		{"STATE_FILE=s.yml STATE_FORMAT=yaml", "s.yml", ""},
		{"STATE_FILE=s.json STATE_FORMAT=yaml", "", "yaml does not fit the name s.json"},
		{"STATE_FORMAT=pickle", "", "reading a pickle runs whatever code its writer has put into it"},
		{"STATE_FILE=state.pkl", "", "reading a pickle runs whatever code its writer has put into it"},
		{"STATE_FORMAT=toml", "", `"toml" is not one of json, yaml`},
		{"STATE_FILE=../state.json", "", "is not a clean path within the workspace"},
		{"STATE_FILE=state.txt", "", "not in .json, .yaml or .yml"},
	} {
		got, err := config.Load(config.Source{Env: append(strings.Fields(c.env), "HOME=/home/u"), DotEnv: os.DevNull})
		switch {
		case c.problem == "" && (err != nil || got.DefaultState() != c.file):
			t.Errorf("Load(%s): %v, want the document %s", c.env, err, c.file)
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)):
			t.Errorf("Load(%s) = %v, want %q", c.env, err, c.problem)
		}
	}
}

func TestWeatherProvider(t *testing.T) {
	t.Chdir(t.TempDir())
	got := problems(t, config.Source{Env: []string{"CODEFLEET_WEATHER_PROVIDER=openmeteo"}})
	want := []string{`CODEFLEET_WEATHER_PROVIDER: weather.provider: "openmeteo" is not one of sample, open-meteo; ` +
		`did you mean open-meteo?`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if c := load(t, config.Source{}); c.Weather.Provider != "sample" {
		t.Errorf("weather.provider = %q, want the default sample", c.Weather.Provider)
	}
}

// TestRootfsWithPackages checks that packages are refused beside a root file system if the sandbox is surely gVisor.
func TestRootfsWithPackages(t *testing.T) {
	t.Chdir(t.TempDir())
	const text = `execution: {sandbox_type: gvisor, rootfs: /srv, requirements: r.txt}
pools:
  image: {image: "python:3.12-slim"}
  science: {requirements: r.txt}
`
	write(t, "c.yaml", text)
	const why = ".requirements: with gVisor, packages are part of execution.rootfs: install them there, " +
		"or remove execution.rootfs"
	want := []string{"c.yaml:1: execution" + why, "c.yaml:4: pools.science" + why}
	got := problems(t, config.Source{File: "c.yaml"})
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	write(t, "c.yaml", strings.Replace(text, "gvisor", "auto", 1))
	got = problems(t, config.Source{File: "c.yaml"})
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems with sandbox_type auto (-want +got):\n%s", diff)
	}
	write(t, "c.yaml", strings.Replace(text, "gvisor", "microsandbox", 1))
	load(t, config.Source{File: "c.yaml"}) // microsandbox does not use the root file system
}

// TestCheckFiles checks that files of the section execution that do not exist are found before a worker starts.
func TestCheckFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "file", "x")
	if err := os.Chmod("file", 0o700); err != nil {
		t.Fatal(err)
	}
	for execution, want := range map[string][]string{
		"sandbox_type: gvisor, runsc: ./none, requirements: none.txt": {
			"execution.runsc: ./none: no such file or directory",
			"execution.requirements: none.txt: no such file or directory",
		},
		"sandbox_type: gvisor, runsc: none":       {"execution.runsc: none: executable file not found in $PATH"},
		"sandbox_type: microsandbox, msb: ./none": {"execution.msb: ./none: no such file or directory"},
		"sandbox_type: gvisor, rootfs: file":      {"execution.rootfs: file is not a directory"},
		"rootfs: file": {
			"warning: execution.rootfs: file is not a directory (needed if microsandbox does not work)",
		},
		"requirements: .":                                {"execution.requirements: . is a directory"},
		"sandbox_image: ./no":                            {"execution.sandbox_image: ./no: no such file or directory"},
		"sandbox_image: 'python:3.12', msb: ./none":      nil, // gVisor is chosen if msb does not work
		"sandbox_type: microsandbox, runsc: ./none":      nil,
		"runsc: ./file, requirements: file":              nil,
		"rootfs: ., runsc: ./file, sandbox_type: gvisor": nil,

		"requirements: no}, pools: {default: {}": nil, // the worker serves no other task pool
		"requirements: no}, pools: {a: {}": {
			"execution.requirements: no: no such file or directory",
		},
		"requirements: no}, pools: {a: {}}, worker: {pools: [a]":                  nil,
		"sandbox_type: gvisor, sandbox_image: ./no}, pools: {default: {image: x}": nil,
		"sandbox_type: gvisor, sandbox_image: ./no}, pools: {default: {}": {
			"execution.sandbox_image: ./no: no such file or directory",
		},
		"sandbox_image: ./no}, pools: {default: {image: x}": {
			"warning: execution.sandbox_image: ./no: no such file or directory (needed by microsandbox)",
		},
		"sandbox_type: microsandbox, sandbox_image: ./no}, pools: {default: {image: x}": {
			"execution.sandbox_image: ./no: no such file or directory",
		},
		"sandbox_type: microsandbox, sandbox_image: ./no}, pools: {default: {}": {
			"execution.sandbox_image: ./no: no such file or directory",
		},
	} {
		c := load(t, config.Source{File: write(t, "c.yaml", "{execution: {"+execution+"}}")})
		var got []string
		warnings, err := c.CheckFiles()
		if invalid, ok := errors.AsType[*config.InvalidError](err); ok {
			for _, p := range invalid.Problems {
				got = append(got, p.Key+": "+p.Message)
			}
		}
		for _, w := range warnings {
			got = append(got, "warning: "+strings.TrimPrefix(w, "c.yaml:1: "))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("CheckFiles with %s (-want +got):\n%s", execution, diff)
		}
	}
}

// TestCheckQueueFiles checks that files for the queue that cannot be read are found before a process connects, unless
// the settings name no queue.
func TestCheckQueueFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "file", "x")
	const files = "creds: none, tls_ca: ., tls_cert: file, tls_key: file"
	for nats, want := range map[string]error{
		files: nil, "url: nats://h, creds: file": nil, "url: nats://h": nil,
		"url: nats://h, " + files: &config.InvalidError{Problems: []config.Problem{
			{Where: "c.yaml:1", Key: "nats.creds", Message: "none: no such file or directory"},
			{Where: "c.yaml:1", Key: "nats.tls_ca", Message: ". is a directory"},
		}},
	} {
		c := load(t, config.Source{File: write(t, "c.yaml", "nats: {"+nats+"}")})
		if diff := cmp.Diff(want, c.CheckQueueFiles()); diff != "" {
			t.Errorf("CheckQueueFiles with %s (-want +got):\n%s", nats, diff)
		}
	}
}

// TestImageWithPackages checks that a root file system is refused beside an image, and that packages are refused beside
// an image if the sandbox is surely gVisor.
func TestImageWithPackages(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "c.yaml", `execution: {sandbox_type: gvisor, sandbox_image: "python:3.12-slim", rootfs: /srv, requirements: r.txt}
pools:
  science: {requirements: r.txt}
`)
	want := []string{
		"c.yaml:1: execution.rootfs: the root file system is that of execution.sandbox_image: remove one of the two",
		"c.yaml:1: execution.requirements: with gVisor, packages are part of the image: install them there, " +
			"or remove the image",
		"c.yaml:3: pools.science.requirements: with gVisor, packages are part of the image: install them there, " +
			"or remove the image",
	}
	got := problems(t, config.Source{File: "c.yaml"})
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	for _, env := range []string{"SANDBOX_TYPE=microsandbox", "SANDBOX_TYPE=auto"} {
		load(t, config.Source{Env: []string{env, "SANDBOX_IMAGE=python", "CODEFLEET_EXECUTION_REQUIREMENTS=r.txt"}})
	}
}
