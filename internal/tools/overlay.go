package tools

import (
	"crypto/sha256"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// Overlay is what one tenant has beside the fleet's catalogue: the modules of tools that its own
// processes serve. It is not changed after it was made.
type Overlay struct {
	Files  map[string][]byte // below servers/, as <server>/<tool>.py
	Expose map[string]bool   // by server/tool: the MCP bridge has it as a tool
	Broken []Broken          // what was offered and is no tool
}

// Extend returns the catalogue of a tenant: the fleet's, and what the overlay adds. A server that the
// fleet has is the fleet's: the tenant's of that name is listed as broken. used are the files of the
// others.
func Extend(base *Listing, o *Overlay) (listing *Listing, used map[string][]byte, err error) {
	taken := map[string]string{}
	for _, t := range base.Tools {
		taken[t.Package()] = t.Server
		taken[t.Server] = t.Server
	}
	broken := slices.Concat(base.Broken, o.Broken)
	used = map[string][]byte{}
	refused := map[string]bool{}
	for name, data := range o.Files {
		dir, _, _ := strings.Cut(name, "/")
		if server, ok := taken[dir]; !ok {
			used[name] = data
		} else if !refused[dir] {
			refused[dir] = true
			broken = append(broken, Broken{Path: dir, Message: fmt.Sprintf("the fleet has a server %q: register these tools under another name", server)})
		}
	}
	own, err := readFiles(used)
	if err != nil {
		return nil, nil, err
	}
	for i := range own.Tools {
		own.Tools[i].State = Registered
		own.Tools[i].Exposed = o.Expose[own.Tools[i].ID()]
	}
	listing = NewListing(slices.Concat(base.Tools, own.Tools), slices.Concat(broken, own.Broken)...)
	listing.Warnings = slices.Concat(base.Warnings, own.Warnings)
	return listing, used, nil
}

// ReadFiles reads a catalogue out of files in memory, by their paths below servers/.
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
		case dir == "", strings.HasPrefix(dir, "_"), strings.HasPrefix(file, "."), file != IndexFile && !strings.HasSuffix(file, ".py"):
			continue
		case !isIdentifier(dir):
			broken = append(broken, Broken{Path: text.Printable(dir), Message: "a server's directory is a Python name"})
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
