package registered

import (
	"maps"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/tools"
)

// Tool is one tool that a tenant's processes serve.
type Tool struct {
	Server     string
	Definition tools.Definition
}

// List returns the tools that the tenant's processes serve, sorted by server and name.
func (r *Registry) List(name string) []Tool {
	_, offered := r.current(name)
	var out []Tool
	for _, id := range slices.Sorted(maps.Keys(offered)) {
		server, _, _ := strings.Cut(id, "/")
		out = append(out, Tool{Server: server, Definition: offered[id].Definition})
	}
	return out
}
