package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// retired is a setting of earlier versions that no longer has an effect. Load warns of it or refuses it, unless its
// value describes what the fleet always does.
type retired struct {
	fate    string   // the message: what the setting does now, and what replaces it
	always  []string // lower-case values that describe what the fleet always does
	refused bool     // other values are an error, because they ask for something that the fleet does not do
}

func (r retired) harmless(value string) bool {
	return slices.Contains(r.always, strings.ToLower(value))
}

const (
	fateMSB     = "no effect: workers create boxes themselves, without a microsandbox server"
	fateNetwork = "refused if true: a box has no network; a task requests hosts (run --net HOST, network.allow; " +
		"the Python client does so for allow_network_access=True), within tenants.<name>.network"
	fateNetworks = "refused: list the hosts in tenants.<name>.network; a task requests them (run --net HOST)"
	fateMount    = "refused: programs cannot see directories of the host; put files into the workspace " +
		"(run --with FILE, or execution.workspace_dir; the Python client copies its mount_directories)"
	fateCache = "no effect: files are always cached by content"
	fateGPU   = "no effect: tools are selected without a GPU"
)

// retiredKeys lists retired keys of the file.
var retiredKeys = map[string]retired{
	"execution.allow_network_access":   {fate: fateNetwork, always: []string{"false", "no", "off"}, refused: true},
	"execution.mount_directories":      {fate: fateMount, refused: true},
	"execution.state.workspace_dir":    {fate: "no effect: the state document is in the workspace"},
	"optimizations.gpu_embeddings":     {fate: fateGPU, always: []string{"false", "no", "off"}},
	"optimizations.file_content_cache": {fate: fateCache, always: []string{"true", "yes", "on"}},
	"guardrails.rate_limiting":         {fate: "no effect: limits are set per tenant"},
	"guardrails.allowed_networks":      {fate: fateNetworks, refused: true},
	"mcp.authorization_servers":        {fate: fateOAuth},
	"tool_mappings":                    {fate: "no effect: a task lists its tools in tools.allow"},
	"workflows":                        {fate: "no effect: a workflow is a file of its own (docs/workflows.md)"},
}

const fateOAuth = "no effect: tokens are those of tenants.<name>.tokens; the fleet verifies no OAuth tokens"

// retiredVars lists retired variables.
var retiredVars = map[string]retired{
	"MSB_SERVER_URL":     {fate: fateMSB},
	"MSB_API_KEY":        {fate: fateMSB},
	"OPENSANDBOX_DOMAIN": {fate: fateMSB},
	"ALLOW_NETWORK_ACCESS": {
		fate: fateNetwork, always: []string{"false", "0", "no", "off"}, refused: true,
	},
	"OPTIMIZATION_GPU_EMBEDDINGS":         {fate: fateGPU, always: []string{"false", "0", "no", "off"}},
	"CODEFLEET_MCP_AUTHORIZATION_SERVERS": {fate: fateOAuth},

	"MCP_BENCHMARK_MODE": {fate: "no effect: see guardrails.enabled"},
	"MCP_MODE":           {fate: "no effect: clients find a fleet by CODEFLEET_URL or CODEFLEET_FLEET"},
}

// retired reports a retired key of the file, unless it has no value or a harmless one.
func (f *file) retired(path string, n *yaml.Node) {
	value := n
	if n.Kind == yaml.AliasNode {
		value = n.Alias
	}
	empty := value.Kind != yaml.ScalarNode && len(value.Content) == 0
	if g := retiredKeys[path]; !empty && value.Tag != "!!null" && !g.harmless(value.Value) {
		f.reportRetired(f.where(n), path, g)
	}
}

// reportRetired reports a retired setting: as an error if it is refused, otherwise as a warning. For an
// environment variable, key is empty and where is the variable's name.
func (l *loader) reportRetired(where, key string, g retired) {
	switch {
	case g.refused:
		l.problem(where, key, "%s", g.fate)
	case key == "":
		l.warn(where, g.fate)
	default:
		l.warn(where+": "+key, g.fate)
	}
}
