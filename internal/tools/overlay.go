package tools

import (
	"crypto/sha256"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// Overlay holds the modules of the tools that one tenant's processes serve, which extend the fleet's
// catalogue for that tenant. It is immutable.
type Overlay struct {
	Files  map[string][]byte // below servers/, as <server>/<tool>.py
	Expose map[string]bool   // by server/tool: also a tool of the MCP bridge
	Broken []Broken          // rejected registrations
}

// Extend returns the catalogue of a tenant: the fleet's tools and those of the overlay. The overlay
// cannot replace a server of the fleet: its server of that name is listed as broken, and its files are
// missing in used, the files that the overlay adds.
func Extend(base *Listing, o *Overlay) (listing *Listing, used map[string][]byte, err error) {
	fleetServers := map[string]string{} // server by name and by directory
	for _, t := range base.Tools {
		fleetServers[t.Package()] = t.Server
		fleetServers[t.Server] = t.Server
	}
	broken := slices.Concat(base.Broken, o.Broken)
	used = map[string][]byte{}
	rejected := map[string]bool{}
	for name, data := range o.Files {
		dir, _, _ := strings.Cut(name, "/")
		if server, ok := fleetServers[dir]; !ok {
			used[name] = data
		} else if !rejected[dir] {
			rejected[dir] = true
			broken = append(broken, Broken{Path: dir, Message: ServerTaken(server)})
		}
	}
	added, err := readFiles(used)
	if err != nil {
		return nil, nil, err
	}
	for i := range added.Tools {
		added.Tools[i].State = Registered
		added.Tools[i].Exposed = o.Expose[added.Tools[i].ID()]
	}
	listing = NewListing(slices.Concat(base.Tools, added.Tools), slices.Concat(broken, added.Broken)...)
	listing.Warnings = slices.Concat(base.Warnings, added.Warnings)
	return listing, used, nil
}

// ServerTaken is the reason to reject a registration under the name of one of the fleet's servers.
func ServerTaken(server string) string {
	return fmt.Sprintf("the fleet has a server %q: register these tools under another name", server)
}

// readFiles reads a catalogue from files in memory, by their paths below servers/.
func readFiles(files map[string][]byte) (*Listing, error) {
	c := OpenCatalogue("", Options{})
	var broken []Broken
	for name, data := range files {
		dir, file := path.Split(name)
		dir = strings.TrimSuffix(dir, "/")
		switch {
		case name == ApprovalsFile:
			c.approvals = cachedFile{data: data}
			continue
		case dir == "", strings.HasPrefix(dir, "_"), strings.HasPrefix(file, "."),
			file != IndexFile && !strings.HasSuffix(file, ".py"):
			continue
		case !isIdentifier(dir):
			broken = append(broken, Broken{Path: text.Printable(dir), Message: errServerName})
			continue
		}
		if c.servers[dir] == nil {
			c.servers[dir] = &serverFiles{files: map[string]*cachedFile{}}
		}
		f := &cachedFile{data: data, sum: sha256.Sum256(data)}
		f.interpret(file)
		c.servers[dir].files[file] = f
	}
	listing, err := c.buildListing(broken)
	if err != nil {
		return nil, fmt.Errorf("read the files of a catalogue: %w", err)
	}
	return listing, nil
}
