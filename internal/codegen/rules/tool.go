package rules

import (
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/codegen"
)

// tool is a selected tool.
type tool struct{ *codegen.Tool }

// requires reports whether these are exactly the tool's required parameters.
func (t *tool) requires(names ...string) bool {
	n := 0
	for _, p := range t.Params {
		if p.Required {
			if !slices.Contains(names, p.Name) {
				return false
			}
			n++
		}
	}
	return n == len(names)
}

// named reports whether the tool's name contains one of the words.
func (t *tool) named(words ...string) bool {
	name := strings.ToLower(t.Name)
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(name, w) })
}

// has reports whether the tool has the parameter.
func (t *tool) has(param string) bool {
	return slices.ContainsFunc(t.Params, func(p codegen.Param) bool { return p.Name == param })
}

// requiredParam returns the name of the first required parameter, or "" if there is none.
func (t *tool) requiredParam() string {
	for _, p := range t.Params {
		if p.Required {
			return p.Name
		}
	}
	return ""
}
