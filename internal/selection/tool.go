package selection

import (
	"crypto/sha256"
	"strings"
)

// Tool is what selection needs to know of one tool. Its id is "server/name".
type Tool struct {
	Server, Name, Description string
	Params                    []Param
	ServerTitle               string // what people call the server, when it says
	ServerDescription         string
	Signature                 string // one line, as the program would write it; shown, not searched
}

// Param is one parameter of a tool.
type Param struct {
	Name, Type, Description string
	Enum                    []string
	Required                bool
}

// ID returns "server/name".
func (t *Tool) ID() string { return t.Server + "/" + t.Name }

// content is the text that stands for the tool where one string is wanted: for an embedding model.
func (t *Tool) content() string {
	var b strings.Builder
	b.WriteString(t.Server + "/" + t.Name + ": " + strings.TrimSpace(t.Description))
	for i, p := range t.Params {
		b.WriteString([]string{" | ", ", "}[min(i, 1)] + p.Name)
	}
	return b.String()
}

// contentKey names a text under a model and a length of vectors; equal keys have equal vectors.
func contentKey(model string, dimensions int, content string) [sha256.Size]byte {
	return sha256.Sum256([]byte(model + "\x00" + itoa(dimensions) + "\x00" + content))
}
