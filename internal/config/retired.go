package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// retired is a setting of earlier versions that has no meaning any more. Giving it warns, unless it asks
// for what is so anyway.
type retired struct {
	fate string
	same []string // values, in lower case, that ask for what is so anyway
}

func (r retired) fine(value string) bool { return slices.Contains(r.same, strings.ToLower(value)) }

const (
	fateMSB       = "no effect: boxes are started directly, there is no microsandbox server to talk to"
	fateNetwork   = "no effect: a box has no network; a task asks for hosts in network.allow, out of its tenant's tenants.<name>.network"
	fateStateOn   = "no effect: the workspace is always kept"
	fateStateSave = "no effect: a task that succeeds is always committed; one that should not be can fail"
	fateStateJSON = "no effect: the state file is JSON"
)

// gone are keys of the file.
var gone = map[string]retired{
	"execution.allow_network_access":   {fateNetwork, []string{"false", "no", "off"}},
	"execution.mount_directories":      {fate: "no effect: a directory of the host is not shared with programs; put files into the workspace (run --with FILE, or execution.workspace_dir)"},
	"execution.state.enabled":          {fateStateOn, []string{"true", "yes", "on"}},
	"execution.state.auto_save":        {fateStateSave, []string{"true", "yes", "on"}},
	"execution.state.state_format":     {fateStateJSON, []string{"json"}},
	"execution.state.workspace_dir":    {fate: "no effect: the state file is in the workspace, see execution.workspace_dir"},
	"optimizations.gpu_embeddings":     {fateGPU, []string{"false", "no", "off"}},
	"optimizations.file_content_cache": {fate: "no effect: files are always cached by content", same: []string{"true", "yes", "on"}},
	"guardrails.rate_limiting":         {fate: "no effect: rates are limited by tenant"},
	"guardrails.allowed_networks":      {fate: fateNetwork},
	"tool_mappings":                    {fate: "no effect: a task names its tools in tools.allow"},
	"workflows":                        {fate: "no effect: a workflow is part of a task, not of the fleet's settings"},
}

const fateGPU = "no effect: tools are chosen without a GPU"

// goneVars are variables.
var goneVars = map[string]retired{
	"MSB_SERVER_URL":              {fate: fateMSB},
	"MSB_API_KEY":                 {fate: fateMSB},
	"OPENSANDBOX_DOMAIN":          {fate: fateMSB},
	"ALLOW_NETWORK_ACCESS":        {fateNetwork, []string{"false", "0", "no", "off"}},
	"STATE_ENABLED":               {fateStateOn, []string{"true", "1", "yes", "on"}},
	"STATE_AUTO_SAVE":             {fateStateSave, []string{"true", "1", "yes", "on"}},
	"STATE_FORMAT":                {fateStateJSON, []string{"json"}},
	"OPTIMIZATION_GPU_EMBEDDINGS": {fateGPU, []string{"false", "0", "no", "off"}},
	"MCP_BENCHMARK_MODE":          {fate: "no effect: guardrails cannot be switched off by accident; see guardrails.enabled"},
	"MCP_MODE":                    {fate: "no effect: the examples find a fleet by CODEFLEET_URL or CODEFLEET_FLEET"},
}

func (f *file) retired(path string, n *yaml.Node) {
	empty := n.Kind != yaml.ScalarNode && len(n.Content) == 0
	if g := gone[path]; !empty && n.Tag != "!!null" && !g.fine(n.Value) {
		f.warn(f.where(n)+": "+path, g.fate)
	}
}
