package toolbox

import (
	"slices"

	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/pygen"
)

// AddAnnounced writes modules for the tools that a server announced while it ran, and returns the names of these tools,
// which wait for approval like all new tools. AddAnnounced changes nothing else: a server may list fewer tools on one
// connection than on another, and only `codefleet tools generate` adopts a changed definition. A server without modules
// gets none.
func AddAnnounced(dir, server string, defs []tools.Definition) (added []string, err error) {
	previous, err := pygen.Previous(dir, server)
	if err != nil || previous.Server == "" {
		return nil, err
	}
	all := slices.Clone(previous.Tools)
	for _, d := range defs {
		if !slices.ContainsFunc(all, func(known tools.Definition) bool { return known.Name == d.Name }) {
			all, added = append(all, d), append(added, d.Name)
		}
	}
	if added == nil {
		return nil, nil
	}
	p, err := pygen.Generate(pygen.Source{Server: server, About: previous.About, Tools: all, Previous: previous})
	if err != nil {
		return nil, err
	}
	for _, d := range previous.Tools { // their modules may have been edited
		delete(p.Files, previous.Names[d.Name]+".py")
	}
	_, err = pygen.Write(dir, p)
	return slices.DeleteFunc(added, func(name string) bool { return p.Definitions.Names[name] == "" }), err
}
