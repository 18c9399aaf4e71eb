package selection

import (
	"crypto/sha256"
	"strconv"
	"strings"
)

// Tool describes one tool to the selection. Its id is "server/name".
type Tool struct {
	Server            string  `json:"server"`
	Name              string  `json:"name"`
	Description       string  `json:"description"`
	Params            []Param `json:"params,omitempty"`
	ServerTitle       string  `json:"server_title,omitempty"` // the server's name for people; may be empty
	ServerDescription string  `json:"server_description,omitempty"`

	// The following are Python. They are returned with the tool, and not searched.
	Import    string `json:"import,omitempty"`
	Signature string `json:"signature,omitempty"` // one line
	Types     string `json:"types,omitempty"`     // the classes that the signature names
}

// Param is one parameter of a tool.
type Param struct {
	Name        string   `json:"name"`
	Type        string   `json:"type,omitempty"`
	Description string   `json:"description,omitempty"`
	Enum        []string `json:"enum,omitempty"`
	Required    bool     `json:"required,omitempty"`
}

// ID returns "server/name".
func (t *Tool) ID() string { return t.Server + "/" + t.Name }

// content returns the text that an embedding model receives for the tool.
func (t *Tool) content() string {
	var b strings.Builder
	b.WriteString(t.Server + "/" + t.Name + ": " + strings.TrimSpace(t.Description))
	for i, p := range t.Params {
		b.WriteString([]string{" | ", ", "}[min(i, 1)] + p.Name)
	}
	return b.String()
}

// contentKey returns a cache key. Texts with equal keys have equal vectors.
func contentKey(model string, dimensions int, content string) [sha256.Size]byte {
	return sha256.Sum256([]byte(model + "\x00" + strconv.Itoa(dimensions) + "\x00" + content))
}
