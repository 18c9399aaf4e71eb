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
	t, unlock := r.current(name)
	defer unlock()
	if t == nil {
		return nil
	}
	var out []Tool
	for _, id := range slices.Sorted(maps.Keys(t.defs)) {
		server, _, _ := strings.Cut(id, "/")
		out = append(out, Tool{Server: server, Definition: t.defs[id].Definition})
	}
	return out
}
