package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"al.essio.dev/pkg/shellescape"
	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/text"
)

// mcpClient describes how to configure an MCP client. One of json, text and command is set.
type mcpClient struct {
	name    string
	file    string                     // the client's configuration file; empty for a command
	json    func(mcpServer) any        // what to add to a JSON file
	text    func(s mcpServer) string   // what to add to a file that is not JSON
	command func(s mcpServer) []string // the command that configures the client, or that starts it
}

// mcpText is what `mcp config -o json` prints for clients whose configuration is not JSON.
type mcpText struct {
	Command []string `json:"command,omitempty"` // to execute
	File    string   `json:"file,omitempty"`    // to add Text to
	Text    string   `json:"text,omitempty"`
}

// mcpServer describes how a client reaches the fleet: with a command of this host, or at a URL.
type mcpServer struct {
	command string
	args    []string
	env     map[string]string
	url     string // empty if the client starts command
}

// tokenPlaceholder stands for a token. Tokens are never printed.
const tokenPlaceholder = "YOUR_TOKEN"

// serverJSON describes the JSON format that most clients share: {key: {"codefleet": {…}}}.
type serverJSON struct {
	key    string
	urlKey string         // the key of a server's URL
	local  map[string]any // additional fields of a server that the client starts
	remote map[string]any // additional fields of a server with a URL
}

func (j serverJSON) render(s mcpServer) any {
	fields := map[string]any{}
	if s.url != "" {
		maps.Copy(fields, j.remote)
		fields[j.urlKey] = s.url
		fields["headers"] = map[string]string{"Authorization": "Bearer " + tokenPlaceholder}
	} else {
		maps.Copy(fields, j.local)
		fields["command"], fields["args"] = s.command, s.args
		if len(s.env) > 0 {
			fields["env"] = s.env
		}
	}
	return map[string]any{j.key: map[string]any{"codefleet": fields}}
}

// asCommand returns s as a command that connects to the URL, for clients whose file can list only commands.
func (s mcpServer) asCommand() mcpServer {
	if s.url == "" {
		return s
	}
	s.env = map[string]string{
		"CODEFLEET_URL": strings.TrimSuffix(s.url, bridge.PathMCP), "CODEFLEET_TOKEN": tokenPlaceholder,
	}
	s.url = ""
	return s
}

func mcpClients() []mcpClient {
	standard := serverJSON{key: "mcpServers", urlKey: "url"}
	cline, gemini, windsurf := standard, standard, standard
	cline.remote = map[string]any{"type": "streamableHttp"}
	gemini.urlKey, windsurf.urlKey = "httpUrl", "serverUrl"
	vscode := serverJSON{"servers", "url", map[string]any{"type": "stdio"}, map[string]any{"type": "http"}}
	zed := serverJSON{"context_servers", "url", map[string]any{"source": "custom"}, map[string]any{"source": "custom"}}
	return []mcpClient{
		{name: "claude-code", command: claudeCode},
		{name: "claude-desktop", file: "claude_desktop_config.json", json: func(s mcpServer) any {
			return standard.render(s.asCommand())
		}},
		{name: "cline", file: "cline_mcp_settings.json", json: cline.render},
		{name: "codex", file: "~/.codex/config.toml", text: codex},
		{name: "cursor", file: "~/.cursor/mcp.json", json: standard.render},
		{name: "gemini-cli", file: "~/.gemini/settings.json", json: gemini.render},
		{name: "inspector", command: func(s mcpServer) []string {
			args := []string{"npx", "@modelcontextprotocol/inspector"}
			if s.url != "" {
				return append(args, "--transport", "http", "--server-url", s.url)
			}
			return append(args, s.line()...)
		}},
		{name: "vscode", file: ".vscode/mcp.json", json: vscode.render},
		{name: "windsurf", file: "~/.codeium/windsurf/mcp_config.json", json: windsurf.render},
		{name: "zed", file: "~/.config/zed/settings.json", json: zed.render},
	}
}

// line returns the command with its arguments.
func (s mcpServer) line() []string { return append([]string{s.command}, s.args...) }

func claudeCode(s mcpServer) []string {
	if s.url != "" {
		return []string{
			"claude", "mcp", "add", "--transport", "http", "codefleet", s.url,
			"--header", "Authorization: Bearer " + tokenPlaceholder,
		}
	}
	args := []string{"claude", "mcp", "add", "codefleet"}
	for _, k := range slices.Sorted(maps.Keys(s.env)) {
		args = append(args, "--env", k+"="+s.env[k])
	}
	return append(append(args, "--"), s.line()...)
}

func codex(s mcpServer) string {
	type server struct {
		URL     string            `toml:"url,omitempty"`
		Token   string            `toml:"bearer_token_env_var,omitempty"`
		Command string            `toml:"command,omitempty"`
		Args    []string          `toml:"args,omitempty"`
		Env     map[string]string `toml:"env,inline,omitempty"`
	}
	file := struct {
		Servers map[string]server `toml:"mcp_servers"`
	}{}
	if s.url != "" {
		file.Servers = map[string]server{"codefleet": {URL: s.url, Token: "CODEFLEET_TOKEN"}}
	} else {
		file.Servers = map[string]server{"codefleet": {Command: s.command, Args: s.args, Env: s.env}}
	}
	b, _ := toml.Marshal(file) // encoding strings does not fail
	// The file may already have the table [mcp_servers], and must not have it twice.
	return strings.TrimSpace(strings.TrimPrefix(string(b), "[mcp_servers]\n"))
}

func (a *app) mcpConfigCommand() *cobra.Command {
	var name string
	var http bool
	names := mapSlice(mcpClients(), func(c mcpClient) string { return c.name })
	c := &cobra.Command{
		Use:   "config --client NAME",
		Short: "Print the configuration for an MCP client: " + strings.Join(names, ", "),
		Long: "Print what to add to an MCP client's configuration file, or the command that configures it.\n" +
			"Tokens are not printed: replace " + tokenPlaceholder + " with a token of your tenant.",
		RunE: func(*cobra.Command, []string) error {
			i := slices.Index(names, name)
			if i < 0 {
				return usage("--client %q: want one of %s", name, strings.Join(names, ", "))
			}
			s, err := a.mcpServer(http)
			if err != nil {
				return err
			}
			address := cmp.Or(strings.TrimSuffix(s.url, bridge.PathMCP), s.env["CODEFLEET_URL"])
			u, err := url.Parse(address)
			if err != nil || u.User != nil || u.Opaque != "" ||
				http && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
				return usage("fleet address %q: want http:// or https:// and a host, without a user",
					text.HideCredentials(address)).
					try("use the fleet's HTTP address, with the token in CODEFLEET_TOKEN")
			}
			return a.showMCP(mcpClients()[i], s)
		},
	}
	c.Flags().StringVar(&name, "client", "", "`NAME` of the client: "+strings.Join(names, ", "))
	c.Flags().BoolVar(&http, "url", false, "use the fleet's HTTP address instead of a command")
	completeFlag(c, "client", names...)
	return c
}

// mcpServer returns how a client reaches the fleet that the flags and the environment name.
func (a *app) mcpServer(http bool) (mcpServer, error) {
	self, err := os.Executable()
	if err != nil {
		self = "codefleet"
	}
	s := mcpServer{command: self, args: []string{"mcp"}}
	if http {
		options, err := a.locate()
		if err != nil {
			return s, noFleet(err)
		}
		s.url = strings.TrimSuffix(options.URL, "/") + bridge.PathMCP
		return s, nil
	}
	file, address := cmp.Or(a.fleet, a.lookup("CODEFLEET_FLEET")), a.lookup("CODEFLEET_URL")
	if file == "" && address == "" && (a.lookup("CODEFLEET_DATA") != "" || a.lookup("XDG_DATA_HOME") != "") {
		options, _ := a.locate() // the fleet may not have started yet
		file = options.Located.Path
	}
	switch {
	case file != "":
		if strings.Contains(file, "://") {
			return s, usage("fleet file %q is an address; want the path of a file", text.HideCredentials(file)).
				try("set CODEFLEET_URL and CODEFLEET_TOKEN")
		}
		if file, err = filepath.Abs(file); err != nil {
			return s, err
		}
		s.args = append(s.args, "--fleet", file)
	case address != "":
		s.env = map[string]string{"CODEFLEET_URL": address}
		if a.lookup("CODEFLEET_TOKEN") != "" {
			s.env["CODEFLEET_TOKEN"] = tokenPlaceholder
		}
	}
	return s, nil
}

// showMCP prints the configuration, and the name of the client's file on standard error.
func (a *app) showMCP(m mcpClient, s mcpServer) error {
	if m.file != "" {
		fmt.Fprintf(a.stderr, "for %s:\n", m.file)
	}
	switch {
	case m.command != nil:
		command := m.command(s)
		return a.print(mcpText{Command: command}, func(w io.Writer) {
			fmt.Fprintln(w, shellescape.QuoteCommand(command))
		})
	case m.text != nil:
		return a.print(mcpText{File: m.file, Text: m.text(s)}, func(w io.Writer) { fmt.Fprintln(w, m.text(s)) })
	}
	return a.encodeJSON(m.json(s), true)
}
