// Package names defines the grammars of names that are used throughout the fleet.
package names

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	// Pattern is the grammar for names of tenants, workspaces and sessions, such as session_001 and customer_A.
	Pattern = `^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`
	// SlugPattern is the grammar for names of task pools, model profiles, MCP servers and pins.
	SlugPattern = `^[a-z0-9][a-z0-9-]{0,62}$`
)

// Rule and SlugRule say in words what the patterns match, after "a name is".
const (
	Rule     = "1 to 63 letters (a-z, A-Z), digits, _ and -, and starts with a letter or digit"
	SlugRule = "1 to 63 of a-z, 0-9 and -, and starts with a letter or digit"
)

var (
	name   = regexp.MustCompile(Pattern)
	slug   = regexp.MustCompile(SlugPattern)
	taskID = regexp.MustCompile(`^[a-z2-7]{26}$`)
	tools  = regexp.MustCompile(`^[^/*\s]+/(\*|[^*\s/]([^*]*[^*\s/])?)$`)
)

// IsName reports whether s may name a tenant, workspace or session.
func IsName(s string) bool { return name.MatchString(s) }

// IsSlug reports whether s may name a task pool, model profile, MCP server or pin.
func IsSlug(s string) bool { return slug.MatchString(s) }

// MatchPattern reports whether s matches a pattern of event types or sources, which may end with a *.
func MatchPattern(pattern, s string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(s, prefix)
	}
	return pattern == s
}

// IsToolPattern reports whether s has the form server/tool, or server/* for all tools of a server. The name of a server
// has no white space. The name of a tool may have slashes and spaces, but neither begins nor ends with one.
func IsToolPattern(s string) bool { return tools.MatchString(s) }

// IsToolFilter reports whether s is a tool pattern, or * for all tools of all servers.
func IsToolFilter(s string) bool { return s == "*" || IsToolPattern(s) }

// MatchTool reports whether a tool filter names a tool, of which names has each name in the form server/tool.
func MatchTool(filter string, names []string) bool {
	server, all := strings.CutSuffix(filter, "/*")
	return filter == "*" || slices.ContainsFunc(names, func(name string) bool {
		return name == filter || all && strings.HasPrefix(name, server+"/")
	})
}

// Check returns an error that quotes s and Rule unless s is a name. The error begins with kind, such as "tenant".
func Check(kind, s string) error {
	if !IsName(s) {
		return fmt.Errorf("%s %.80q: a name is %s", kind, s, Rule)
	}
	return nil
}

// IsTaskID reports whether s has the form of a task id: 26 characters of lower-case base32.
func IsTaskID(s string) bool { return taskID.MatchString(s) }
