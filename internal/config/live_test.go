package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/config"
)

// TestLiveFolderAndFleet checks that a live folder is refused if programs could change in it what the fleet reads or
// runs as a whole, and which other paths of the fleet are private in it.
func TestLiveFolderAndFleet(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, d := range []string{"data/x", "tools/x", "work", "elsewhere"} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"work/server.py", "work/notes.txt", "token", "work/key"} {
		write(t, f, "s3cr3t")
	}
	for link, target := range map[string]string{"link": "data", "work/settings.yaml": "../elsewhere/s.yaml"} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	server := func(more string) string { return "mcp_servers: [{name: a, command: python3" + more + "}]\n" }
	for _, c := range []struct{ folder, settings, want string }{
		{"data", "", "is in data (data)"},
		{"data/x", "", "is in data (data)"},
		{"link/x/new", "", "is in data (data)"},
		{"tools/x", "", "(execution.servers_dir)"},
		{"token", "", "token is not a directory"},
		{".", server(""), "the MCP server a runs in it"},
		{"work", server(", cwd: work/sub"), "the MCP server a runs in it"},
		{"work", server(", args: [-u, work/server.py]"), "work/server.py of the MCP server a is in it"},
		{
			"work", server(", cwd: elsewhere, args: [../work/server.py]"),
			"../work/server.py of the MCP server a is in it",
		},
		{
			"work", "mcp_servers: [{name: a, command: ./work/server.py}]\n",
			"./work/server.py of the MCP server a is in it",
		},
	} {
		write(t, "c.yaml", "data: data\nexecution: {servers_dir: tools, workspace_dir: "+c.folder+"}\n"+c.settings)
		got := problems(t, config.Source{File: "c.yaml", DotEnv: os.DevNull, Env: []string{"HOME=" + dir}})
		if len(got) != 1 || !strings.Contains(got[0], c.want) {
			t.Errorf("%s, %s: %q, want one problem with %q", c.folder, c.settings, got, c.want)
		}
	}
	for _, c := range []struct {
		execution, settings string
		want                []string
	}{
		{"workspace_dir: work", server(", args: [/work, work/notes.txt]"), nil},
		{"workspace_dir: work", server(", enabled: false, cwd: work"), nil},
		{
			"workspace_dir: work", "http: {tls_cert: work/cert.pem, tls_key: key.pem}\n" +
				"llm: {openai_api_key_file: work/key}\nlogging: {file: work/log/fleet.log}\n" +
				"nats: {creds: work/n.creds}\npools: {p: {image: work/image}}\n",
			[]string{"cert.pem", "image", "key", "log/fleet.log", "n.creds"},
		},
		{
			"workspace_dir: ., servers_dir: tools, requirements: r.txt", "llm: {openai_api_key_file: token}\n",
			[]string{".env", "c.yaml", "config.yaml", "data", "r.txt", "skills", "token", "tools"},
		},
	} {
		write(t, "c.yaml", "data: data\nexecution: {"+c.execution+"}\n"+c.settings)
		loaded := load(t, config.Source{File: "c.yaml", Env: []string{"HOME=" + dir}})
		if diff := cmp.Diff(c.want, loaded.PrivateInLiveFolder()); diff != "" {
			t.Errorf("%s, %s: private paths (-want +got):\n%s", c.execution, c.settings, diff)
		}
	}
	write(t, "elsewhere/s.yaml", "data: data\nexecution: {workspace_dir: work}\n")
	loaded := load(t, config.Source{File: "work/settings.yaml", Env: []string{"HOME=" + dir}})
	if diff := cmp.Diff([]string{"settings.yaml"}, loaded.PrivateInLiveFolder()); diff != "" {
		t.Errorf("private paths with a link to the configuration (-want +got):\n%s", diff)
	}
}
