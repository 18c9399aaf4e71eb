package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
)

// mcpClient is how a client is configured: with a command to type, or an entry of a file.
type mcpClient struct {
	name, file string
	entry      func(s mcpServer) any // for JSON
	text       func(s mcpServer) string
}

// mcpServer is how a client reaches the fleet: by a command of this host, or an address.
type mcpServer struct {
	command string
	args    []string
	env     map[string]string
	url     string // not empty: over HTTP
}

// tokenPlace is the placeholder for a token; tokens are never printed.
const tokenPlace = "YOUR_TOKEN"

func (s mcpServer) headers() map[string]string {
	return map[string]string{"Authorization": "Bearer " + tokenPlace}
}

// standard is the entry that most clients share. urlKey is the key of a remote server's address; local
// and remote are further pairs that the client needs, for a local and a remote server.
func standard(local, remote map[string]any, urlKey string) func(mcpServer) any {
	return func(s mcpServer) any {
		e := map[string]any{}
		if s.url != "" {
			maps.Copy(e, remote)
			e[urlKey], e["headers"] = s.url, s.headers()
			return e
		}
		maps.Copy(e, local)
		e["command"], e["args"] = s.command, s.args
		if len(s.env) > 0 {
			e["env"] = s.env
		}
		return e
	}
}

// under nests an entry below a key and our server's name.
func under(key string, entry func(mcpServer) any) func(mcpServer) any {
	return func(s mcpServer) any { return map[string]any{key: map[string]any{"codefleet": entry(s)}} }
}

func mcpClients() []mcpClient {
	return []mcpClient{
		{name: "claude-code", text: claudeCode},
		{name: "claude-desktop", file: "claude_desktop_config.json", entry: under("mcpServers",
			standard(nil, nil, "url"))},
		{name: "cline", file: "cline_mcp_settings.json", entry: under("mcpServers",
			standard(nil, map[string]any{"type": "streamableHttp"}, "url"))},
		{name: "codex", file: "~/.codex/config.toml", text: codex},
		{name: "cursor", file: "~/.cursor/mcp.json", entry: under("mcpServers", standard(nil, nil, "url"))},
		{
			name: "gemini-cli", file: "~/.gemini/settings.json",
			entry: under("mcpServers", standard(nil, nil, "httpUrl")),
		},
		{name: "inspector", text: func(s mcpServer) string {
			if s.url != "" {
				return "npx @modelcontextprotocol/inspector --transport http --server-url " + s.url
			}
			return "npx @modelcontextprotocol/inspector " + s.shell()
		}},
		{name: "vscode", file: ".vscode/mcp.json", entry: under("servers",
			standard(map[string]any{"type": "stdio"}, map[string]any{"type": "http"}, "url"))},
		{name: "windsurf", file: "~/.codeium/windsurf/mcp_config.json", entry: under("mcpServers",
			standard(nil, nil, "serverUrl"))},
		{name: "zed", file: "~/.config/zed/settings.json", entry: under("context_servers",
			standard(map[string]any{"source": "custom"}, map[string]any{"source": "custom"}, "url"))},
	}
}

func (s mcpServer) shell() string { return strings.Join(append([]string{s.command}, s.args...), " ") }

// each formats the environment variables, in order.
func (s mcpServer) each(format string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(s.env)) {
		fmt.Fprintf(&b, format, k, s.env[k])
	}
	return b.String()
}

func claudeCode(s mcpServer) string {
	if s.url != "" {
		return fmt.Sprintf("claude mcp add --transport http codefleet %s --header %q", s.url,
			"Authorization: Bearer "+tokenPlace)
	}
	return "claude mcp add codefleet" + s.each(" --env %s=%s") + " -- " + s.shell()
}

func codex(s mcpServer) string {
	if s.url != "" {
		return fmt.Sprintf("[mcp_servers.codefleet]\nurl = %q\nbearer_token_env_var = \"CODEFLEET_TOKEN\"", s.url)
	}
	args, _ := json.Marshal(s.args) // strings
	return fmt.Sprintf("[mcp_servers.codefleet]\ncommand = %q\nargs = %s", s.command, args) + s.each("\nenv.%s = %q")
}

func (a *app) mcpConfigCommand() *cobra.Command {
	var name string
	var http bool
	var names []string
	for _, c := range mcpClients() {
		names = append(names, c.name)
	}
	c := &cobra.Command{
		Use:   "config --client NAME",
		Short: "Print the configuration for an MCP client: " + strings.Join(names, ", "),
		Long: "Print the configuration for an MCP client, as an entry of its file or as a command.\n" +
			"Tokens are not printed: where one is needed, replace " + tokenPlace + " with that of your tenant.",
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			for _, m := range mcpClients() {
				if m.name == name {
					s, err := a.mcpServer(http)
					if err != nil {
						return err
					}
					return a.showMCP(m, s)
				}
			}
			if name == "" {
				return usage("--client is missing: want one of %s", strings.Join(names, ", "))
			}
			return usage("--client %s: want one of %s", name, strings.Join(names, ", "))
		},
	}
	c.Flags().StringVar(&name, "client", "", "`NAME` of the client: "+strings.Join(names, ", "))
	c.Flags().BoolVar(&http, "url", false, "for the fleet's HTTP address instead of a command")
	_ = c.RegisterFlagCompletionFunc("client", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// mcpServer returns how a client reaches the fleet that this command line would use.
func (a *app) mcpServer(http bool) (mcpServer, error) {
	self, err := os.Executable()
	if err != nil {
		self = "codefleet"
	}
	s := mcpServer{command: self, args: []string{"mcp"}}
	if http {
		found, err := client.Locate(a.fleet)
		if err != nil {
			return s, noFleet(err)
		}
		s.url = strings.TrimSuffix(found.URL, "/") + "/mcp"
		return s, nil
	}
	file := a.fleet
	if file == "" {
		file = a.lookup("CODEFLEET_FLEET")
	}
	if file != "" {
		if file, err = filepath.Abs(file); err != nil {
			return s, err
		}
		s.args = append(s.args, "--fleet", file)
	} else if u := a.lookup("CODEFLEET_URL"); u != "" {
		s.env = map[string]string{"CODEFLEET_URL": u}
		if a.lookup("CODEFLEET_TOKEN") != "" {
			s.env["CODEFLEET_TOKEN"] = tokenPlace
		}
	}
	return s, nil
}

// showMCP prints the client's entry, and the name of its file to standard error.
func (a *app) showMCP(m mcpClient, s mcpServer) error {
	if m.file != "" {
		fmt.Fprintf(a.stderr, "for %s:\n", m.file)
	}
	if m.text != nil {
		_, err := fmt.Fprintln(a.stdout, m.text(s))
		return err
	}
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(m.entry(s))
}
