package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/joho/godotenv"
)

// clientVars are variables that are not settings: commands, clients and examples read them.
var clientVars = []string{"CODEFLEET_CONFIG", "CODEFLEET_FLEET", "CODEFLEET_URL", "CODEFLEET_TOKEN", "CODEFLEET_BIN"}

// serviceLink matches the ends of the variables that Kubernetes sets for a service named codefleet or codefleet-…,
// except NAME_PORT (see isServiceLink).
var serviceLink = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|` +
	`PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// isServiceLink reports whether Kubernetes has set a variable for a service. NAME_PORT has a URL, such as
// tcp://10.0.0.1:80.
func isServiceLink(name, value string) bool {
	return serviceLink.MatchString(name) || strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

// testVar matches the variables of this project's tests.
var testVar = regexp.MustCompile(`^CODEFLEET_((TEST|REQUIRE)_|(LONG_TESTS|SELECTION_DATA|EMBEDDED)$)`)

func parseEnv(env []string) map[string]string {
	m := make(map[string]string, len(env))
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		m[name] = value
	}
	return m
}

func (l *loader) readDotEnv(path string) {
	if path == "" {
		if path = ".env"; !exists(path) {
			return
		}
	}
	data, err := l.read(path)
	if err != nil {
		l.problem("", "", "%v", err)
		return
	}
	if l.dotenv, err = godotenv.UnmarshalBytes(data); err != nil {
		// The message does not include err, because err quotes the file, which has secrets.
		l.problem(fmt.Sprintf("%s:%d", path, badLine(string(data))), "",
			"want NAME=value or a comment, with all quotes closed")
	}
}

// badLine returns the number, from 1, of the first line that cannot be parsed, also together with the lines after it:
// a quoted value may have several lines.
func badLine(text string) int {
	n, parsed, begin, end := 0, 0, 0, 0
	for line := range strings.Lines(text) {
		n, end = n+1, end+len(line)
		if _, err := godotenv.Unmarshal(text[begin:end]); err == nil {
			parsed, begin = n, end
		}
	}
	return parsed + 1
}

// apply sets the settings and adds the MCP servers that vars name, and reports retired and unknown variables. An empty
// variable sets nothing.
func (l *loader) apply(layer Layer, vars map[string]string) {
	for _, k := range l.keys {
		l.applyKey(layer, vars, k)
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		g, isRetired := retiredVars[name]
		if isRetired && vars[name] != "" && !g.harmless(vars[name]) {
			l.reportRetired(name, "", g)
		}
		l.mcpServerVar(layer, name, vars[name])
		if !isRetired {
			l.unknownVar(layer, name, vars[name])
		}
	}
}

// applyKey sets one setting. Of several variables for it, the first one that is set counts, and those with other values
// are reported.
func (l *loader) applyKey(layer Layer, vars map[string]string, k key) {
	used, value := "", ""
	for _, name := range k.env {
		file := name + "_FILE"
		switch {
		case k.isSecret() && vars[name] != "" && vars[file] != "":
			l.problem(name, k.path, "both %s and %s are set", name, file)
		case used != "" && vars[name] != "" && vars[name] != value:
			l.warn(name, fmt.Sprintf("differs from %s, which is used", used))
		case used != "":
		case vars[name] != "":
			used, value = name, vars[name]
			l.set(k, value, Origin{layer, name})
		case k.isSecret() && vars[file] != "":
			used, value = file, l.fromFile(k, vars[file], Origin{layer, file})
		}
	}
}

// unknownVar reports an unknown variable that begins with CODEFLEET_.
func (l *loader) unknownVar(layer Layer, name, value string) {
	if !strings.HasPrefix(name, envPrefix) || isServiceLink(name, value) || testVar.MatchString(name) {
		return
	}
	known := slices.Clone(clientVars)
	for _, k := range l.keys {
		for _, name := range k.env {
			if !strings.HasPrefix(name, envPrefix) {
				continue
			}
			known = append(known, name)
			if k.isSecret() {
				known = append(known, name+"_FILE")
			}
		}
	}
	if !slices.Contains(known, name) {
		l.problem(string(layer), name, "no such setting%s", didYouMean(name, known))
	}
}

var mcpServerName = regexp.MustCompile(`^MCP_SERVER_([A-Z0-9_]+)_URL$`)

// mcpServerVar adds the MCP server that MCP_SERVER_<NAME>_URL names, or changes its URL.
func (l *loader) mcpServerVar(layer Layer, name, url string) {
	m := mcpServerName.FindStringSubmatch(name)
	if m == nil || url == "" {
		return
	}
	server := strings.ToLower(strings.ReplaceAll(m[1], "_", "-"))
	servers := &l.cfg.MCPServers
	i := slices.IndexFunc(*servers, func(s MCPServer) bool { return s.Name == server })
	if i < 0 {
		i = len(*servers)
		*servers = append(*servers, MCPServer{Name: server})
		l.cfg.origins[fmt.Sprintf("mcp_servers[%d].name", i)] = Origin{layer, name}
	}
	(*servers)[i].URL = url
	l.cfg.origins[fmt.Sprintf("mcp_servers[%d].url", i)] = Origin{layer, name}
}
