package tools

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// Overlay holds what one tenant's catalogue has in addition to the fleet's: the modules of the tools that the tenant's
// processes serve, and skills. It is immutable.
type Overlay struct {
	Files  map[string][]byte // by path relative to servers/: <server>/<tool>.py and <server>/definitions.json
	Expose map[string]bool   // by tool ID; the MCP bridge offers these tools, too
	Broken []Broken          // rejected registrations

	Skills     []Skill           // sorted by name
	SkillFiles map[string][]byte // by path relative to skills/: <module>/__init__.py
}

// Skill is a skill that programs can import. Package skills provides its files, which are in Overlay.SkillFiles.
type Skill struct {
	Name        string `json:"name"`   // double-number
	Module      string `json:"module"` // double_number, below skills
	Description string `json:"description"`
	Signature   string `json:"signature,omitempty"` // run(x: float) -> float; empty without a program
	Version     int    `json:"version,omitempty"`   // 0 for a skill of the fleet
	Scope       string `json:"scope"`               // tenant or fleet
	Runnable    bool   `json:"runnable,omitempty"`  // it has a program
}

// Import returns the Python statement that imports the skill's program.
func (s Skill) Import() string { return "from skills." + s.Module + " import run" }

// skillList is the path of the file in an overlay's archive that lists the overlay's skills.
const skillList = skillsDir + "index.json"

// unarchive returns the overlay whose archive contains files, which are keyed by path relative to the version's
// directory. Expose and Broken stay empty, because archives do not contain them.
func unarchive(files map[string][]byte) (*Overlay, error) {
	o := &Overlay{Files: cutPrefix(serversDir, files)}
	list, ok := files[skillList]
	if !ok {
		return o, nil
	}
	if err := json.Unmarshal(list, &o.Skills); err != nil {
		return nil, fmt.Errorf("read list of skills: %w", err)
	}
	o.SkillFiles = cutPrefix(skillsDir, files)
	delete(o.SkillFiles, strings.TrimPrefix(skillList, skillsDir))
	return o, nil
}

// Extend returns a tenant's catalogue, which has the tools of the fleet and of the overlay, and the files that the
// overlay adds, keyed by path relative to the version's directory. An overlay cannot replace a server of the fleet: a
// server with the same name is listed as broken, and its files are not among the returned ones.
func Extend(base *Listing, o *Overlay) (listing *Listing, used map[string][]byte, err error) {
	fleetServers := map[string]string{} // directory or server name → server name
	for _, dir := range base.packages {
		fleetServers[dir] = dir
	}
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
	added, err := listFiles(used)
	if err != nil {
		return nil, nil, err
	}
	for i := range added.Tools {
		added.Tools[i].State = Registered
		added.Tools[i].Exposed = o.Expose[added.Tools[i].ID()]
	}
	listing = NewListing(slices.Concat(base.Tools, added.Tools), slices.Concat(broken, added.Broken)...)
	listing.Warnings = slices.Concat(base.Warnings, added.Warnings)
	listing.Skills = o.Skills
	used = addPrefix(serversDir, used)
	maps.Copy(used, addPrefix(skillsDir, o.SkillFiles))
	if len(o.Skills) > 0 {
		used[skillList], err = json.Marshal(o.Skills)
	}
	return listing, used, err
}

// ServerTaken returns the reason for rejecting a registration under the name of a server of the fleet.
func ServerTaken(server string) string {
	return fmt.Sprintf("the fleet has a server %q: register these tools under another name", server)
}

// packed is the Checker of files that Pack has packed. It accepts all: Pack leaves out those with invalid syntax, which
// it may have checked with Python.
func packed(context.Context, map[string][]byte) (map[string]Broken, error) { return nil, nil }

// listFiles returns the listing of a catalogue whose files are in memory, keyed by path relative to servers/.
func listFiles(files map[string][]byte) (listing *Listing, err error) {
	c := OpenCatalogue("", Options{Check: packed})
	var broken []Broken
	for name, data := range files {
		dir, file := path.Split(name)
		dir = strings.TrimSuffix(dir, "/")
		switch {
		case name == ApprovalsFile:
			c.approvals = cachedFile{data: data}
			continue
		case dir == "", strings.HasPrefix(dir, "_"), strings.HasPrefix(file, "."),
			file != DefinitionsFile && !strings.HasSuffix(file, ".py"):
			continue
		case !isName(dir):
			broken = append(broken, Broken{Path: text.Printable(dir), Message: invalidServerName})
			continue
		}
		if c.servers[dir] == nil {
			c.servers[dir] = &serverFiles{files: map[string]*cachedFile{}}
		}
		f := &cachedFile{data: data, sum: sha256.Sum256(data)}
		f.interpret(file)
		c.servers[dir].files[file] = f
	}
	if err = c.check(context.Background()); err == nil {
		listing, err = c.buildListing(broken)
	}
	if err != nil {
		return nil, fmt.Errorf("read catalogue files: %w", err)
	}
	return listing, nil
}
