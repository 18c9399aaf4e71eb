package schemas

import "encoding/json"

// Tool is one tool of the catalogue as a tenant sees it. How much of it is there depends on the level
// of detail that was asked for: name has the first block, description the second too, full all.
type Tool struct {
	ID     string `json:"id"` // server/name, as allow-lists and results write it
	Server string `json:"server"`
	Name   string `json:"name"`
	State  string `json:"state"` // local | registered | approved, which programs may call; pending | changed

	Import      string `json:"import,omitempty"`      // from servers.calculator import add
	Signature   string `json:"signature,omitempty"`   // add(a: float, b: float) -> float
	Description string `json:"description,omitempty"` // one line, but for the level full

	Module       string           `json:"module,omitempty"`   // servers.calculator.add
	Function     string           `json:"function,omitempty"` // add
	Path         string           `json:"path,omitempty"`     // below servers/
	Title        string           `json:"title,omitempty"`
	InputSchema  json.RawMessage  `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage  `json:"output_schema,omitempty"`
	Annotations  *ToolAnnotations `json:"annotations,omitempty"`
	Exposed      bool             `json:"exposed,omitempty"` // a registered tool that is one of the MCP bridge, too
	Hash         string           `json:"hash,omitempty"`    // of the definition; none for a hand-written module
}

// ToolAnnotations are a tool's own claims about its effects, under the names of MCP.
type ToolAnnotations struct {
	Title       string `json:"title,omitempty"`
	ReadOnly    bool   `json:"readOnlyHint,omitempty"`
	Idempotent  bool   `json:"idempotentHint,omitempty"`
	Destructive *bool  `json:"destructiveHint,omitempty"` // nil: not said, which counts as yes
	OpenWorld   *bool  `json:"openWorldHint,omitempty"`   // nil: not said, which counts as yes
}

// ToolList is what GET /v1/tools answers.
type ToolList struct {
	Tools    []Tool        `json:"tools"`             // by server, then name
	Broken   []BrokenTool  `json:"broken"`            // files, and registered tools, that are none
	Warnings []ToolWarning `json:"warnings"`          // what a person should see before approving
	Servers  []ToolServer  `json:"servers,omitempty"` // of the level full: the MCP servers that say something of themselves
}

// ToolServer is what an MCP server says of itself. Nobody has approved it: it helps to find the server's tools, and
// is for people to read, not for models.
type ToolServer struct {
	Server       string `json:"server"`
	Version      string `json:"version,omitempty"` // name and version of its program
	Title        string `json:"title,omitempty"`
	Description  string `json:"description,omitempty"`
	Instructions string `json:"instructions,omitempty"`
}

// BrokenTool is something in the catalogue that is no tool, and why.
type BrokenTool struct {
	Path    string `json:"path"` // below servers/
	Line    int    `json:"line"` // from 1; 0 when it is the whole
	Message string `json:"message"`
}

// ToolWarning is something in a tool's texts that shows one thing to a person and another to a model.
type ToolWarning struct {
	Tool    string `json:"tool"`  // server/name
	Field   string `json:"field"` // name | title | description | schema
	Message string `json:"message"`
}

// ToolSearch is what GET /v1/tools/search answers.
type ToolSearch struct {
	Servers   []ToolGroup `json:"servers"`   // by their best tool
	Available int         `json:"available"` // tools that were searched
	Share     float64     `json:"share"`     // found ÷ available
	Queries   []ToolQuery `json:"queries"`
	Degraded  string      `json:"degraded,omitempty"` // why embeddings had no part in it, when they should have
}

// MaxToolQueryBytes bounds the queries of a search, all together.
const MaxToolQueryBytes = 20_000

// ToolGroup is the found tools of one server, best first.
type ToolGroup struct {
	Server string      `json:"server"`
	Tools  []ToolMatch `json:"tools"`
	More   int         `json:"more"` // other tools of this server
}

// ToolMatch is one found tool.
type ToolMatch struct {
	ID          string       `json:"id"`
	Tool        string       `json:"tool"`
	Score       float64      `json:"score"` // next to the best tool of its query, which has 1
	Signature   string       `json:"signature,omitempty"`
	Description string       `json:"description,omitempty"`
	Params      []ToolParam  `json:"params,omitempty"` // of the level full
	Why         *ToolReasons `json:"why,omitempty"`    // when it was asked for
}

// ToolParam is one parameter of a tool, under its Python name.
type ToolParam struct {
	Name        string   `json:"name"`
	Type        string   `json:"type,omitempty"` // as the signature says it
	Description string   `json:"description,omitempty"`
	Enum        []string `json:"enum,omitempty"`
	Required    bool     `json:"required,omitempty"`
}

// ToolReasons is what a found tool's place is made of.
type ToolReasons struct {
	Terms   []string `json:"terms"` // matched words, the weightiest first
	Lexical float64  `json:"lexical"`
	Clause  float64  `json:"clause"`
	Server  float64  `json:"server"`
	Vectors float64  `json:"vectors"`
	History float64  `json:"history"`
	Dense   float64  `json:"dense,omitempty"`
}

// ToolQuery says how well one query was understood.
type ToolQuery struct {
	Query          string   `json:"query"`
	Tools          []string `json:"tools"`           // ids, best first
	Confidence     float64  `json:"confidence"`      // 0 … 1; low means that perhaps no tool fits
	UnmatchedTerms []string `json:"unmatched_terms"` // stems that no tool knows
}
