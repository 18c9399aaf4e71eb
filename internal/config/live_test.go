package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/config"
)

// TestLiveFolder checks that a live folder is refused if anything that the fleet reads or runs is in it or is reached
// through it, and if it is in a directory of the fleet.
func TestLiveFolder(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, d := range []string{
		"data/x", "tools/x", "work/v1", "work/venv/bin", "elsewhere", "bin", "xdg/config", "home/.config/pip",
	} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	secret := strings.Repeat("s3cr3t", 8) + "\n"
	for _, f := range []string{"work/server.py", "token", "work/key", "work/v1/c.yaml", "elsewhere/server.py"} {
		write(t, f, secret)
	}
	for link, target := range map[string]string{
		"link": "data", "work/out": "../elsewhere", "work/conf": "v1", "chain": "work/out", "up": "work/v1",
	} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	server := func(more string) string { return "mcp_servers: [{name: a, command: python3" + more + "}]\n" }
	const inData = ", whose files programs could change"
	for _, c := range []struct{ folder, settings, want string }{
		{"work", "", ""},
		{"new/folder", "", ""},
		{"work", server(", args: [-m, x, server.py, elsewhere/server.py, 'https://h/work/x', --n=1]"), ""},
		{"work", server(", enabled: false, cwd: work"), ""},
		{"token", "", "token is not a directory"},
		{"data", "", "it is in data (data)" + inData},
		{"data/x", "", "it is in data (data)" + inData},
		{"link/x/new", "", "it is in data (data)" + inData},
		{"tools/x", "", "it is in tools (execution.servers_dir)" + inData},
		{".", "", ". (the working directory, whose config.yaml and .env the next start reads) is in it"},
		{"..", "", "(the working directory"},
		{"home", "", "(the home directory) is in it"},
		{"bin", "", "(the variable PATH) is in it"},
		{"xdg", "", "the variable XDG_CONFIG_HOME leads into it"},
		{"home/.config/pip", "", "(what pip or a registry's client reads in the home directory) is in it"},
		{"work", server(", cwd: work/sub"), "work/sub (the cwd of the MCP server a) is in it"},
		// A program could replace the link.
		{"work", server(", cwd: chain"), "chain (the cwd of the MCP server a) is in it"},
		{"work", server(", args: [-u, work/server.py]"), "an argument of the MCP server a leads into it"},
		{"work", server(", args: [work/missing.py]"), "an argument of the MCP server a leads into it"},
		{"work", server(", args: [--directory, work, run]"), "an argument of the MCP server a leads into it"},
		{"work", server(", args: [--import=./work/x.mjs]"), "an argument of the MCP server a leads into it"},
		{"work", server(", args: [-c, 'exec work/x']"), "an argument of the MCP server a leads into it"},
		{"work", server(", cwd: elsewhere, args: [../work/server.py]"), "an argument of the MCP"},
		{"work", server(", cwd: up, args: [../../token]"), "up (the cwd of the MCP server a) is in it"},
		{"work", server(", args: [--work, /srv/x, '']"), ""},
		{"work", server(", args: [--mount, 'type=bind,source=DIR/work,target=/x']"), "an argument of the MCP server a"},
		{"work", server(", args: [-c, 'cd ./work&&python s.py']"), "an argument of the MCP server a"},
		{"work", server(", args: [-I./work/lib]"), "an argument of the MCP server a"},
		{"work", server(", env: {DSN: 'sqlite:///DIR/work/a.db?key=s3cr3t'}"), "the variable DSN of the MCP server a"},
		{"/", "", "it is the root of the file system"},
		{"work", server(", env: {PYTHONPATH: '/x:DIR/work'}"), "the variable PYTHONPATH of the MCP server a leads"},
		{"work", "mcp_servers: [{name: a, command: ./work/server.py}]\n", "the command of the MCP server a leads"},
		{"work", "http: {tls_cert: work/cert.pem, tls_key: key.pem}\n", "work/cert.pem (http.tls_cert) is in it"},
		{"work", "llm: {openai_api_key_file: work/key}\n", "work/key (the configuration, or"},
		{"work", "auth: {operators: [{name: o, file: work/key}]}\n", "work/key (the configuration, or"},
		{"work", "workspaces: {encryption: {key_file: work/key}}\n", "work/key (the configuration, or"},
		{"work", "workspaces: {encryption: {key_file: token, old_key_files: [work/key]}}\n", "work/key (the"},
		{"work", "privacy: {key_file: work/key}\n", "work/key (the configuration, or"},
		{"work", "tenants: {default: {tokens: [{name: t, file: work/key}]}}\n", "work/key (the configuration, or"},
		{"work", "logging: {file: work/log/fleet.log}\n", "work/log/fleet.log (logging.file) is in it"},
		{"work", "pools: {p: {image: work/image}}\n", "work/image (pools.p.image) is in it"},
	} {
		settings := strings.ReplaceAll(c.settings, "DIR", dir)
		write(t, "c.yaml", "data: data\nexecution: {servers_dir: tools, workspace_dir: "+c.folder+"}\n"+settings)
		t.Setenv("HOME", filepath.Join(dir, "home"))
		env := []string{
			"HOME=" + dir, "PATH=/usr/bin:" + dir + "/bin", "PIP_TIMEOUT=work",
			"XDG_CONFIG_HOME=" + dir + "/xdg/config",
		}
		loaded := load(t, config.Source{File: "c.yaml", Env: env})
		err := loaded.CheckLiveFolder()
		if err != nil && strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v, which has a secret", settings, err)
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s, %s: %v, want %q", c.folder, settings, err, c.want)
		}
	}
	// The directory of the configuration is a link in the folder.
	write(t, "work/v1/c.yaml", "data: data\nexecution: {workspace_dir: work}\n")
	for _, file := range []string{"work/conf/c.yaml", "up/c.yaml"} {
		loaded := load(t, config.Source{File: file})
		if err := loaded.CheckLiveFolder(); err == nil || !strings.Contains(err.Error(), file+" (the configuration") {
			t.Errorf("%s: %v, want it refused", file, err)
		}
	}
}

// TestReloadWithLiveFolder checks that settings are not reloaded with a secret in the live folder.
func TestReloadWithLiveFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("work", 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, "work/key", "s3cr3t")
	const settings = "data: data\nexecution: {workspace_dir: work}\n"
	write(t, "c.yaml", settings)
	reloader := config.NewReloader(load(t, config.Source{File: "c.yaml"}))
	// The folder is served until the restart.
	write(t, "c.yaml", "data: data\nllm: {openai_api_key_file: work/key}\n")
	if c, err := reloader.Changed(); err == nil || !strings.Contains(err.Error(), "work/key") {
		t.Errorf("Changed() = %v, %v, want an error about work/key", c, err)
	}
}
