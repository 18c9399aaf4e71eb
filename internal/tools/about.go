package tools

import (
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// About is an MCP server's description of itself. People read it, and search uses it to find the
// server's tools. It is part of no prompt and no tool's hash, so it needs no approval. It changes only
// when the server's modules are generated again.
type About struct {
	Version      string `json:"server_version,omitempty"` // name and version of the server software
	Title        string `json:"server_title,omitempty"`   // human-readable name
	Description  string `json:"server_description,omitempty"`
	Instructions string `json:"server_instructions,omitempty"` // for a model that uses the server
}

// Limits of each text, in bytes.
const (
	maxTitle = 200  // version, title
	maxAbout = 2000 // description, instructions
)

// Sanitize returns the texts truncated to their limits, with hidden characters spelled out. Version and
// title are on one line each.
func (a About) Sanitize() About {
	line := func(s string) string { return text.Truncate(text.Printable(text.OneLine(s)), maxTitle) }
	lineEnds := strings.NewReplacer("\r\n", "\n", "\r", "\n")
	lines := func(s string) string {
		return text.Truncate(strings.TrimSpace(text.Printable(lineEnds.Replace(s))), maxAbout)
	}
	return About{line(a.Version), line(a.Title), lines(a.Description), lines(a.Instructions)}
}

// WithoutVersion returns a with an empty Version, to compare descriptions across versions.
func (a About) WithoutVersion() About {
	a.Version = ""
	return a
}
