package config

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/servers"
)

// warnUnknown warns of directories that do not exist, and of names of task pools, servers and tools that are probably
// misspelt. The settings do not name all servers: other processes register more while the fleet runs.
func (l *loader) warnUnknown() {
	l.warnDirectories()
	c := l.cfg
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		l.warnPools("tenants."+name+".pools", c.Tenants[name].Pools)
	}
	lists := map[string][]string{
		"tools.policy": slices.Sorted(maps.Keys(c.Tools.Policy)), "privacy.restore": c.Privacy.Restore,
	}
	for i, r := range c.Guardrails.Rules {
		lists[fmt.Sprintf("guardrails.rules[%d].tools", i)] = r.Tools
	}
	for name, t := range c.Tenants {
		key := "tenants." + name
		lists[key+".tool_rates"], lists[key+".tools"] = slices.Sorted(maps.Keys(t.ToolRates)), t.Tools
		lists[key+".privacy.restore"] = t.Privacy.Restore
	}
	known := c.knownTools()
	for _, key := range slices.Sorted(maps.Keys(lists)) {
		l.warnTools(key, known, lists[key])
	}
}

func (l *loader) warnDirectories() {
	e := l.cfg.Execution
	for _, d := range []struct{ key, dir, without string }{
		{"execution.servers_dir", e.ServersDir, "create it; if it is empty, the built-in tools are installed in it"},
		{"execution.skills_dir", e.SkillsDir, "tenants share no skills"},
	} {
		from := l.cfg.Origin(d.key)
		if from.Layer == LayerDefault || d.dir == "" {
			continue
		}
		entries, err := os.ReadDir(d.dir)
		switch {
		case !exists(d.dir):
			l.warn(settingOf(from, d.key), d.dir+" does not exist: "+d.without)
		case d.key == "execution.servers_dir" && err == nil && len(entries) == 0:
			l.warn(settingOf(from, d.key), d.dir+
				" is empty: the built-in tools are installed in it; for a fleet without them, put a file into it first")
		}
	}
}

// warnPools warns of task pools that the settings do not name, if they name a similar one. Workers with other settings
// may serve a task pool.
func (l *loader) warnPools(key string, pools []string) {
	c := l.cfg
	known := append(c.WorkerPools(), slices.Sorted(maps.Keys(c.Pools))...)
	for _, name := range pools {
		similar := didYouMean(name, known)
		if len(c.Pools) > 0 && name != DefaultPool && !slices.Contains(known, name) && similar != "" {
			l.warn(settingOf(c.Origin(key), key), name+" is in neither pools nor worker.pools"+similar)
		}
	}
}

// warnTools warns of servers and tools that do not exist, if the name of one that exists is similar.
func (l *loader) warnTools(key string, known map[string][]string, patterns []string) {
	for _, pattern := range patterns {
		server, tool, _ := strings.Cut(pattern, "/")
		what, name, candidates := "server "+server, moduleName(server), slices.Collect(maps.Keys(known))
		isServer := func(module string) bool { return sameModule(name, module) }
		if i := slices.IndexFunc(candidates, isServer); i >= 0 {
			tools := known[candidates[i]]
			what, name, candidates = "tool "+tool+" of the server "+server, moduleName(tool), tools
		}
		similar := text.Nearest(name, candidates, max(1, len(name)/4))
		isKnown := slices.ContainsFunc(candidates, func(module string) bool { return sameModule(name, module) })
		if strings.Contains(name, "*") || similar == "" || isKnown {
			continue
		}
		l.warn(settingOf(l.cfg.Origin(key), key), pattern+": no "+what+" is known; did you mean "+similar+"?")
	}
}

// knownTools returns the tools of each server of the settings and of the servers directory, by the names that programs
// import. The default directory has the built-in servers, and so has one that is missing or empty: the fleet writes
// them there. The tools of MCP servers are unknown.
func (c *Config) knownTools() map[string][]string {
	known, dir := map[string][]string{}, cmp.Or(c.Execution.ServersDir, filepath.Join(c.Data, "servers"))
	add := func(modules fs.FS) {
		files, _ := fs.Glob(modules, "*/*.py") // the pattern is valid
		for _, file := range files {
			server := path.Dir(file)
			known[server] = append(known[server], strings.TrimSuffix(path.Base(file), ".py"))
		}
	}
	add(os.DirFS(dir))
	if len(known) == 0 || c.Execution.ServersDir == "" {
		add(servers.FS) // built-in
	}
	for _, s := range c.MCPServers {
		known[moduleName(s.Name)] = nil
	}
	return known
}

// moduleName returns the name under which programs import a server or tool with a simple name.
func moduleName(name string) string { return strings.ReplaceAll(strings.ToLower(name), "-", "_") }

// sameModule reports whether a name may mean a module. The module's name may differ in case, and have an n before a
// leading digit or an underscore after a reserved word of Python.
func sameModule(name, module string) bool {
	return strings.EqualFold(name, module) || strings.EqualFold(name+"_", module) || strings.EqualFold("n"+name, module)
}
