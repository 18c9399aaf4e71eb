package tools

import (
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// About is what an MCP server says of itself, not of a tool. It helps to find the server's tools among others and is
// shown to people; it is in no prompt and no tool's hash covers it, so nobody has to approve it. It changes only
// when somebody generates the server's tools again.
type About struct {
	Version      string `json:"server_version,omitempty"` // name and version of its program
	Title        string `json:"server_title,omitempty"`   // what people call it
	Description  string `json:"server_description,omitempty"`
	Instructions string `json:"server_instructions,omitempty"` // what it would tell a model that uses it
}

// Limits of what is kept of a server's texts, in bytes.
const (
	maxTitle = 200
	maxAbout = 2000 // of the description, and of the instructions
)

// Tame returns the texts with hidden characters spelled out, the version and the title on one line, and all of them
// within the limits: what is longer ends in "…".
func (a About) Sanitize() About {
	line := func(s string) string { return text.Truncate(text.Printable(text.OneLine(s)), maxTitle) }
	lineEnds := strings.NewReplacer("\r\n", "\n", "\r", "\n")
	lines := func(s string) string {
		return text.Truncate(strings.TrimSpace(text.Printable(lineEnds.Replace(s))), maxAbout)
	}
	return About{line(a.Version), line(a.Title), lines(a.Description), lines(a.Instructions)}
}

// Texts are what it says but for its version, which is a new one now and then.
func (a About) WithoutVersion() About {
	a.Version = ""
	return a
}
