package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"al.essio.dev/pkg/shellescape"
	"github.com/pelletier/go-toml/v2"
)

// The printed command and file are right for any path and address.
func TestClientConfigurationIsQuoted(t *testing.T) {
	local := mcpServer{
		command: "/opt/my tools/codefleet", args: []string{"--fleet", "it's.json", "mcp"},
		env: map[string]string{"CODEFLEET_URL": "https://h/?a=1&b"},
	}
	remote := mcpServer{url: "https://h/mcp?a=1&b='x'"}
	for _, tt := range []struct {
		got  []string
		want string
	}{
		{
			claudeCode(local), `claude mcp add codefleet --env 'CODEFLEET_URL=https://h/?a=1&b' -- ` +
				`'/opt/my tools/codefleet' --fleet 'it'"'"'s.json' mcp`,
		},
		{
			claudeCode(remote), `claude mcp add --transport http codefleet 'https://h/mcp?a=1&b='"'"'x'"'"'' ` +
				`--header 'Authorization: Bearer YOUR_TOKEN'`,
		},
	} {
		if got := shellescape.QuoteCommand(tt.got); got != tt.want {
			t.Errorf("command = %s, want %s", got, tt.want)
		}
	}
	var file struct {
		Servers map[string]struct {
			Command string            `toml:"command"`
			Args    []string          `toml:"args"`
			Env     map[string]string `toml:"env"`
		} `toml:"mcp_servers"`
	}
	if err := toml.Unmarshal([]byte("[mcp_servers]\n[mcp_servers.other]\n"+codex(local)), &file); err != nil {
		t.Fatal(err)
	}
	got := file.Servers["codefleet"]
	if got.Command != local.command || len(got.Args) != 3 || got.Args[1] != "it's.json" ||
		got.Env["CODEFLEET_URL"] != local.env["CODEFLEET_URL"] {
		t.Errorf("codex = %+v, want %+v", got, local)
	}
}

// A client does not inherit the variables that select the data directory, so its command names the fleet.
func TestClientFindsTheDataDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	for _, c := range []struct{ data, xdg, fleet, url, want string }{
		{"", "", "", "", "mcp"},
		{"data", dir + "/x", "", "", "mcp --fleet " + dir + "/data/fleet.json"},
		{"", dir + "/x", "", "", "mcp --fleet " + dir + "/x/codefleet/fleet.json"},
		{"data", dir + "/x", "f.json", "", "mcp --fleet " + dir + "/f.json"},
		{"data", dir + "/x", "", "https://h", "mcp"},
	} {
		t.Setenv("CODEFLEET_DATA", c.data)
		t.Setenv("XDG_DATA_HOME", c.xdg)
		t.Setenv("CODEFLEET_FLEET", c.fleet)
		t.Setenv("CODEFLEET_URL", c.url)
		var out, errs bytes.Buffer
		a := &app{stdout: &out, stderr: &errs, env: os.Environ(), exit: os.Exit}
		code := a.main(t.Context(), []string{"mcp", "config", "--client", "cursor"})
		var file struct {
			Servers map[string]struct{ Args []string } `json:"mcpServers"`
		}
		err := json.Unmarshal(out.Bytes(), &file)
		if got := strings.Join(file.Servers["codefleet"].Args, " "); code != 0 || err != nil || got != c.want {
			t.Errorf("arguments with %+v = %q, exit code %d, %v, %s, want %q", c, got, code, err, &errs, c.want)
		}
	}
}
