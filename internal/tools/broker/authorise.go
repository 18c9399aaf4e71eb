package broker

import (
	"context"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/names"
)

// authorise rejects calls of tools that the task may not use, and calls that a plugin refused.
func authorise(cfg Config) layer {
	return func(ctx context.Context, c Call, next handler) (Result, error) {
		if c.Refused != nil {
			return Result{}, c.Refused
		}
		if Allowed(cfg.Task.Allow, c.Server, c.Tool) {
			return next(ctx, c)
		}
		if _, err := cfg.Catalogue.Lookup(c.Server, c.Tool); err != nil {
			return Result{}, unknown(cfg, c)
		}
		return Result{}, fail(c, errcode.Forbidden, "the task may not use this tool").
			hint("tools.allow of the task or its tenant does not include it")
	}
}

// unknown returns the error for a call of a tool that does not exist. It suggests only tools that the task may use, so
// that a program cannot discover others.
func unknown(cfg Config, c Call) error {
	may := cfg.Catalogue.Filter(func(server, tool string) bool { return Allowed(cfg.Task.Allow, server, tool) })
	_, err := may.Lookup(c.Server, c.Tool)
	return fail(c, errcode.Unknown, "%v", err)
}

// Narrow returns a list that allows the tools that both lists allow.
func Narrow(list, other []string) []string {
	both := []string{}
	for _, a := range list {
		for _, b := range other {
			switch {
			case covers(b, a):
				both = append(both, a)
			case covers(a, b):
				both = append(both, b)
			}
		}
	}
	slices.Sort(both)
	return slices.Compact(both)
}

// covers reports whether pattern a allows every tool that pattern b allows.
func covers(a, b string) bool {
	server, all := strings.CutSuffix(a, "/*")
	return a == "*" || a == b || all && strings.HasPrefix(b, server+"/")
}

// Allowed reports whether a list of "server/tool", "server/*" and "*" names the tool.
func Allowed(list []string, server, tool string) bool {
	id := []string{server + "/" + tool}
	return slices.ContainsFunc(list, func(filter string) bool { return names.MatchTool(filter, id) })
}
